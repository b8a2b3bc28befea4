// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/guest/reaper"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
)

// specAgent can build specs in a folder, with everything allowed.
func specAgent(t *testing.T) (*Agent, *sandbox) {
	t.Helper()
	dir := t.TempDir()
	a := &Agent{
		cfg: Config{Root: filepath.Join(dir, "root"), PodNetNS: filepath.Join(dir, "podns")}, log: slog.New(slog.DiscardHandler),
		limits: limits{bounding: ^uint64(0)},
	}
	sb := &sandbox{id: "sb", dir: filepath.Join(dir, "sandbox"), dns: true, pause: &reaper.Child{PID: 42}}
	return a, sb
}

func build(t *testing.T, a *Agent, sb *sandbox, req *agent.CreateContainerRequest) (*oci.Spec, error) {
	t.Helper()
	return a.buildSpec(newContainer(req.ContainerId, t.TempDir()), sb, req, nil)
}

func TestRecordedRequestBecomesARunnableSpec(t *testing.T) {
	a, sb := specAgent(t)
	spec, err := build(t, a, sb, recorded(t))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(spec.Root.Path, a.cfg.Root) {
		t.Errorf("root folder %s", spec.Root.Path)
	}
	i := slices.IndexFunc(spec.Mounts, func(m oci.Mount) bool { return m.Destination == "/ed" })
	if m := spec.Mounts[i]; m.Type != "bind" || !strings.HasPrefix(m.Source, a.cfg.Root) {
		t.Errorf("emptyDir %+v", m)
	} else if _, err := os.Stat(m.Source); err != nil {
		t.Error(err)
	}
	var kinds []string
	for _, ns := range spec.Linux.Namespaces {
		if ns.Type != oci.CgroupNamespace {
			kinds = append(kinds, string(ns.Type)+" "+ns.Path)
		}
	}
	if diff := cmp.Diff([]string{"ipc /proc/42/ns/ipc", "mount ", "pid ", "uts /proc/42/ns/uts"}, kinds); diff != "" {
		t.Error(diff)
	}
	for _, m := range spec.Mounts {
		if m.Destination == "/etc/resolv.conf" && strings.HasPrefix(m.Source, sb.dir) {
			t.Error("the caller's resolv.conf was replaced by the sandbox's")
		}
	}
}

