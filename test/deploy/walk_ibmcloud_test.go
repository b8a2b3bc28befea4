// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloud"
)

// ibmcloudSite is a VPC with a cluster whose tokens it trusts.
func ibmcloudSite(t *testing.T, w *walk) walkSite {
	cloud := sim.New(t, cloudsim.NewWorld())
	return walkSite{
		env: map[string]string{
			"IBMCLOUD_VPC_ENDPOINT": cloud.Server.URL + "/v1", "IBMCLOUD_IAM_ENDPOINT": cloud.Server.URL + "/identity/token", "IBMCLOUD_CA_FILE": cloud.Server.CAFile,
		},
		// Pods have theirs at the flag's default.
		flags: []string{"-cr-token-filename", w.outside("token", sim.ClusterToken)},
		user:  map[string]string{"IBMCLOUD_API_KEY": sim.APIKey},
		nodes: fmt.Sprintf(`{"items": [{"metadata": {"labels": {"topology.kubernetes.io/zone": %q, "ibm-cloud.kubernetes.io/subnet-id": %q}}}]}`, sim.Zones[0], sim.Subnets[0]),
		image: func(path string) error { return os.WriteFile(path, []byte("QFI\xfb"), 0o600) },
		calls: cloud.Used,
		left: func() []string { // images are in the walk's books
			return slices.DeleteFunc(booked(cloud.World), func(what string) bool { return strings.HasPrefix(what, "image ") })
		},
		tools: map[string][]answer{"ibmcloud": ibmcloudAnswers(w)},
	}
}

func ibmcloudAnswers(w *walk) []answer {
	const crn = "crn:v1:bluemix:public:containers-kubernetes:us-south:a/1:cluster1::"
	cluster := map[string]string{"--cluster": "outrigger"}
	object := map[string]string{"--bucket": "my-bucket", "--key": "podvm.qcow2"}
	return []answer{
		{words: "ks cluster config", flags: cluster},
		{words: "ks cluster get", flags: cluster, says: prints(fmt.Sprintf(`{"id": %q, "crn": %q}`, sim.Cluster, crn))},
		{words: "is subnet " + sim.Subnets[0], says: prints(fmt.Sprintf(`{"vpc": {"id": %q}}`, sim.VPC))},
		{words: "cos upload", makes: "object", flags: object},
		{words: "cos object-delete", removes: "object", flags: object},
		{words: "iam role-create OutriggerPods", makes: "role", flags: map[string]string{"--display-name": "OutriggerPods", "--service-name": "is", "--actions": ""}, says: func(flags map[string]string) (string, error) {
			w.granted = append(w.granted, strings.Split(flags["--actions"], ",")...)
			return "", nil
		}},
		{words: "iam role-delete OutriggerPods", removes: "role"},
		{words: "iam trusted-profile-create outrigger", makes: "profile"},
		{words: "iam trusted-profile-delete outrigger", removes: "profile"},
		{words: "iam trusted-profile-policy-create outrigger", flags: map[string]string{"--roles": "OutriggerPods", "--service-name": "is"}},
		{words: "iam trusted-profile-rule-create outrigger", flags: map[string]string{"--type": "Profile-CR", "--cr-type": "IKS_SA", "--conditions": ""}, says: func(flags map[string]string) (string, error) {
			want := fmt.Sprintf("claim:crn,operator:EQUALS,value:%s,claim:namespace,operator:EQUALS,value:%s,claim:name,operator:EQUALS,value:%s", crn, namespace, flags["--name"])
			if flags["--conditions"] != want {
				return "", fmt.Errorf("conditions %q, want %q", flags["--conditions"], want)
			}
			return "", nil
		}},
		{words: "iam trusted-profiles", says: prints(fmt.Sprintf(`[{"name": "other", "id": "x"}, {"name": "outrigger", "id": %q}]`, sim.ProfileID))},
		{words: "is instances", says: func(map[string]string) (string, error) {
			list := []string{`{"name": "other"}`}
			for _, name := range w.names() {
				list = append(list, fmt.Sprintf(`{"name": %q}`, name))
			}
			return "[" + strings.Join(list, ", ") + "]", nil
		}},
		{words: "is image-delete", says: func(flags map[string]string) (string, error) {
			return "", w.imageRemoved(strings.Fields(flags["--line"])[2])
		}},
	}
}
