// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sigsyaml "sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/gcp"
)

// gcpSite is a project, and a cluster whose tokens it trusts.
func gcpSite(t *testing.T, w *walk) walkSite {
	cloud := sim.New(t, cloudsim.NewWorld())
	own := filepath.Join(w.dir, ".config/gcloud")
	if err := errors.Join(os.MkdirAll(own, 0o700), os.WriteFile(filepath.Join(own, "application_default_credentials.json"), []byte(cloud.ServiceAccount()), 0o600)); err != nil {
		t.Fatal(err)
	}
	account := cloud.ExternalAccount(w.outside("token", sim.ClusterToken(time.Hour)), true)
	return walkSite{
		env: map[string]string{"GCP_ENDPOINT": cloud.Server.URL, "GCP_RESOURCE_MANAGER_ENDPOINT": cloud.Server.URL, "GCP_CA_FILE": cloud.Server.CAFile},
		// The network of the page's default has subnetworks of its own.
		means: map[string]string{"my-project": sim.Project, "default": sim.OtherNetwork},
		image: func(path string) error { return os.WriteFile(path, []byte{0x1f, 0x8b, 8, 0}, 0o600) },
		calls: cloud.Used,
		left: func() (left []string) { // images are in the walk's books
			for _, what := range booked(cloud.World) {
				if !strings.HasPrefix(what, "image ") {
					left = append(left, what)
				}
			}
			return left
		},
		tools: map[string][]answer{"gcloud": gcpAnswers(w, account)},
	}
}

func gcpAnswers(w *walk, account string) []answer {
	const (
		email = "outrigger@my-project.iam.gserviceaccount.com"
		pool  = "projects/123456789/locations/global/workloadIdentityPools/outrigger"
	)
	role := map[string]string{"--role": "projects/my-project/roles/outrigger", "--member": "serviceAccount:" + email}
	global := map[string]string{"--location": "global"}
	network := map[string]string{"--network": "default"}
	region := map[string]string{"--region": sim.Region}
	zone := map[string]string{"--zone": sim.Zones[0]}
	return []answer{
		{words: "services enable compute.googleapis.com"},
		{words: "projects describe my-project", flags: map[string]string{"--format": "value(projectNumber)"}, says: prints("123456789\n")},
		{words: "storage cp bin/podvm/podvm-gcp-amd64.tar.gz " + sim.Object, makes: "object"},
		{words: "storage rm " + sim.Object, removes: "object"},
		{words: "container clusters create outrigger", makes: "cluster", flags: map[string]string{"--zone": sim.Zones[0], "--network": "default", "--image-type": "UBUNTU_CONTAINERD"}},
		{words: "container clusters get-credentials outrigger", flags: zone},
		{words: "container clusters delete outrigger", removes: "cluster", flags: zone},
		{words: "compute firewall-rules create outrigger-to-pods", makes: "to pods", flags: map[string]string{"--network": "default", "--target-tags": "podvm", "--allow": "tcp:15150,udp:4789"}},
		{words: "compute firewall-rules create outrigger-to-nodes", makes: "to nodes", flags: map[string]string{"--network": "default", "--source-tags": "podvm", "--allow": "udp:4789"}},
		{words: "compute firewall-rules delete outrigger-to-pods", removes: "to pods"},
		{words: "compute firewall-rules delete outrigger-to-nodes", removes: "to nodes"},
		{words: "compute routers create outrigger", makes: "router", flags: network},
		{words: "compute routers nats create outrigger", flags: map[string]string{"--router": "outrigger", "--auto-allocate-nat-external-ips": "", "--nat-all-subnet-ip-ranges": ""}},
		{words: "compute routers delete outrigger", removes: "router", flags: region},
		{words: "iam roles create outrigger --project my-project", makes: "role", flags: map[string]string{"--file": ""}, says: func(flags map[string]string) (string, error) {
			text, err := w.file(flags["--file"])
			if err != nil {
				return "", err
			}
			var role struct{ IncludedPermissions []string }
			err = sigsyaml.Unmarshal([]byte(text), &role)
			w.granted = append(w.granted, role.IncludedPermissions...)
			return "", err
		}},
		{words: "iam roles delete outrigger --project my-project", removes: "role"},
		{words: "iam service-accounts create outrigger", makes: "account"},
		{words: "iam service-accounts delete " + email, removes: "account"},
		{words: "projects add-iam-policy-binding my-project", makes: "$role", flags: role},
		{words: "projects remove-iam-policy-binding my-project", removes: "$role", flags: role},
		{words: "iam workload-identity-pools create outrigger", makes: "pool", flags: global},
		{words: "iam workload-identity-pools delete outrigger", removes: "pool", flags: global},
		{words: "iam workload-identity-pools providers create-oidc cluster", flags: map[string]string{
			"--location": "global", "--workload-identity-pool": "outrigger", "--issuer-uri": clusterIssuer, "--attribute-mapping": "google.subject=assertion.sub",
		}},
		{words: "iam service-accounts add-iam-policy-binding " + email, flags: map[string]string{"--role": "roles/iam.workloadIdentityUser", "--member": ""}, says: func(flags map[string]string) (string, error) {
			for _, name := range []string{"cloud-api-adaptor", "peerpod-ctrl"} {
				if flags["--member"] == "principal://iam.googleapis.com/"+pool+"/subject/system:serviceaccount:"+namespace+":"+name {
					return "", nil
				}
			}
			return "", fmt.Errorf("member %q", flags["--member"])
		}},
		{words: "iam workload-identity-pools create-cred-config " + pool + "/providers/cluster", flags: map[string]string{
			"--service-account": email, "--credential-source-file": "/var/run/secrets/gcp/token", "--output-file": "",
		}, says: func(flags map[string]string) (string, error) {
			return "", os.WriteFile(filepath.Join(w.dir, flags["--output-file"]), []byte(account), 0o600)
		}},
		{words: "compute instances list", flags: map[string]string{"--filter": "name~^podvm-", "--format": "value(name)"}, says: w.nameLines},
		{words: "compute images delete podvm-1", says: func(map[string]string) (string, error) { return "", w.imageRemoved("podvm-1") }},
	}
}
