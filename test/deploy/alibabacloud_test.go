// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const alibabaPage = "docs/providers/alibabacloud.md"

// blocks returns the commands of the page, in order.
func blocks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, alibabaPage))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, match := range regexp.MustCompile("(?ms)^```bash\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		all = append(all, match[1])
	}
	if len(all) < 10 {
		t.Fatalf("the page has %d blocks of commands", len(all))
	}
	return all
}

// cloud stands for the command line of the cloud and of others that need one:
// it answers what the page asks of them, and notes what it was asked.
const cloud = `
note() { printf '%s\n' "$*" >>"$LOG"; }
aliyun() {
  note aliyun "$@"
  case "$1 $2" in
    "ecs ImportImage") echo '{"ImageId": "m-1"}' ;;
    "ecs DescribeImages") echo '{"Images": {"Image": [{}]}}' ;;
    "ecs DescribeInstances") echo '{"TotalCount": 0, "Instances": {"Instance": [{"InstanceName": "podvm-nginx-01234567"}]}}' ;;
    "cs CreateCluster") echo '{"cluster_id": "c-1"}' ;;
    "cs POST") jq -e .scaling_group.vswitch_ids[1] >/dev/null <<<"${@: -1}" && echo '{"nodepool_id": "np-1"}' ;;
    "cs GET") echo '{"status": {"healthy_nodes": 1}}' ;;
    "cs DescribeClusterDetail") echo '{"state": "running", "vpc_id": "vpc-1", "security_group_id": "sg-1", "parameters": {"WorkerVSwitchIds": "vsw-1,vsw-2"},
      "rrsa_config": {"oidc_arn": "acs:ram::1:oidc-provider/ack-rrsa-c-1,other", "issuer": "https://oidc.example/c-1,other"}}' ;;
    "cs DescribeClusterUserKubeconfig") echo '{"config": "kind: Config"}' ;;
    "vpc CreateNatGateway") echo '{"NatGatewayId": "ngw-1", "SnatTableIds": {"SnatTableId": ["stb-1"]}}' ;;
    "vpc AllocateEipAddress") echo '{"AllocationId": "eip-1", "EipAddress": "192.0.2.1"}' ;;
    "vpc DescribeNatGateways") echo '{"NatGateways": {"NatGateway": [{"Status": "Available"}]}}' ;;
    "ram CreateRole") echo '{"Role": {"Arn": "acs:ram::1:role/caa-alibaba"}}' ;;
  esac
}
kubectl() { note kubectl "$@"; }
make() { note make "$@" "$CLOUD_PROVIDER" "${NODE_INSTALLER:-}"; mkdir -p bin/podvm; echo image >bin/podvm/podvm-alibabacloud-amd64.qcow2; }
sleep() { :; }
`

// follow runs the whole page in a copy of deploy/ and returns its folder.
func follow(t *testing.T) string {
	t.Helper()
	if _, err := exec.LookPath("jq"); err != nil {
		t.Skip("the page's commands use jq, which is not on this machine: apt-get install jq")
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(filepath.Join(root, "deploy"))); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", cloud+strings.Join(blocks(t), "\n"))
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "LOG=" + filepath.Join(dir, "log"), "CLOUD_PROVIDER="}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

// TestAlibabaPageFollowed runs the page's commands, with the cloud's answers
// made up, and looks at what they leave.
func TestAlibabaPageFollowed(t *testing.T) {
	dir := follow(t)
	open, secret := settings(t, parse(t, output(t, tool(t, "kustomize"), "build", filepath.Join(dir, "deploy/overlays/alibabacloud"))))
	want := map[string]string{
		"CLOUD_PROVIDER": "alibabacloud", "VSWITCH_ID": "vsw-1", "SECURITY_GROUP_IDS": "sg-1", "IMAGEID": "m-1", "REGION": "cn-beijing",
		"PEERPODS_LIMIT_PER_NODE": "10",
	}
	if diff := cmp.Diff(want, open); diff != "" {
		t.Errorf("peer-pods-cm: %s", diff)
	}
	want = map[string]string{
		"ALIBABA_CLOUD_ROLE_ARN": "acs:ram::1:role/caa-alibaba", "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": "acs:ram::1:oidc-provider/ack-rrsa-c-1",
		"ALIBABA_CLOUD_OIDC_TOKEN_FILE": "/var/run/secrets/ack.alibabacloud.com/rrsa-tokens/token",
	}
	if diff := cmp.Diff(want, secret); diff != "" {
		t.Errorf("peer-pods-secret: %s", diff)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []string{
		"aliyun ecs ImportImage --RegionId cn-beijing --ImageName podvm-",
		"aliyun vpc CreateSnatEntry --RegionId cn-beijing --SnatTableId stb-1 --SourceVSwitchId vsw-1 --SnatIp 192.0.2.1",
		"--DiskDeviceMapping.1.Format QCOW2 --Features.NvmeSupport supported --method POST --force",
		"aliyun cs POST /clusters/c-1/nodepools",
		"aliyun cs GET /clusters/c-1/nodepools/np-1",
		"make image push alibabacloud true",
		"make deploy alibabacloud true",
		"kubectl get runtimeclass kata-remote",
		"make undeploy alibabacloud true",
		"--retain_all_resources false",
		"kubectl apply -f nginx.yaml",
		"aliyun cs DELETE /clusters/c-1",
	} {
		if !strings.Contains(string(log), call) {
			t.Errorf("the page does not lead to %q", call)
		}
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
	decode(t, heredoc(t, "trust.json"), &trust)
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

// heredoc returns a file that the page writes.
func heredoc(t *testing.T, name string) string {
	t.Helper()
	match := regexp.MustCompile(`(?ms)^cat >` + regexp.QuoteMeta(name) + ` <<'?EOF'?\n(.*?)^EOF$`).FindStringSubmatch(strings.Join(blocks(t), ""))
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
	text, err := os.ReadFile(filepath.Join(root, alibabaPage))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| actions | for |")
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
