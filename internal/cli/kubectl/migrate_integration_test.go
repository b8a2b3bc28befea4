// SPDX-License-Identifier: Apache-2.0

//go:build integration

package kubectl

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	realcluster "github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// What the two ways to install cloud-api-adaptor leave in a cluster: the chart's definition of PeerPods, which Helm keeps;
// without Helm a RuntimeClass that its operator made, and controller and webhook, which came from folders of their own.
var (
	oldCRD     = definitionOf("confidentialcontainers.org", "v1alpha1", "peerpods", "PeerPod", "Namespaced")
	oldClass   = "\n---\n{apiVersion: node.k8s.io/v1, kind: RuntimeClass, metadata: {name: kata-remote}, handler: kata}"
	oldAdaptor = `
---
{apiVersion: v1, kind: ConfigMap, metadata: {namespace: confidential-containers-system, name: peer-pods-cm}, data: {CLOUD_PROVIDER: libvirt, LIBVIRT_URI: "qemu+ssh://h/system"}}
---
{apiVersion: v1, kind: Secret, metadata: {namespace: confidential-containers-system, name: ssh-key-secret}, stringData: {id_rsa: PRIVATE}}` +
		realWorkload("DaemonSet", SystemNamespace, adaptorName, "app: cloud-api-adaptor")
	oldFolders = map[string]string{
		"src/peerpod-ctrl/config/default": "{apiVersion: v1, kind: Namespace, metadata: {name: confidential-containers-system}}" + oldCRD +
			realWorkload("Deployment", SystemNamespace, "peerpod-ctrl-controller-manager", "app: ctrl"),
		"src/webhook/config/default": "{apiVersion: v1, kind: Namespace, metadata: {name: peer-pods-webhook-system}}" +
			realWorkload("Deployment", "peer-pods-webhook-system", "peer-pods-webhook-controller-manager", "app: hook") + `
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: ` + upstreamWebhook + `}}`,
		"src/cloud-api-adaptor/install/overlays/libvirt": oldAdaptor,
	}
)

// steps is a plan whose commands are run.
type steps struct {
	*real
	env []string
	dir string
}

func (s *steps) sh(command string) string {
	s.t.Helper()
	cmd := osexec.Command("sh", "-ec", command)
	cmd.Dir, cmd.Env = s.dir, s.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return string(out)
}

func (s *steps) follow(all []Step) {
	s.t.Helper()
	names := strings.NewReplacer("UPSTREAM", s.dir+"/up", "deploy/chart", filepath.Join(stand.Root(), "deploy/chart"), "REGISTRY/FOLDER", "registry.test/o",
		"helm template", "helm template --kube-version 1.36") // the pinned helm takes itself for an old cluster
	for _, step := range all {
		for _, command := range step.Run {
			if !strings.HasPrefix(command, "make ") && command != "kubectl outrigger check" {
				s.sh(names.Replace(command))
			}
		}
	}
}

func (s *steps) there() string {
	return s.sh("kubectl get deployments,daemonsets,mutatingwebhookconfigurations,runtimeclasses,crd --all-namespaces --output name")
}

// TestMigrateStepsRun runs all commands of the plan, and those back, for an adaptor that Helm or kustomize has installed.
func TestMigrateStepsRun(t *testing.T) {
	tools := filepath.Join(os.Getenv("OUTRIGGER_CACHE"), "tools")
	if os.Getenv("OUTRIGGER_CACHE") == "" {
		home, _ := os.UserHomeDir()
		tools = filepath.Join(home, ".cache/outrigger/tools")
	}
	path := realcluster.Programs(t) + ":" + tools + ":" + os.Getenv("PATH")
	for _, program := range []string{tools + "/helm", "jq"} {
		if _, err := osexec.LookPath(program); err != nil {
			t.Skipf("the plan's commands need helm and jq: %v; to run it: apt-get install jq, then sudo make test", err)
		}
	}
	for _, helm := range []bool{true, false} {
		cp := realcluster.StartControlPlane(t, realcluster.ControlPlaneOptions{})
		dir := t.TempDir()
		s := &steps{&real{t, cp.Kubeconfig}, append(os.Environ(), "PATH="+path, "KUBECONFIG="+cp.Kubeconfig, "HOME="+dir), dir}
		write := func(name, text string) {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, "up", name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "up", name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		class := "nodeInstaller.enabled=true"
		if helm {
			chart := "src/cloud-api-adaptor/install/charts/peerpods/"
			write(chart+"Chart.yaml", "{apiVersion: v2, name: peerpods, version: 0.4.0}")
			write(chart+"crds/peerpods.yaml", oldCRD)
			write(chart+"templates/all.yaml", oldAdaptor+oldClass)
			s.sh("helm install peerpods up/" + chart + " --namespace " + SystemNamespace + " --create-namespace --set image.name=quay.test/caa,providerConfigs.libvirt.LIBVIRT_URI=qemu+ssh://h/system,providerSecrets.libvirt.id_rsa=PRIVATE")
		} else {
			class = "runtimeClass.create=false"
			cp.Apply(t, oldClass)
			for _, folder := range []string{"src/peerpod-ctrl/config/default", "src/webhook/config/default", "src/cloud-api-adaptor/install/overlays/libvirt"} {
				write(folder+"/kustomization.yaml", "resources: [all.yaml]")
				write(folder+"/all.yaml", oldFolders[folder])
				s.sh("kubectl apply --kustomize up/" + folder)
			}
		}
		before := s.there()
		code, out, _ := s.run("migrate", "--from", "cloud-api-adaptor", "-o", "json")
		var plan Plan
		if err := json.Unmarshal([]byte(out), &plan); err != nil || code != 0 || !strings.Contains(out, class) {
			t.Fatalf("exit code %d: %v\n%s", code, err, out)
		}
		s.follow(plan.Steps)
		wants(t, s.sh("kubectl get configmap,secret --namespace "+SystemNamespace+" --output yaml"), "LIBVIRT_URI: qemu+ssh://h/system", "id_rsa: UFJJVkFURQ==")
		wants(t, s.there(), "daemonset.apps/agent-relay", "runtimeclass.node.k8s.io/kata-remote")
		wantsNot(t, s.there(), "controller-manager", upstreamWebhook)
		wants(t, s.sh("kubectl get crd "+crdName+" --output yaml"), "podUID") // ours
		s.follow(plan.Rollback)
		if after := s.there(); after != before {
			t.Errorf("before:\n%safter:\n%s", before, after)
		}
	}
}
