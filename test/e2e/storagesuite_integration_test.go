// SPDX-License-Identifier: Apache-2.0

//go:build integration

package e2e

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/tier"
)

// storageDriver says what the driver can do, in the suite's own words (k8s.io/kubernetes/test/e2e/storage/external).
const storageDriver = `
StorageClass: {FromName: true}
DriverInfo:
  Name: csi.outrigger.dev
  SupportedSizeRange: {Min: 1Gi}
  SupportedFsType: {ext4: {}}
  SupportedMountOption: {noatime: {}}
  TopologyKeys: [topology.csi.outrigger.dev/zone]
  Capabilities: {persistence: true, block: true, fsGroup: true, exec: true, pvcDataSource: true, controllerExpansion: true, nodeExpansion: true,
    onlineExpansion: true, offlineExpansion: true, topology: true, readWriteOncePod: true, multipods: false}
`

// inVMs has the API server put the suite's pods into VMs: the suite names no RuntimeClass. Pods with the host's
// network do the suite's work on the node.
const inVMs = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: in-vms}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchExpressions: [{key: e2e-framework, operator: Exists}]}
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  matchConditions: [{name: not-on-the-node, expression: "!has(object.spec.hostNetwork) || !object.spec.hostNetwork"}]
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: '[JSONPatch{op: "add", path: "/spec/runtimeClassName", value: "%s"}, JSONPatch{op: "add", path: "/spec/overhead", value: %s}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: in-vms}
spec: {policyName: in-vms}
`

// notRun are parts of names of the suite's specifications that are not run, and why. What the driver does not have
// the suite leaves out itself.
var notRun = map[string]string{
	`\[Feature:Windows\]`:              "for nodes with Windows",
	`Pre-provisioned PV|Inline-volume`: "the suite's external drivers have none",
	`\[Disruptive\]`:                   "restarts kubelet by ssh",
	`ext3|xfs`:                         "the driver has ext4",
	`subPath should fail if`:           "waits for the error that kubelet gives for links in the node's folder; the guest refuses them later",
	`any volume data source`:           "needs the suite's own populator, from its registry",
}

// TestExternalStorageSuite runs Kubernetes' own suite for storage drivers against ours, with the suite's pods in VMs.
func TestExternalStorageSuite(t *testing.T) {
	tier.OnlyAll(t)
	s := open(t)
	if s.own == nil {
		t.Skip("only in a cluster of the suite's own: its pods are put into VMs by a policy")
	}
	s.suite = t
	s.begin(t)
	s.needVolumes(t)
	class := *runtimeClass
	s.Apply(t, fmt.Sprintf(inVMs, class, s.Kubectl(t, "get", "runtimeclass", class, "-o", "jsonpath={.overhead.podFixed}")))
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	report := filepath.Join(dir, "report.xml")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Hour)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubeTest(t, dir), "-kubeconfig="+s.Kubeconfig, "-kubectl-path="+filepath.Join(cluster.Programs(t), "kubectl"), "-provider=skeleton",
		"-storage.testdriver="+write("driver.yaml", storageDriver), "-test.timeout=0", "-ginkgo.timeout=5h", "-ginkgo.v", "-ginkgo.no-color", "-ginkgo.junit-report="+report,
		"-ginkgo.focus=External.Storage.*("+os.Getenv("STORAGE_FOCUS")+")", "-ginkgo.skip="+strings.Join(slices.Sorted(maps.Keys(notRun)), "|"))
	cmd.Env = append(os.Environ(), "KUBE_TEST_REPO_LIST="+write("registries.yaml", "promoterE2eRegistry: "+s.storageImages(t)+"\n"))
	out, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	s.readReport(t, report, out.Name())
	if err != nil {
		t.Errorf("the suite: %v", err)
	}
}

// kubeTest builds the suite, which is a program of the module with Kubernetes.
func kubeTest(t *testing.T, dir string) string {
	t.Helper()
	program := filepath.Join(dir, "storage.test")
	kubeGo(t, "test", "-c", "-o", program, "./storage")
	return program
}

func kubeGo(t *testing.T, verb string, args ...string) {
	t.Helper()
	cmd := exec.Command("go", append([]string{verb, "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags=-s -w"}, args...)...)
	cmd.Dir = filepath.Join(stand.Root(), "test/kube")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=readonly")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
}

// storageImages pushes what the suite's pods run: busybox, and the part of agnhost that they use. It returns the folder of the
// registry. The tags are those of the suite's version of Kubernetes (test/utils/image/manifest.go).
func (s *suite) storageImages(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "agnhost")
	kubeGo(t, "build", "-o", program, "./agnhost")
	agnhost, err := demoimage.Image(demoimage.Options{Extra: map[string]string{"agnhost": program}})
	if err != nil {
		t.Fatal(err)
	}
	config, err := agnhost.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	config = config.DeepCopy()
	config.Config.Entrypoint, config.Config.Cmd = []string{"/bin/agnhost"}, []string{"pause"}
	if agnhost, err = mutate.ConfigFile(agnhost, config); err != nil {
		t.Fatal(err)
	}
	folder := s.images.busybox[:strings.LastIndex(s.images.busybox, "/")]
	var layer bytes.Buffer // the suite wants to see groups as numbers
	group := "root:x:0:\n"
	if err := writeTar(&layer, "etc/group", strings.NewReader(group), int64(len(group))); err != nil {
		t.Fatal(err)
	}
	busybox, err := mutate.AppendLayers(cluster.Busybox(t), static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"busybox:1.37.0-1", "glibc-dns-testing:2.0.0", "nginx:1.15-4"} { // of which only the shell is used
		push(t, folder+"/"+name, busybox)
	}
	push(t, folder+"/agnhost:2.63.0", agnhost)
	return folder
}

// readReport says what was run and what was left out, and fails t for what failed.
func (s *suite) readReport(t *testing.T, report, log string) {
	t.Helper()
	var all struct {
		Suites []struct {
			Cases []struct {
				Name   string  `xml:"name,attr"`
				Status string  `xml:"status,attr"`
				Time   float64 `xml:"time,attr"`
				Failed *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
				Skipped *struct {
					Message string `xml:"message,attr"`
				} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	data, err := os.ReadFile(report)
	if err == nil {
		err = xml.Unmarshal(data, &all)
	}
	if err != nil || len(all.Suites) == 0 {
		text, _ := os.ReadFile(log)
		t.Fatalf("the suite's report: %v\n%s", err, clip(string(text)))
	}
	passed, reasons := 0, map[string]int{}
	for _, c := range all.Suites[0].Cases {
		name := strings.TrimPrefix(c.Name, "[It] External Storage [Driver: csi.outrigger.dev] ")
		switch {
		case c.Failed != nil:
			t.Errorf("%s: %s", name, clip(c.Failed.Message))
		case c.Skipped != nil:
			reasons[c.Skipped.Message]++
		case c.Status == "passed" && strings.HasPrefix(c.Name, "[It]"):
			passed++
			t.Logf("%s passed in %.0f s", name, c.Time)
		}
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		t.Logf("%d skipped: %s", reasons[reason], clip(reason))
	}
	t.Logf("%d specifications passed", passed)
	if passed == 0 {
		t.Error("no specification was run")
	}
}