func TestPodNetNSIsUsedWhenItExists(t *testing.T) {
	a, sb := specAgent(t)
	req := recorded(t)
	req.OCI.Linux.Sysctl = map[string]string{"net.ipv4.ip_forward": "1", "kernel.shmmni": "5"}
	a.cfg.ProcSys = t.TempDir()
	file := filepath.Join(a.cfg.ProcSys, "net/ipv4/ip_forward")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	if spec, err := build(t, a, sb, req); err != nil || spec.Linux.Sysctl["net.ipv4.ip_forward"] != "" || spec.Linux.Sysctl["kernel.shmmni"] != "5" {
		t.Errorf("without one: %v", err)
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "1" {
		t.Errorf("the VM's network, which is the pod's, has ip_forward %q, %v", got, err)
	}
	if err := os.WriteFile(a.cfg.PodNetNS, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	spec, err := build(t, a, sb, req)
	if err != nil || !hasNamespace(spec, oci.NetworkNamespace) || spec.Linux.Sysctl["net.ipv4.ip_forward"] != "1" {
		t.Errorf("with one: %v, %v", spec.Linux, err)
	}
}

func TestLimitsTakeOutWhatCannotBeHad(t *testing.T) {
	process := func() *oci.Process {
		score := -5
		return &oci.Process{
			OOMScoreAdj: &score, Rlimits: []oci.POSIXRlimit{{Type: "RLIMIT_CORE"}},
			Capabilities: &oci.LinuxCapabilities{Bounding: []string{"CAP_CHOWN", "CAP_SYS_RESOURCE", "CAP_NEW_ONE"}},
		}
	}
	all := process()
	limits{bounding: ^uint64(0)}.apply(all)
	if diff := cmp.Diff(process(), all); diff != "" {
		t.Errorf("a full agent changed something: %s", diff)
	}
	less := process()
	limits{bounding: ^uint64(1 << unix.CAP_SYS_RESOURCE)}.apply(less)
	if less.OOMScoreAdj != nil || less.Rlimits != nil || !slices.Equal(less.Capabilities.Bounding, []string{"CAP_CHOWN", "CAP_NEW_ONE"}) {
		t.Errorf("%+v", less)
	}
}

func TestMissingParts(t *testing.T) {
	a, sb := specAgent(t)
	for name, req := range map[string]*agent.CreateContainerRequest{
		"no spec":    {ContainerId: "c"},
		"no process": {ContainerId: "c", OCI: &agent.Spec{}},
		"no command": {ContainerId: "c", OCI: &agent.Spec{Process: &agent.Process{}}},
		"no device": {ContainerId: "c", OCI: &agent.Spec{Process: &agent.Process{Args: []string{"x"}}},
			Devices: []*agent.Device{{VmPath: "/dev/nothere", ContainerPath: "/dev/x"}}},
	} {
		if _, err := build(t, a, sb, req); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestDevicesMayBeUsed(t *testing.T) {
	a, sb := specAgent(t)
	spec, err := build(t, a, sb, &agent.CreateContainerRequest{
		ContainerId: "c", OCI: &agent.Spec{Process: &agent.Process{Args: []string{"x"}}},
		Devices: []*agent.Device{{VmPath: "/dev/null", ContainerPath: "/dev/x"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	rule := spec.Linux.Resources.Devices[0]
	if !rule.Allow || rule.Type != "c" || *rule.Major != 1 || *rule.Minor != 3 || spec.Linux.Devices[0].Path != "/dev/x" {
		t.Errorf("%+v, %+v", rule, spec.Linux.Devices)
	}
	spec, err = build(t, a, sb, &agent.CreateContainerRequest{ContainerId: "c", OCI: &agent.Spec{Process: &agent.Process{Args: []string{"x"}}, Linux: &agent.Linux{
		Devices:   []*agent.LinuxDevice{{Path: "/dev/y", Type: "b", Major: 254, Minor: 16, FileMode: 0o660}},
		Resources: &agent.LinuxResources{Devices: []*agent.LinuxDeviceCgroup{{Allow: true, Type: "b", Major: 254, Minor: 16, Access: "r"}}},
	}}})
	if err != nil || len(spec.Linux.Resources.Devices) != 1 || spec.Linux.Resources.Devices[0].Access != "r" || spec.Linux.Devices[0].FileMode.Perm() != 0o660 {
		t.Errorf("a device that may be read only: %v, %+v", err, spec.Linux)
	}
}

func TestFSGroup(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to change owners; run: sudo make test")
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"sub/run": "", "sub/plain": ""})
	os.Chmod(filepath.Join(dir, "sub/run"), 0o700)
	os.Chmod(filepath.Join(dir, "sub/plain"), 0o600)
	os.Symlink("/etc/passwd", filepath.Join(dir, "link"))
	if err := applyFSGroup(dir, &agent.FSGroup{GroupId: 4321}); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{
		"sub": fs.ModeDir | fs.ModeSetgid | 0o775, "sub/run": 0o770, "sub/plain": 0o660,
	} {
		info, err := os.Stat(filepath.Join(dir, path))
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, want %v", path, info.Mode(), want)
		}
	}
	if info, _ := os.Stat("/etc/passwd"); info.Mode().Perm()&0o020 != 0 {
		t.Error("a link was followed")
	}
	if !groupOwns(dir, 4321) || groupOwns(dir, 1) {
		t.Error("OnRootMismatch would do it again")
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{"2M": 2 << 20, "1Gi": 1 << 30, "2048kB": 2 << 20, "2MB": 2 << 20, "5": 5, "": 0, "x": 0, "-1M": 0} {
		if got := parseSize(text); got != want {
			t.Errorf("parseSize(%q) = %d, want %d", text, got, want)
		}
	}
}

func TestContainerIDs(t *testing.T) {
	for id, want := range map[string]bool{"a": true, "A-b_c.d+e": true, strings.Repeat("0", 64): true, "": false, ".": false, "..": false, "../x": false, "a/b": false, "-f": false, "a b": false} {
		if validID(id) != want {
			t.Errorf("validID(%q) = %v", id, !want)
		}
	}
}
