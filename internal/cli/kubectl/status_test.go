// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/internal/version"
)

// workload puts one with an image and a number of pods.
func (f *fakeAPI) workload(resource, namespace, name, image string, ready, desired int) o {
	w := o{
		"metadata": o{"name": name, "namespace": namespace},
		"spec": o{"replicas": desired, "selector": o{"matchLabels": o{"app": name}},
			"template": o{"spec": o{"containers": []any{o{"name": "main", "image": image}}}}},
		"status": o{"desiredNumberScheduled": desired, "numberReady": ready, "updatedNumberScheduled": desired, "readyReplicas": ready, "updatedReplicas": desired},
	}
	f.put(api(apps, namespace, resource, name), w)
	return w
}

// installed is a healthy cluster with all components.
func installed(t *testing.T) *fakeAPI {
	t.Helper()
	set(t, &version.Version, "v0.2.1")
	f := healthy(t)
	const registry = "registry.example:5000/outrigger/"
	f.workload("daemonsets", SystemNamespace, adaptorName, registry+"cloud-api-adaptor:v0.2.0", 2, 2)
	f.workload("daemonsets", SystemNamespace, relayName, registry+"agent-relay:v0.2.0@sha256:0123456789abcdef", 2, 2)
	f.workload("deployments", SystemNamespace, controllerName, registry+"peerpod-ctrl:v0.2.3", 1, 1)
	f.workload("deployments", SystemNamespace, webhookName, registry+"peerpods-webhook:v0.2.0", 2, 2)
	f.workload("deployments", "outrigger-capi-system", "outrigger-capi-controller-manager", registry+"capi-manager:v0.2.0", 1, 1)
	f.workload("deployments", "shop", "shop", registry+"shop:v9.0.0", 0, 1)
	f.put(api(peerPodGroup, "", "podvmpools", "small"), o{"metadata": o{"name": "small"}, "spec": o{"minReady": 2}, "status": o{"ready": 2, "claimed": 1}})
	f.put(api(managerGroup, "", "cloudcontrollermanagers", "cluster"), o{"metadata": o{"name": "cluster"}, "status": o{"conditions": []any{conditionObject("Available", "True", "AsExpected", "")}}})
	return f
}

// set sets a variable for the time of a test.
func set[T any](t *testing.T, variable *T, to T) {
	was := *variable
	*variable = to
	t.Cleanup(func() { *variable = was })
}

func (f *fakeAPI) status(args ...string) (int, Status) {
	f.t.Helper()
	code, out, errs := f.run(append([]string{"status", "-o", "json"}, args...)...)
	var s Status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		f.t.Fatalf("%v: %s%s", err, out, errs)
	}
	return code, s
}

func TestStatusOfAHealthyCluster(t *testing.T) {
	out := installed(t).succeeds("status")
	wants(t, out, "All that is installed is ready.", "cloud-api-adaptor-daemonset        DaemonSet   confidential-containers-system  2/2    v0.2.0",
		"outrigger-capi-controller-manager  Deployment  outrigger-capi-system           1/1    v0.2.0", "Ready     1", "small  2      2    2    0         1")
	wantsNot(t, out, "FAIL", "warn", "shop")
}

