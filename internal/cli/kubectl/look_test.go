// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider/plugin"
)

func TestTop(t *testing.T) {
	f := newFakeAPI(t)
	f.node("node1", "10")
	f.node("node2", "5")
	f.peerPod("web", o{"conditions": []any{conditionObject("Ready", "True", "Ready", "")}})
	f.peerPod("bad", o{"lastError": o{"message": "no", "time": ago(time.Minute)}})
	f.peerPod("lost", o{})["spec"].(o)["nodeName"] = "node9"
	f.peerPod("taken", o{})["spec"].(o)["pool"] = o{"name": "small"}
	wants(t, f.succeeds("top"), `NODE          VMS  CAPACITY  PENDING  CONNECTING  READY  FAILED  DELETING
node1         2    10        0        0           1      1       0
node2         0    5         0        0           0      0       0
node9 (gone)  1    -         1        0           0      0       0
`)
	var usage Usage
	if err := json.Unmarshal([]byte(f.succeeds("top", "-o", "json")), &usage); err != nil || len(usage) != 3 || *usage[0].Capacity != 10 || !usage[2].Gone {
		t.Errorf("%+v, %v", usage, err)
	}
}

// left prepares what gc must show and what it must not.
func left(t *testing.T) *fakeAPI {
	f := newFakeAPI(t)
	f.configured()
	f.node("node1", "10")
	f.pod("web", o{})
	f.peerPod("web", o{})
	f.peerPod("orphan", o{})
	f.peerPod("stuck", o{"conditions": []any{conditionObject("Deleting", "True", "Unauthenticated", "token expired")}})["metadata"].(o)["deletionTimestamp"] = ago(time.Hour)
	f.peerPod("leaving", o{})["metadata"].(o)["deletionTimestamp"] = ago(time.Minute)
	waiting := f.peerPod("waiting", o{})["spec"].(o)
	waiting["pool"], waiting["podName"], waiting["podUID"] = o{"name": "small"}, "", ""
	f.put(core("", "persistentvolumes"), o{"items": []any{o{"metadata": o{"name": "pvc-1"}}}})
	f.pod("far", o{})
	f.peerPod("far", o{})["spec"].(o)["nodeName"] = "node9"
	return f
}

func TestGC(t *testing.T) {
	out := left(t).succeeds("gc", "--dry-run")
	wants(t, out, "shop/orphan-abc", "its pod is gone", "shop/stuck-abc", "Unauthenticated: token expired", "shop/far-abc", "its node node9 is gone", "i-nobody", "shop/lost", "d-lost  pvc-2   paper     10", "Nothing removes them")
	wantsNot(t, out, "shop/web-abc", "i-web", "shop/waiting-abc", "leaving", "i-young", "i-foreign", "Cannot see", "d-used", "d-young", "d-foreign")
}

func TestGCNeedsDryRun(t *testing.T) {
	if code, _, errs := newFakeAPI(t).run("gc"); code != 1 {
		t.Errorf("exit code %d, %s", code, errs)
	} else {
		wants(t, errs, "say --dry-run")
	}
}

// TestCloudsThatCannotBeSeen: the reason is said, the rest is shown.
func TestCloudsThatCannotBeSeen(t *testing.T) {
	config := func(keys o) func(*fakeAPI) {
		return func(f *fakeAPI) { f.put(core(SystemNamespace, "configmaps", configMapName), o{"data": keys}) }
	}
	for name, c := range map[string]struct {
		prepare func(*fakeAPI)
		want    string
	}{
		"Secret forbidden":  {func(f *fakeAPI) { f.forbidden[core(SystemNamespace, "secrets", secretName)] = true }, "read Secret"},
		"no ConfigMap":      {func(f *fakeAPI) { delete(f.objects, core(SystemNamespace, "configmaps", configMapName)) }, "read ConfigMap"},
		"plugin of nodes":   {config(o{"CLOUD_PROVIDER": testCloud, plugin.EnableVariable: "true", plugin.PathVariable: "unix:///run/x.sock"}), "as a plugin at unix:///run/x.sock of its nodes"},
		"bad settings":      {config(o{"CLOUD_PROVIDER": testCloud}), "PAPER_ZONE"},
		"unknown":           {config(o{"CLOUD_PROVIDER": "nimbus", "PAPER_ZONE": "north"}), "Unsupported cloud provider: nimbus"},
		"on the nodes":      {config(o{"CLOUD_PROVIDER": "qemu", "PAPER_ZONE": "north"}), "processes of their nodes"},
		"libvirt of a node": {config(o{"CLOUD_PROVIDER": "libvirt", "PAPER_ZONE": "north", "LIBVIRT_URI": "qemu:///system"}), "VMs of provider libvirt are processes of their nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			f := left(t)
			c.prepare(f)
			wants(t, f.succeeds("gc", "--dry-run"), "shop/stuck-abc", "Cannot see the cloud of", c.want)
		})
	}
}

// TestTheClusterChoosesNoProgram: a ConfigMap cannot make this machine load a
// file.
func TestTheClusterChoosesNoProgram(t *testing.T) {
	f := left(t)
	f.put(core(SystemNamespace, "configmaps", configMapName), o{"data": o{"CLOUD_PROVIDER": "evil", plugin.FolderVariable: "/bin", plugin.EnableVariable: "true", plugin.PathVariable: "/bin/evil"}})
	wants(t, f.succeeds("gc", "--dry-run"), "as a plugin at /bin/evil of its nodes: name one on this machine")
	f.env[plugin.FolderVariable] = t.TempDir()
	wants(t, f.succeeds("gc", "--dry-run"), "Unsupported cloud provider: evil")
}

func TestConsole(t *testing.T) {
	f := left(t)
	if out := f.succeeds("logs", "--console", "web"); out != "boot of i-web in north\n" {
		t.Errorf("%q", out)
	}
	if out := f.succeeds("logs", "--console", "--tail", "6", "web"); out != "north\n" {
		t.Errorf("%q", out)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"logs", "web"}, "kubectl logs web"},
		{[]string{"logs", "--console", "--tail", "much", "web"}, `--tail "much"`},
		{[]string{"logs", "--console", "far"}, "outrigger --socket /run/peerpod/hypervisor.sock console s-far"},
	} {
		if code, _, errs := f.run(c.args...); code != 1 {
			t.Errorf("%v: exit code %d", c.args, code)
		} else {
			wants(t, errs, c.want)
		}
	}
	f.pod("new", o{"phase": "Pending"})
	if code, _, errs := f.run("logs", "--console", "new"); code != 1 {
		t.Errorf("exit code %d", code)
	} else {
		wants(t, errs, "has no instance yet", "NoPeerPod")
	}
}
