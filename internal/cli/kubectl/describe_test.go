// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

func TestDescribeAPodThatRuns(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Running"})
	f.pod("other", o{"phase": "Running"})
	f.peerPod("other", o{})
	f.peerPod("web", o{"phase": "Ready", "instance": o{"id": "i-web", "type": "small", "zone": "north", "addresses": []any{"10.0.0.7"}}, "conditions": []any{
		conditionObject("InstanceCreated", "True", "InstanceCreated", ""), conditionObject("Connected", "True", "Connected", ""), conditionObject("Ready", "True", "Ready", "")}})
	out := f.succeeds("describe", "pod", "web")
	wants(t, out, "No problems.", `Pod shop/web  Running  (node node1; runtime class kata-remote)
└─ PeerPod web-abc  Ready  (provider paper; sandbox s-web; node node1; age 60m)
   └─ Instance i-web  InstanceCreated  (type small; zone north; addresses 10.0.0.7)
      └─ Tunnel  Connected
         └─ Agent  Ready
`)
	wantsNot(t, out, "other")
}

func TestDescribePutsProblemsFirst(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Pending", "containerStatuses": []any{o{"name": "main", "state": o{"waiting": o{"reason": "ImagePullBackOff", "message": "no such image"}}}}})
	pp := f.peerPod("web", o{"lastError": o{"class": "quota exceeded", "step": "create-instance", "message": "4 of 4 vCPUs", "hint": "raise the quota", "time": ago(time.Minute)},
		"conditions": []any{conditionObject("InstanceCreated", "False", "QuotaExceeded", "4 of 4 vCPUs")}})
	pp["spec"].(o)["instanceID"] = ""
	f.put(core("shop", "events", "e1"), o{"metadata": o{}, "involvedObject": o{"kind": "Pod", "name": "web", "uid": "uid-web"}, "type": "Warning", "reason": "QuotaExceeded", "message": "4 of 4", "count": 3, "lastTimestamp": ago(time.Minute)})
	f.put(core("shop", "events", "e2"), o{"metadata": o{}, "involvedObject": o{"kind": "Pod", "name": "web", "uid": "of-an-earlier-pod"}, "reason": "Older"})
	out := f.succeeds("describe", "pod", "web")
	wants(t, out, "Problems:", "container main: ImagePullBackOff: no such image", "quota exceeded: step create-instance failed 60s ago: 4 of 4 vCPUs", "-> raise the quota",
		"Instance none yet  QuotaExceeded", "4 of 4 (3 times)")
	wantsNot(t, out, "Older", "Tunnel")
	if strings.Index(out, "Problems:") > strings.Index(out, "Pod shop/web") {
		t.Errorf("the tree comes before the problems:\n%s", out)
	}
}

// TestDescribeSaysWhatWasSaidLast: a pod that was refused before anything claimed its VM has
// an Event with the cause, which is the problem, and not that nobody was asked.
func TestDescribeSaysWhatWasSaidLast(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Pending"})
	said := func(name, component, reason, message string, age time.Duration) {
		f.put(core("shop", "events", name), o{"metadata": o{}, "involvedObject": o{"kind": "Pod", "name": "web", "uid": "uid-web"}, "source": o{"component": component},
			"type": "Warning", "reason": reason, "message": message, "lastTimestamp": ago(age)})
	}
	said("e0", "kubelet", "FailedMount", "no such Secret", time.Hour)
	wants(t, f.succeeds("describe", "pod", "web"), "Pod web: FailedMount: no such Secret", "ready on node node1")
	said("e1", "cloud-api-adaptor", "InvalidArgument", "machine type m9.huge is not offered; choose one of m1.*", 2*time.Minute)
	said("e2", "kubelet", "FailedCreatePodSandBox", "rpc error: code = Unknown desc = failed to start sandbox", time.Minute)
	out := f.succeeds("describe", "pod", "web")
	wants(t, out, "Pod web: InvalidArgument: machine type m9.huge is not offered")
	wantsNot(t, out, "no adaptor was asked", "Pod web: FailedCreatePodSandBox", "ready on node node1")
}