// TestStatusFinds: each defect is found, with what to do, and only errors make the exit code 1.
func TestStatusFinds(t *testing.T) {
	adaptor := api(apps, SystemNamespace, "daemonsets", adaptorName)
	part := func(f *fakeAPI, path string, at ...string) o {
		object := f.objects[path].(o)
		for _, key := range at {
			object = object[key].(o)
		}
		return object
	}
	gone := func(resource, name string) func(*fakeAPI) {
		return func(f *fakeAPI) { delete(f.objects, api(apps, SystemNamespace, resource, name)) }
	}
	for name, c := range map[string]struct {
		breaks       func(*fakeAPI)
		problem      string
		status       doctor.Status
		detail, want string
	}{
		"half ready": {func(f *fakeAPI) { part(f, adaptor, "status")["numberReady"] = 1 }, "cloud-api-adaptor", doctor.Error, "1 of 2 of", "kubectl logs"},
		"a pod that crashes": {func(f *fakeAPI) {
			part(f, adaptor, "status")["numberReady"] = 1
			f.put(core(SystemNamespace, "pods", "adaptor-x"), o{"metadata": o{"name": "adaptor-x", "namespace": SystemNamespace}, "spec": o{"nodeName": "node7"},
				"status": o{"phase": "Running", "containerStatuses": []any{o{"name": "main", "state": o{"waiting": o{"reason": "CrashLoopBackOff", "message": "back-off 5m"}}}}}})
		}, "cloud-api-adaptor", doctor.Error, "node node7: CrashLoopBackOff: back-off 5m", "kubectl logs -n " + SystemNamespace + " adaptor-x"},
		"rollout":        {func(f *fakeAPI) { part(f, adaptor, "status")["updatedNumberScheduled"] = 1 }, "cloud-api-adaptor", doctor.Error, "1 of 2 are updated", "rollout status daemonset/"},
		"unseen rollout": {func(f *fakeAPI) { part(f, adaptor, "metadata")["generation"] = 2 }, "cloud-api-adaptor", doctor.Error, "is being rolled out", "rollout status"},
		"old relay": {func(f *fakeAPI) {
			relay := api(apps, SystemNamespace, "daemonsets", relayName)
			part(f, relay, "status")["updatedNumberScheduled"] = 1
			part(f, relay, "spec")["updateStrategy"] = o{"type": "OnDelete"}
		}, relayName, doctor.Warning, "earlier version on 1 of 2", "drain"},
		"no relay":   {gone("daemonsets", relayName), "relay", doctor.Error, "is not there", "kubectl apply"},
		"no adaptor": {gone("daemonsets", adaptorName), "adaptor", doctor.Warning, "nodes offer VMs", "outside of pods"},
		"bad setting": {func(f *fakeAPI) {
			f.put(core(SystemNamespace, "configmaps", configMapName), o{"data": o{"CLOUD_PROVIDER": testCloud}})
		}, "settings", doctor.Error, "PAPER_ZONE is required", "edit configmap"},
		"pool": {func(f *fakeAPI) {
			part(f, api(peerPodGroup, "", "podvmpools", "small"), "status")["conditions"] = []any{conditionObject("Ready", "False", "QuotaExceeded", "no more")}
		}, "pool small", doctor.Warning, "QuotaExceeded: no more", "describe podvmpool small"},
		"manager": {func(f *fakeAPI) {
			part(f, api(managerGroup, "", "cloudcontrollermanagers", "cluster"), "status")["conditions"] = []any{conditionObject("Degraded", "True", "RolloutStalled", "no image")}
		}, "manager cluster", doctor.Error, "RolloutStalled: no image", "describe cloudcontrollermanager"},
		"new manager": {func(f *fakeAPI) {
			f.put(api(managerGroup, "", "cloudcontrollermanagers", "cluster"), o{"metadata": o{"name": "cluster"}})
		}, "manager cluster", doctor.Error, "has not looked", "describe"},
		"skew": {func(f *fakeAPI) {
			f.workload("deployments", SystemNamespace, controllerName, "x/peerpod-ctrl:v0.3.0", 1, 1)
		}, "versions", doctor.Warning, "v0.2 (kubectl-outrigger, agent-relay, cloud-api-adaptor, peerpods-webhook, capi-manager), v0.3 (peerpod-ctrl)", "upgrade"},
		"may not see all": {func(f *fakeAPI) { f.forbidden[api(apps, "", "daemonsets")] = true }, "components", doctor.Warning, "only namespace", "account"},
	} {
		t.Run(name, func(t *testing.T) {
			f := installed(t)
			c.breaks(f)
			code, s := f.status()
			if ready := c.status == doctor.Warning; s.Ready != ready || (code == 0) != ready {
				t.Errorf("ready %v, exit code %d", s.Ready, code)
			}
			if !slices.ContainsFunc(s.Problems, func(r doctor.Result) bool {
				return r.Name == c.problem && r.Status == c.status && strings.Contains(r.Detail, c.detail) && strings.Contains(r.Fix, c.want)
			}) {
				t.Errorf("no %s %q of %s with %q in %+v", c.status, c.detail, c.problem, c.want, s.Problems)
			}
		})
	}
}

// TestStatusOfPartsOnly: what was left out does not count, and nothing at all does.
func TestStatusOfPartsOnly(t *testing.T) {
	f := installed(t)
	for _, name := range []string{controllerName, webhookName} {
		delete(f.objects, api(apps, SystemNamespace, "deployments", name))
	}
	delete(f.objects, api(admission, "", "mutatingwebhookconfigurations", webhookName))
	if code, s := f.status(); code != 0 {
		t.Errorf("without controller and webhook: %+v", s.Problems)
	}
	f = newFakeAPI(t)
	f.missing = map[string]bool{api(peerPodGroup, "", "peerpods"): true}
	code, s := f.status()
	if code != 1 || len(s.Problems) != 1 || s.Problems[0].Detail != "nothing of Outrigger is installed" {
		t.Errorf("nothing: exit code %d, %+v", code, s.Problems)
	}
	f.workload("deployments", "outrigger-capi-system", "outrigger-capi-controller-manager", "x/capi-manager:latest", 1, 1)
	if code, s := f.status(); code != 0 {
		t.Errorf("machines only: %+v", s.Problems)
	}
}

