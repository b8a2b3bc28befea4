// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/netprobe"
)

// ran is what was executed in the pods: pod, probe and its target.
type ran [][3]string

// network is a cluster whose pods run at once, and whose probes fail by what fails says.
func network(t *testing.T, fails map[string]string) (*fakeAPI, *ran) {
	f, did := installed(t), &ran{}
	addresses := map[string][]any{clientPod: {o{"ip": "10.0.0.1"}, o{"ip": "fd00::1"}}, serverPod: {o{"ip": "10.0.0.2"}, o{"ip": "fd00::2"}}, ordinaryPod: {o{"ip": "10.0.0.3"}}}
	f.created = func(resource, name string, object o) {
		switch resource {
		case "pods":
			ips := addresses[name]
			object["status"] = o{"phase": "Running", "podIP": ips[0].(o)["ip"], "podIPs": ips, "conditions": []any{conditionObject("Ready", "True", "", "")}}
		case "services":
			object["spec"].(o)["clusterIP"] = "10.96.0.9"
		}
	}
	f.exec = func(_ context.Context, in execTarget, command []string) (string, error) {
		pod := in.pod
		if !slices.Equal(command[:2], netprobe.Command) || len(command) != 4 {
			t.Errorf("pod %s runs %q", pod, command)
		}
		*did = append(*did, [3]string{pod, command[2], command[3]})
		if why := fails[command[2]]; why != "" {
			return "", errors.New(why)
		}
		return "said " + command[2] + "\x1b[31m\n", nil
	}
	return f, did
}

func (f *fakeAPI) connectivity(args ...string) (int, map[string]NetCheck, string) {
	f.t.Helper()
	code, out, errs := f.run(append([]string{"connectivity", "test", "-o", "json"}, args...)...)
	var all []NetCheck
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		f.t.Fatalf("%v: %s%s", err, out, errs)
	}
	checks := map[string]NetCheck{}
	for _, c := range all {
		checks[c.Name] = c
	}
	return code, checks, errs
}

// left are the objects of the test's namespace.
func (f *fakeAPI) left() (paths []string) {
	for path := range f.objects {
		if strings.Contains(path, "outrigger-connectivity-") {
			paths = append(paths, path)
		}
	}
	return paths
}

