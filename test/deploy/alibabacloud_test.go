// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

// alibabaSite is the simulated cloud, and the command line with which the page makes image,
// cluster, way out and role.
func alibabaSite(t *testing.T, w *walk) walkSite {
	cloud := sim.New(t, sim.Options{})
	token := w.outside("token", sim.Token(sim.ServiceAccount()))
	region := map[string]string{"--RegionId": sim.Region}
	with := func(flags map[string]string) map[string]string { maps.Copy(flags, region); return flags }
	return walkSite{
		env: map[string]string{
			"ALIBABACLOUD_CA_FILE": cloud.CAFile, "ALIBABACLOUD_ECS_ENDPOINT": cloud.Endpoint, "ALIBABACLOUD_VPC_ENDPOINT": cloud.Endpoint, "ALIBABACLOUD_STS_ENDPOINT": cloud.Endpoint,
		},
		means: map[string]string{"/var/run/secrets/ack.alibabacloud.com/rrsa-tokens/token": token},
		image: func(path string) error { return os.WriteFile(path, []byte("QFI\xfb"), 0o600) },
		calls: func() []string {
			return slices.DeleteFunc(slices.Sorted(maps.Keys(cloud.Calls())), func(call string) bool { return strings.HasPrefix(call, "sts:") })
		},
		left: func() []string { return booked(cloud.World) },
		// The page says that they stay.
		stays: []string{"object", "image", "gateway", "address"},
		tools: map[string][]answer{"aliyun": {
			{words: "oss cp bin/podvm/podvm-alibabacloud-amd64.qcow2", makes: "object"},
			{words: "ecs ImportImage", makes: "image", flags: with(map[string]string{
				"--ImageName": "", "--BootMode": "UEFI", "--DiskDeviceMapping.1.Format": "QCOW2", "--Features.NvmeSupport": "supported", "--method": "POST", "--force": "",
			}), says: prints(`{"ImageId": "` + sim.Image + `"}`)},
			{words: "ecs DescribeImages", flags: with(map[string]string{"--ImageId": sim.Image}), says: prints(`{"Images": {"Image": [{}]}}`)},
			{words: "ecs DescribeInstances", flags: with(map[string]string{"--InstanceName": "podvm-*"}), says: func(map[string]string) (string, error) {
				names := "" // of what is there; after the removal only the books know
				for n, name := range w.names() {
					names += strings.Repeat(",", min(n, 1)) + fmt.Sprintf(`{"InstanceName": %q}`, name)
				}
				return fmt.Sprintf(`{"TotalCount": %d, "Instances": {"Instance": [%s]}}`, len(booked(cloud.World)), names), nil
			}},
			{words: "cs CreateCluster", makes: "cluster", says: prints(`{"cluster_id": "c-1"}`)},
			{words: "cs POST /clusters/c-1/nodepools", flags: map[string]string{"--body": ""}, says: func(flags map[string]string) (string, error) {
				var body struct {
					Group struct {
						VSwitches []string `json:"vswitch_ids"`
					} `json:"scaling_group"`
				}
				err := json.Unmarshal([]byte(flags["--body"]), &body)
				if err == nil && len(body.Group.VSwitches) != 2 {
					err = fmt.Errorf("the node pool has the vSwitches %q", body.Group.VSwitches)
				}
				return `{"nodepool_id": "np-1"}`, err
			}},
			{words: "cs GET /clusters/c-1/nodepools/np-1", says: prints(`{"status": {"healthy_nodes": 1}}`)},
			{words: "cs DescribeClusterDetail", flags: map[string]string{"--ClusterId": "c-1"}, says: prints(fmt.Sprintf(
				`{"state": "running", "vpc_id": "vpc-1", "security_group_id": %q, "parameters": {"WorkerVSwitchIds": "%s,%s"}, "rrsa_config": {"oidc_arn": "%s,other", "issuer": "%s,other"}}`,
				sim.Group, sim.VSwitch, sim.OtherVSwitch, sim.OIDCProvider, sim.Issuer))},
			{words: "cs DescribeClusterUserKubeconfig", says: prints(`{"config": "kind: Config"}`)},
			{words: "cs DELETE /clusters/c-1", removes: "cluster", flags: map[string]string{"--retain_all_resources": "false"}},
			{words: "vpc CreateNatGateway", makes: "gateway", flags: with(map[string]string{"--VSwitchId": sim.VSwitch}), says: prints(`{"NatGatewayId": "ngw-1", "SnatTableIds": {"SnatTableId": ["stb-1"]}}`)},
			{words: "vpc AllocateEipAddress", makes: "address", flags: with(map[string]string{}), says: prints(`{"AllocationId": "eip-1", "EipAddress": "192.0.2.1"}`)},
			{words: "vpc DescribeNatGateways", flags: with(map[string]string{"--NatGatewayId": "ngw-1"}), says: prints(`{"NatGateways": {"NatGateway": [{"Status": "Available"}]}}`)},
			{words: "vpc AssociateEipAddress", flags: with(map[string]string{"--AllocationId": "eip-1", "--InstanceId": "ngw-1"})},
			{words: "vpc CreateSnatEntry", flags: with(map[string]string{"--SnatTableId": "stb-1", "--SourceVSwitchId": sim.VSwitch, "--SnatIp": "192.0.2.1"})},
			{words: "ram CreatePolicy", makes: "policy $PolicyName", says: func(flags map[string]string) (string, error) {
				return "", w.grantStatements(flags["--PolicyDocument"])
			}},
			{words: "ram CreateRole", makes: "role $RoleName", says: func(flags map[string]string) (string, error) {
				return `{"Role": {"Arn": "` + sim.Role + `"}}`, json.Unmarshal([]byte(flags["--AssumeRolePolicyDocument"]), &map[string]any{})
			}},
			{words: "ram AttachPolicyToRole", makes: "$PolicyName of $RoleName"},
			{words: "ram DetachPolicyFromRole", removes: "$PolicyName of $RoleName"},
			{words: "ram DeleteRole", removes: "role $RoleName"},
			{words: "ram DeletePolicy", removes: "policy $PolicyName"},
		}},
	}
}