// TestDescribeProblems: each state has the problem that leads to its cause.
func TestDescribeProblems(t *testing.T) {
	connecting := []any{conditionObject("InstanceCreated", "True", "InstanceCreated", ""), conditionObject("Connected", "False", "Connecting", "")}
	for name, c := range map[string]struct {
		prepare func(f *fakeAPI)
		want    []string
	}{
		"no runtime class": {func(f *fakeAPI) { f.pod("web", o{})["spec"] = o{"nodeName": "node1"} }, []string{"NoRuntimeClass", "set spec.runtimeClassName: kata-remote"}},
		"no place": {func(f *fakeAPI) {
			f.pod("web", o{"conditions": []any{conditionObject("PodScheduled", "False", "Unschedulable", "Insufficient kata.peerpods.io/vm")}})["spec"].(o)["nodeName"] = ""
		}, []string{"Unschedulable", "PEERPODS_LIMIT_PER_NODE"}},
		"no PeerPod":      {func(f *fakeAPI) { f.pod("web", o{"phase": "Pending"}) }, []string{"NoPeerPod", "ready on node node1"}},
		"agent is silent": {func(f *fakeAPI) { f.pod("web", o{}); f.peerPod("web", o{"conditions": connecting}) }, []string{"has not answered for 30m", "logs --console web -n shop"}},
		"instance is lost": {func(f *fakeAPI) {
			f.pod("web", o{})
			f.peerPod("web", o{"conditions": []any{conditionObject("Ready", "False", "InstanceLost", "taken back")}})
		}, []string{"InstanceLost: taken back", "delete the pod"}},
		"pod is gone": {func(f *fakeAPI) {
			f.peerPod("web", o{"conditions": []any{conditionObject("Deleting", "True", "Unauthenticated", "token expired")}})["metadata"].(o)["deletionTimestamp"] = ago(time.Hour)
		}, []string{"PodGone", "since 60m: Unauthenticated: token expired", "Pod shop/web  gone"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeAPI(t)
			c.prepare(f)
			wants(t, f.succeeds("describe", "pod", "web"), c.want...)
		})
	}
}

func TestDescribeJSON(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Running"})
	f.peerPod("web", o{})
	var d Description
	if err := json.Unmarshal([]byte(f.succeeds("describe", "pod", "web", "-o", "json")), &d); err != nil {
		t.Fatal(err)
	}
	if d.Problems == nil || d.Tree.Kind != "Pod" || d.Tree.Parts[0].Parts[0].Name != "i-web" {
		t.Errorf("%+v", d)
	}
}

func TestDescribeFailures(t *testing.T) {
	f := newFakeAPI(t)
	f.forbidden[core("shop", "pods", "secret")] = true
	for name, want := range map[string]string{"absent": "no pod absent in namespace shop", "secret": "the test says Forbidden\nask whoever administers"} {
		if code, _, errs := f.run("describe", "pod", name); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
	if code, _, errs := f.run("describe", "pod", "web", "-o", "yaml"); code != 1 || !strings.Contains(errs, `--output "yaml"`) {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// TestDescribePassesNoSequencesOn: messages are others' text, and steer no terminal.
func TestDescribePassesNoSequencesOn(t *testing.T) {
	f := newFakeAPI(t)
	f.shop()
	f.peerPod("web", o{"lastError": o{"class": "other", "message": "\x1b]0;owned\a\x1b[2Jpassword=abcdefgh12345678 is wrong", "time": ago(time.Minute)}})
	out := f.succeeds("describe", "pod", "web")
	wants(t, out, "is wrong", "QuotaExceeded", "4 of")
	wantsNot(t, out, "\x1b", "\a", "abcdefgh12345678", strings.Repeat("x", 200))
}

func TestTimelineOfAPeerPod(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Running"})
	at := func(ms int) string {
		return time.Unix(1_700_000_000, int64(ms)*1e6).UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	older := o{"name": "claim", "time": at(0)}
	node := o{"name": "create-instance", "startTime": at(0), "time": at(1500)}
	guest := o{"name": "kernel", "place": "Guest", "startTime": at(500), "time": at(1200)}
	f.peerPod("web", o{"steps": []any{older, node, guest}})
	wants(t, f.succeeds("timeline", "web"), "shop/web: 1.500 s", "node  claim ", "guest kernel"+strings.Repeat(" ", 22+3)+"0.500   0.700")
	f.peerPod("web", o{"steps": []any{older, node}})
	wants(t, f.succeeds("timeline", "web"), "note: the PeerPod has no steps of the guest")
	f.peerPod("web", o{})
	for name, want := range map[string]string{"web": "no step of the start of pod shop/web is known yet", "absent": "no pod absent in namespace shop"} {
		if code, _, errs := f.run("timeline", name); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
	for _, args := range [][]string{{"timeline"}, {"timeline", "a", "b"}, {"describe", "pod"}, {"logs", "--console"}} {
		if code, _, errs := f.run(args...); code != 1 || !strings.Contains(errs, "want one POD, and not ") || !strings.Contains(errs, "kubectl outrigger "+args[0]) {
			t.Errorf("%q: exit code %d, %s", args, code, errs)
		}
	}
}