func TestConnectivity(t *testing.T) {
	f, did := network(t, nil)
	code, checks, errs := f.connectivity("--outside", "192.0.2.1:443")
	if code != 0 || errs != "" || len(checks) != 16 {
		t.Fatalf("exit code %d, %d checks, %s", code, len(checks), errs)
	}
	for name, c := range checks {
		if c.Outcome != passed || strings.ContainsAny(c.Detail, "\x1b\n") {
			t.Errorf("%s: %+v", name, c)
		}
	}
	server, six, plain, service := "10.0.0.2:8080", "[fd00::2]:8080", "10.0.0.3:8080", "10.96.0.9:8080"
	want := ran{
		{clientPod, "echo", server}, {clientPod, "echo", plain}, {ordinaryPod, "echo", server},
		{clientPod, "echo", service}, {ordinaryPod, "echo", service}, {clientPod, "lookup", (*did)[5][2]}, {clientPod, "connect", "192.0.2.1:443"},
		{clientPod, "echo", six}, {clientPod, "mtu", server}, {clientPod, "throughput", server},
		{clientPod, "refused", server}, {ordinaryPod, "refused", server}, {clientPod, "echo", server},
	}
	if !slices.Equal(*did, want) {
		t.Errorf("ran %v, want %v", *did, want)
	}
	if name := (*did)[5][2]; !strings.HasPrefix(name, "server.outrigger-connectivity-") || !strings.HasSuffix(name, ".svc") {
		t.Errorf("looked up %s", name)
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if len(f.removed) != 5 || !strings.HasSuffix(f.removed[0], "/networkpolicies/deny-all") {
		t.Errorf("removed %v", f.removed)
	}
}

// TestConnectivityFails: a failure is told with its reason, and only then the exit code is 1.
func TestConnectivityFails(t *testing.T) {
	f, _ := network(t, map[string]string{netprobe.MTU: "the route has MTU 1500, and packets of more than 1450 bytes are lost"})
	code, checks, _ := f.connectivity()
	mtu, outside := checks["largest packet to a pod in a VM"], checks["pod in a VM to the outside"]
	if code != 1 || mtu.Outcome != failed || !strings.Contains(mtu.Detail, "1450") || mtu.Fix == "" {
		t.Errorf("exit code %d, %+v", code, mtu)
	}
	if outside.Outcome != skipped || !strings.Contains(outside.Detail, "--outside") {
		t.Errorf("%+v", outside)
	}
	if left := f.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	code, out, _ := f.run("connectivity", "test", "--skip", "mtu,policy")
	wants(t, out, "✓ pod in a VM to pod in a VM", "- largest packet to a pod in a VM", "left out by --skip", "\n11 passed, 0 failed, 5 skipped\n")
	if code != 0 || strings.Contains(out, "✗") {
		t.Errorf("skipped: exit code %d, %s", code, out)
	}
}

// TestConnectivityOfAPodThatDoesNotRun says why, without waiting for what will not come, and what follows is skipped.
func TestConnectivityOfAPodThatDoesNotRun(t *testing.T) {
	waiting := func(reason string) o {
		return o{"phase": "Pending", "containerStatuses": []any{o{"name": "probe", "state": o{"waiting": o{"reason": reason, "message": "no such image"}}}}}
	}
	for want, c := range map[string]struct {
		status o
		event  string
		slow   bool
	}{
		"ErrImagePull: no such image":            {status: waiting("ErrImagePull"), slow: true}, // it may be there at the next try
		"ImagePullBackOff: no such image":        {status: waiting("ImagePullBackOff")},
		"Unschedulable: no node":                 {status: o{"phase": "Pending", "conditions": []any{conditionObject("PodScheduled", "False", "Unschedulable", "no node")}}},
		noSandbox + ": quota":                    {status: o{"phase": "Pending"}, event: "quota"},
		noSandbox + ": the time for it was over": {status: o{"phase": "Pending"}, event: "context deadline exceeded", slow: true},
	} {
		f, did := network(t, nil)
		complete, namespace := f.created, ""
		f.created = func(resource, name string, object o) {
			complete(resource, name, object)
			if resource == "namespaces" {
				namespace = name
			}
			if resource != "pods" || name != serverPod {
				return
			}
			object["status"], object["spec"].(o)["nodeName"] = c.status, "node1"
			if c.event != "" {
				object["metadata"].(o)["uid"] = "u1"
				f.objects[core(namespace, "events", "e")] = o{"type": "Warning", "reason": noSandbox, "message": c.event, "involvedObject": o{"uid": "u1"}}
			}
		}
		limit := "--timeout=1m"
		if strings.HasPrefix(want, "Unschedulable") {
			limit = "--timeout=10s" // it is waited for half a second
		}
		if c.slow {
			limit = "--timeout=300ms"
		}
		began := time.Now()
		code, checks, _ := f.connectivity(limit)
		if took := time.Since(began); !c.slow && took > 9*time.Second {
			t.Errorf("%s: it took %s", want, took)
		}
		server, way := checks["pod server"], checks["pod in a VM to pod in a VM"]
		if code != 1 || server.Outcome != failed || !strings.Contains(server.Detail, want) || way.Outcome != skipped {
			t.Errorf("%s: exit code %d, %+v, %+v", want, code, server, way)
		}
		if len(*did) > 0 || len(f.left()) > 0 {
			t.Errorf("%s: ran %v, left %v", want, *did, f.left())
		}
	}
}

// TestConnectivityLeavesNothing: not after an interrupt, not after an error; with --keep all of it.
func TestConnectivityLeavesNothing(t *testing.T) {
	f, did := network(t, nil)
	run := f.exec
	f.exec = func(ctx context.Context, in execTarget, command []string) (string, error) {
		self, err := os.FindProcess(os.Getpid())
		if err = errors.Join(err, self.Signal(os.Interrupt)); err != nil {
			t.Error(err)
		}
		<-ctx.Done()
		return run(ctx, in, command)
	}
	code, out, errs := f.run("connectivity", "test")
	if code != 1 || len(*did) != 1 || len(f.left()) > 0 {
		t.Errorf("interrupted: exit code %d, ran %v, left %v\n%s%s", code, *did, f.left(), out, errs)
	}

	f, _ = network(t, nil)
	f.forbidden["/api/v1/namespaces"] = true
	if code, _, errs := f.run("connectivity", "test"); code != 1 || !strings.Contains(errs, "make what the test needs") {
		t.Errorf("forbidden: exit code %d, %s", code, errs)
	}

	f, _ = network(t, nil)
	code, _, errs = f.connectivity("--keep", "--image", "mine:1", "--runtime-class", "other")
	if code != 0 || !strings.Contains(errs, "kubectl delete namespace outrigger-connectivity-") || len(f.left()) != 5 {
		t.Errorf("--keep: exit code %d, %s, left %v", code, errs, f.left())
	}
	for _, path := range f.left() {
		if filepath.Base(filepath.Dir(path)) != "pods" {
			continue
		}
		text, _ := json.Marshal(f.objects[path])
		if inVM := filepath.Base(path) != ordinaryPod; inVM != strings.Contains(string(text), `"runtimeClassName":"other"`) || !strings.Contains(string(text), `"image":"mine:1"`) {
			t.Errorf("%s: %s", path, text)
		}
	}
}

func TestConnectivityRefuses(t *testing.T) {
	f, _ := network(t, nil)
	for _, args := range [][]string{{"--skip", "weather"}, {"-n", "shop"}, {"-A"}, {"-o", "xml"}} {
		if code, _, errs := f.run(append([]string{"connectivity", "test"}, args...)...); code != 1 || errs == "" || len(f.left()) > 0 {
			t.Errorf("%v: exit code %d, %s", args, code, errs)
		}
	}
	delete(f.objects, api(apps, SystemNamespace, "daemonsets", relayName))
	if code, _, errs := f.run("connectivity", "test"); code != 1 || !strings.Contains(errs, "give --image") {
		t.Errorf("no image: exit code %d, %s", code, errs)
	}
}

// TestTransientSandboxes: what the kubelet tries again with more luck is waited for.
func TestTransientSandboxes(t *testing.T) {
	for text, want := range map[string]bool{
		"the VM was not ready within the 30s that the caller gave it": false, "the adaptor is shutting down": false,
		"dial unix /run/peerpod/hypervisor.sock: connect: no such file or directory": false, "no instance type has 99 CPUs": true,
	} {
		d := &Description{Events: []Event{{Reason: noSandbox, Message: "Failed to create pod sandbox: " + text}}}
		if d.hopeless(true) != want {
			t.Errorf("%q: hopeless %v", text, !want)
		}
	}
}