// TestAlibabaToken holds the places that have to agree: the token's path in the
// credentials, its mount, and the accounts in the trust policy.
func TestAlibabaToken(t *testing.T) {
	all := parse(t, overlay(t, "alibabacloud"))
	_, secret := settings(t, all)
	var trust struct {
		Statement []struct {
			Condition struct {
				StringEquals map[string][]string
			}
		}
	}
	decode(t, heredoc(t, "alibabacloud", "trust.json"), &trust)
	equals := trust.Statement[0].Condition.StringEquals
	var accounts []string
	for _, workload := range []string{"DaemonSet cloud-api-adaptor-daemonset", "Deployment peerpod-ctrl"} {
		o := find(t, all, workload)
		account, _, _ := unstructured.NestedString(o.Object, "spec", "template", "spec", "serviceAccountName")
		accounts = append(accounts, "system:serviceaccount:"+o.GetNamespace()+":"+account)
		token, mount := projected(t, o)
		if path := filepath.Join(mount, token["path"].(string)); path != secret["ALIBABA_CLOUD_OIDC_TOKEN_FILE"] {
			t.Errorf("%s has its token at %s", workload, path)
		}
		if !slices.Equal(equals["oidc:aud"], []string{token["audience"].(string)}) || token["expirationSeconds"] != int64(3600) && token["expirationSeconds"] != float64(3600) {
			t.Errorf("%s: token %v, audience trusted %v", workload, token, equals["oidc:aud"])
		}
		if role := find(t, all, "ServiceAccount "+account).GetAnnotations()["pod-identity.alibabacloud.com/role-name"]; role != "caa-alibaba" {
			t.Errorf("%s: role %q", account, role)
		}
	}
	if diff := cmp.Diff(accounts, equals["oidc:sub"]); diff != "" {
		t.Errorf("accounts that are trusted: %s", diff)
	}
}

// projected returns the token that a workload's volume rrsa-token has, and where
// it is mounted.
func projected(t *testing.T, o *unstructured.Unstructured) (token map[string]any, mount string) {
	t.Helper()
	spec, _, _ := unstructured.NestedMap(o.Object, "spec", "template", "spec")
	for _, v := range spec["volumes"].([]any) {
		if v := v.(map[string]any); v["name"] == "rrsa-token" {
			sources, _, _ := unstructured.NestedSlice(v, "projected", "sources")
			token = sources[0].(map[string]any)["serviceAccountToken"].(map[string]any)
		}
	}
	for _, m := range spec["containers"].([]any)[0].(map[string]any)["volumeMounts"].([]any) {
		if m := m.(map[string]any); m["name"] == "rrsa-token" {
			mount = m["mountPath"].(string)
		}
	}
	if token == nil || mount == "" {
		t.Fatalf("%s has no token", id(o))
	}
	return token, mount
}

// heredoc returns a file that a provider's page writes.
func heredoc(t *testing.T, provider, name string) string {
	t.Helper()
	match := regexp.MustCompile(`(?ms)^cat >` + regexp.QuoteMeta(name) + ` <<'?EOF'?\n(.*?)^EOF$`).FindStringSubmatch(strings.Join(commandsOf(t, providerPage(provider)), ""))
	if match == nil {
		t.Fatalf("the page writes no %s", name)
	}
	return match[1]
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
}

// TestAlibabaPolicy: the page says of each action in the overlay's policy, which
// is written from the provider's calls, what it is for.
func TestAlibabaPolicy(t *testing.T) {
	data, err := os.ReadFile(filepath.Join(root, "deploy/overlays/alibabacloud/ram-policy.json"))
	if err != nil {
		t.Fatal(err)
	}
	var policy struct {
		Version   string
		Statement []struct {
			Effect, Resource string
			Action           []string
		}
	}
	decode(t, string(data), &policy)
	_, table, _ := strings.Cut(page(t, "providers/alibabacloud.md"), "| actions | for |")
	table, _, _ = strings.Cut(table, "\n\n")
	if policy.Version != "1" || len(policy.Statement) != 1 || policy.Statement[0].Effect != "Allow" {
		t.Fatalf("policy %+v", policy)
	}
	for _, action := range policy.Statement[0].Action {
		if _, name, _ := strings.Cut(action, ":"); !strings.Contains(table, "`"+name+"`") {
			t.Errorf("the page does not say what %s is for", action)
		}
	}
}
