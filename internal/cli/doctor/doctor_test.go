// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func machine(t *testing.T, files map[string]string) Machine {
	t.Helper()
	m := Machine{FS: t.TempDir(), QEMU: "no-such-qemu", Images: []string{filepath.Join(t.TempDir(), "podvm")}, Root: "/nonexistent/root"}
	for name, data := range files {
		path := filepath.Join(m.FS, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func TestMachineChecks(t *testing.T) {
	const caps = "Name:\tx\nCapEff:\t000001fffeffffff\n"
	for _, test := range []struct {
		name  string
		files map[string]string
		check func(Machine) Result
		want  Status
	}{
		{"all capabilities", map[string]string{"proc/self/status": caps}, func(m Machine) Result { return m.root(t.Context()) }, OK},
		{"no capabilities", map[string]string{"proc/self/status": "CapEff:\t0000000000000000\n"}, func(m Machine) Result { return m.root(t.Context()) }, Error},
		{"no qemu", nil, func(m Machine) Result { return m.qemu(t.Context()) }, Error},
		{"no kvm", nil, func(m Machine) Result { return m.kvm(t.Context()) }, Warning},
		{"pvm", map[string]string{"dev/kvm": "", "sys/module/kvm_pvm/x": ""}, func(m Machine) Result { return m.kvm(t.Context()) }, Warning},
		{"kvm", map[string]string{"dev/kvm": "", "proc/cpuinfo": "flags : fpu vmx \n"}, func(m Machine) Result { return m.kvm(t.Context()) }, OK},
		{"no image", nil, func(m Machine) Result { return m.image(t.Context()) }, Error},
		{"no tap", nil, func(m Machine) Result { return m.tun(t.Context()) }, Error},
		{"tap", map[string]string{"dev/net/tun": ""}, func(m Machine) Result { return m.tun(t.Context()) }, OK},
		{"forwarding", map[string]string{"proc/sys/net/ipv4/ip_forward": "1\n"}, func(m Machine) Result { return m.forwarding(t.Context()) }, OK},
		{"little memory", map[string]string{"proc/meminfo": "MemTotal: 9 kB\nMemAvailable: 1024 kB\n"}, func(m Machine) Result { return m.memory(t.Context()) }, Warning},
		{"memory", map[string]string{"proc/meminfo": "MemAvailable: 8388608 kB\n"}, func(m Machine) Result { return m.memory(t.Context()) }, OK},
		{"disk of a folder that is not there yet", nil, func(m Machine) Result { return m.disk(t.Context()) }, OK},
		{"disk of VMs that is not there yet", nil, func(m Machine) Result { m.Instances = "/nonexistent/vms"; return m.imageDisk(t.Context()) }, OK},
	} {
		got := test.check(machine(t, test.files))
		if got.Status != test.want || got.Detail == "" || got.Status == Error && got.Fix == "" {
			t.Errorf("%s: %+v, want %s", test.name, got, test.want)
		}
	}
}

func TestReport(t *testing.T) {
	check := func(name string, r Result) Check {
		return Check{name, func(context.Context) Result { return r }}
	}
	for _, test := range []struct {
		results []Result
		want    int
	}{
		{[]Result{Good("fine")}, 0},
		{[]Result{Good("fine"), Warn("do", "so so")}, 1},
		{[]Result{Fail("do", "bad"), Warn("do", "so so"), Good("fine")}, 2},
	} {
		var checks []Check
		for _, r := range test.results {
			checks = append(checks, check("c", r))
		}
		if got := Run(t.Context(), checks).ExitCode(); got != test.want {
			t.Errorf("%v: exit code %d, want %d", test.results, got, test.want)
		}
	}
	report := Run(t.Context(), []Check{check("qemu", Good("7.2")), check("image", Fail("make podvm", "none"))})
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"status":"error","results":[{"name":"qemu","status":"ok","detail":"7.2"},{"name":"image","status":"error","detail":"none","fix":"make podvm"}]}`
	if diff := cmp.Diff(want, string(data)); diff != "" {
		t.Error(diff)
	}
	var text bytes.Buffer
	report.Print(&text)
	wantText := "ok    qemu         7.2\nFAIL  image        none\n                   -> make podvm\nThis machine cannot run pods in VMs yet: fix what FAIL says.\n"
	if diff := cmp.Diff(wantText, text.String()); diff != "" {
		t.Error(diff)
	}
}

func TestParseVersion(t *testing.T) {
	for line, want := range map[string]int{"QEMU emulator version 7.2.22 (Debian 1:7.2)": 7, "QEMU emulator version 10.0.0": 10, "": 0} {
		if got := parseVersion(line); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
}