// TestStatusWaits: for what a watch tells, and no longer than it may.
func TestStatusWaits(t *testing.T) {
	f := installed(t)
	path := api(apps, SystemNamespace, "daemonsets", adaptorName)
	status := f.objects[path].(o)["status"].(o)
	status["numberReady"] = 0
	f.watches = func(at string) {
		if at == api(apps, "", "daemonsets") {
			status["numberReady"] = 2
		}
	}
	code, out, errs := f.run("status", "--wait", "--timeout=1m")
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	wants(t, out, "2/2", "All that is installed is ready.")
	wantsNot(t, errs, "shop")

	f = installed(t)
	f.objects[path].(o)["status"].(o)["numberReady"] = 0
	code, out, errs = f.run("status", "--wait", "--timeout=300ms")
	if code != 1 {
		t.Errorf("never ready: exit code %d", code)
	}
	wants(t, out, "0/2", "FAIL  cloud-api-adaptor")
	if strings.Count(errs, "waiting for cloud-api-adaptor: 0 of 2 of cloud-api-adaptor-daemonset are ready\n") != 1 {
		t.Errorf("said: %q", errs)
	}
}

func TestVersion(t *testing.T) {
	f := installed(t)
	code, out, errs := f.run("version")
	wants(t, out, "kubectl-outrigger v0.2.1", relayName, "v0.2.0")
	if code != 0 || errs != "" {
		t.Errorf("exit code %d, %q", code, errs)
	}
	set(t, &version.Version, "v0.4.0")
	_, _, errs = f.run("version", "-o", "json")
	wants(t, errs, "v0.2 (agent-relay, ", "v0.4 (kubectl-outrigger)", "docs/versions.md")
	set(t, &version.Version, "devel")
	if _, _, errs = f.run("version"); errs != "" {
		t.Errorf("a version without a number was compared: %q", errs)
	}
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	if code, out, _ := f.run("version", "--client", "--kubeconfig", nowhere); code != 0 || !strings.Contains(out, "devel") {
		t.Errorf("--client: exit code %d, %s", code, out)
	}
	if code, out, errs := f.run("version", "--kubeconfig", nowhere); code != 1 || !strings.Contains(out, "devel") || errs == "" {
		t.Errorf("without a cluster: exit code %d, %s%s", code, out, errs)
	}
}

func TestSplitImage(t *testing.T) {
	for image, want := range map[string][2]string{
		"cloud-api-adaptor":                {"cloud-api-adaptor", "latest"},
		"host:5000/a/b":                    {"b", "latest"},
		"host:5000/a/b:v1@sha256:0123":     {"b", "v1"},
		"a/b@sha256:0123456789abcdef01234": {"b", "sha256:0123456789ab"},
	} {
		if program, version := splitImage(image); program != want[0] || version != want[1] {
			t.Errorf("%s: %s, %s", image, program, version)
		}
	}
}

// TestFlagsOfAllCommands: whoever is impersonated is asked for in each request, and -A is refused where one pod is meant.
func TestFlagsOfAllCommands(t *testing.T) {
	f := installed(t)
	f.pod("web", o{"phase": "Running"})
	var seen int
	for _, command := range [][]string{
		{"status"}, {"version"}, {"describe", "pod", "web"}, {"top"}, {"logs", "web", "--console"}, {"timeline", "web"},
		{"gc", "--dry-run"}, {"check"}, {"migrate", "--from", "capd"}, {"support-bundle", "-f", "-"},
	} {
		f.asked = nil
		f.run(append(command, "--as", "system:serviceaccount:shop:robot", "--as-group", "one", "--as-group", "two")...)
		for _, r := range f.asked {
			seen++
			if r.Header.Get("Impersonate-User") != "system:serviceaccount:shop:robot" || !slices.Equal(r.Header["Impersonate-Group"], []string{"one", "two"}) {
				t.Errorf("%v: %s was asked for as %v", command, r.URL.Path, r.Header)
			}
		}
		if len(f.asked) == 0 {
			t.Errorf("%v asked for nothing", command)
		}
		code, _, errs := f.run(append(command, "-A")...)
		if one := slices.Contains(command, "web"); one != strings.Contains(errs, "give it with -n") || one && code != 1 {
			t.Errorf("%v -A: exit code %d, %s", command, code, errs)
		}
	}
	if seen < 20 {
		t.Errorf("only %d requests", seen)
	}
	code, _, errs := f.run("top", "--as-group", "one")
	if code != 1 || !strings.Contains(errs, "need --as") {
		t.Errorf("a group without a user: exit code %d, %s", code, errs)
	}
	if code, _, errs := f.run("top", "-A", "-n", "shop"); code != 1 || !strings.Contains(errs, "all-namespaces") {
		t.Errorf("-A with -n: exit code %d, %s", code, errs)
	}
}

// TestTopOfOneNamespace counts no other's VMs.
func TestTopOfOneNamespace(t *testing.T) {
	f := newFakeAPI(t)
	f.node("node1", "10")
	f.peerPod("web", o{})
	wants(t, f.succeeds("top", "-n", "shop"), "node1  1    10")
	wants(t, f.succeeds("top", "-n", "bank"), "node1  0    10")
}
