// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const shared = kata + "/shared/containers"

func emptyDir(req *agent.CreateContainerRequest, driver string) {
	at := shared + "/sb/rootfs/local/ed"
	req.Storages = append(req.Storages, &agent.Storage{
		Driver: driver, Source: driver, Fstype: map[string]string{"local": "local", "ephemeral": "tmpfs"}[driver],
		Options: map[string][]string{"local": {"mode=0777"}, "ephemeral": {"size=1m", "mode=0777"}}[driver], MountPoint: at,
	})
	req.OCI.Mounts = append(req.OCI.Mounts, &agent.Mount{Destination: "/ed", Source: at, Type: "local", Options: []string{"rbind", "rprivate", "rw"}})
}

// subPath mounts a part of the emptyDir.
func subPath(req *agent.CreateContainerRequest, driver, within string) {
	emptyDir(req, driver)
	mount := req.OCI.Mounts[len(req.OCI.Mounts)-1]
	mount.Source += "/" + within
	req.Storages = append(req.Storages, &agent.Storage{Driver: "local", Options: []string{"mode=0777"}, MountPoint: mount.Source})
}

// TestPauseContainer is what a shim does with every pod's sandbox container.
func TestPauseContainer(t *testing.T) {
	p := newPod(t)
	req := p.command("sb", "this is not run")
	req.Storages[0].Source = "pause"
	req.OCI.Annotations["io.katacontainers.pkg.oci.container_type"] = "pod_sandbox"
	id := p.run(req)
	app := p.run(p.command("c1", "sleep 1000"))

	status := make(chan int32)
	go func() { status <- p.wait(id, id) }()
	p.must(p.agent.StatsContainer(p.ctx, &agent.StatsContainerRequest{ContainerId: id}))
	p.must(p.agent.UpdateContainer(p.ctx, &agent.UpdateContainerRequest{ContainerId: id, Resources: &agent.LinuxResources{}}))
	p.remove(app)
	p.signal(id, "", unix.SIGKILL)
	if code := <-status; code != 137 {
		t.Errorf("status %d", code)
	}
	p.signal(id, "", unix.SIGKILL)
	if code := p.wait(id, id); code != 137 {
		t.Errorf("status asked again: %d", code)
	}
	p.remove(id)
}

func TestPauseProcessEndsOnSIGTERM(t *testing.T) {
	p := newPod(t)
	req := p.command("sb", "")
	req.OCI.Annotations["io.katacontainers.pkg.oci.container_type"] = "pod_sandbox"
	id := p.run(req)
	p.signal(id, id, unix.SIGTERM)
	if code := p.wait(id, id); code != 0 {
		t.Errorf("status %d", code)
	}
	_, err := p.agent.CreateContainer(p.ctx, p.command("late", "true"))
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("a container in namespaces that are gone: %v", err)
	}
}

func TestInitContainerThenMainShareAnEmptyDir(t *testing.T) {
	for _, driver := range []string{"local", "ephemeral"} {
		t.Run(driver, func(t *testing.T) {
			p := newPod(t)
			first := p.command("init", "echo prepared > /ed/file; ls -ld /ed | cut -c1-10")
			emptyDir(first, driver)
			if got := p.finish(p.run(first), ""); got.out != "drwxrwxrwx\n" || got.code != 0 {
				t.Fatalf("init container: %+v", got)
			}
			p.remove("init")
			for _, id := range []string{"main", "restarted"} {
				req := p.command(id, "cat /ed/file")
				emptyDir(req, driver)
				if got := p.finish(p.run(req), ""); got.out != "prepared\n" {
					t.Errorf("%s: %+v", id, got)
				}
				p.remove(id)
			}
		})
	}
}

// TestSubPath: parts of an emptyDir, and links in it that lead elsewhere.
func TestSubPath(t *testing.T) {
	for _, driver := range []string{"local", "ephemeral"} {
		t.Run(driver, func(t *testing.T) {
			p := newPod(t)
			first := p.command("init", "mkdir /ed/data; echo prepared > /ed/data/file; ln -s /etc /ed/out; ln -s ../../../../../etc /ed/up; ln -s data /ed/within; mkfifo /ed/data/pipe")
			emptyDir(first, driver)
			p.finish(p.run(first), "")
			for within, want := range map[string]string{
				"data": "file\npipe\n", "within": "file\npipe\n", "data/file": "/ed\n", "new/folder": "", "data/pipe": "/ed\n",
			} {
				req := p.command(strings.ReplaceAll(within, "/", "-"), "ls /ed; test \"$(ls /ed)\" || touch /ed/here")
				subPath(req, driver, within)
				if got := p.finish(p.run(req), ""); got.out != want || got.code != 0 {
					t.Errorf("%s: %+v, want %q", within, got, want)
				}
			}
			last := p.command("last", "ls /ed/new/folder; stat -c %a /ed/new/folder")
			emptyDir(last, driver)
			if got := p.finish(p.run(last), ""); got.out != "here\n777\n" {
				t.Errorf("the whole volume: %+v", got)
			}
			for _, within := range []string{"out", "up", "out/new", "up/new"} {
				req := p.command("leaves", "true")
				subPath(req, driver, within)
				if _, err := p.agent.CreateContainer(p.ctx, req); err == nil {
					t.Errorf("%s is mounted, which leads out of the volume", within)
				}
			}
			if _, err := os.Stat("/etc/new"); err == nil {
				os.Remove("/etc/new")
				t.Error("made outside")
			}
		})
	}
}

// TestMountOfNothing: a source that is not in the VM is an error.
func TestMountOfNothing(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "true")
	req.OCI.Mounts = append(req.OCI.Mounts, &agent.Mount{Destination: "/data", Source: "/var/lib/kubelet/pods/u/volumes/kubernetes.io~csi/v/mount", Type: "bind", Options: []string{"rbind"}})
	if _, err := p.agent.CreateContainer(p.ctx, req); err == nil || !strings.Contains(err.Error(), "mount at /data") {
		t.Errorf("error %v, want one about the mount at /data", err)
	}
}

func TestUpdateEphemeralMounts(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "sleep 1000")
	emptyDir(req, "ephemeral")
	id := p.run(req)
	storage := req.Storages[1]
	storage.Options = []string{"size=3m"}
	p.must(p.agent.UpdateEphemeralMounts(p.ctx, &agent.UpdateEphemeralMountsRequest{Storages: []*agent.Storage{storage}}))
	resp, err := p.agent.GetVolumeStats(p.ctx, &agent.VolumeStatsRequest{VolumeGuestPath: storage.MountPoint})
	if err != nil || resp.Usage[0].Total != 3<<20 {
		t.Errorf("volume %v, %v", resp, err)
	}
	p.exec(id, "e", "head -c 2000000 /dev/zero > /ed/f && echo fits")
	if got := p.finish(id, "e"); got.out != "fits\n" {
		t.Errorf("%+v", got)
	}
}

func TestNamespaces(t *testing.T) {
	p := newPod(t)
	const show = "echo $$; for k in ipc uts net pid; do readlink /proc/self/ns/$k; done; echo end; sleep 1000"
	seen := make(map[string][]string)
	for _, id := range []string{"a", "b"} {
		p.run(p.command(id, show))
		seen[id] = strings.Fields(p.until(p.agent.ReadStdout, id, "", "end"))
	}
	a, b := seen["a"], seen["b"]
	if a[0] != "1" || b[0] != "1" || a[4] == b[4] {
		t.Errorf("pid namespaces are not each container's own: %v %v", a, b)
	}
	for i, kind := range map[int]string{1: "ipc", 2: "uts", 3: "net"} {
		own, _ := os.Readlink("/proc/self/ns/" + kind)
		if a[i] != b[i] || a[i] == own {
			t.Errorf("%s: %s and %s, the VM's is %s", kind, a[i], b[i], own)
		}
	}
	p.exec("a", "shm", "echo shared > /dev/shm/x")
	p.finish("a", "shm")
	p.exec("b", "shm", "cat /dev/shm/x")
	if got := p.finish("b", "shm"); got.out != "shared\n" {
		t.Errorf("/dev/shm: %+v", got)
	}
}

func TestSharedPidNamespace(t *testing.T) {
	p := newPod(t)
	victim := p.command("victim", "sleep 4321 & echo started; wait")
	victim.SandboxPidns = true
	p.run(victim)
	p.until(p.agent.ReadStdout, "victim", "", "started")
	viewer := p.command("viewer", "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done; ls /proc/1/root; echo root-$?-seen; kill $(pidof sleep); sleep 1000")
	viewer.SandboxPidns = true
	p.run(viewer)
	out := p.until(p.agent.ReadStdout, "viewer", "", "-seen\n")
	if !strings.Contains(out, "sleep 4321") || !strings.HasPrefix(out, "pause") {
		t.Errorf("processes:\n%s", out)
	}
	if !strings.Contains(out, "root-1-seen\n") {
		t.Errorf("a container sees the pause process's root:\n%s", out)
	}
	if got := p.finish("victim", ""); got.code == 137 {
		t.Errorf("victim: %+v", got)
	}
	// Children of a first process that is gone do not keep its streams open.
	orphans := p.command("orphans", "sleep 5000 & exit 5")
	orphans.SandboxPidns = true
	if got := p.finish(p.run(orphans), ""); got.code != 5 {
		t.Errorf("orphans: %+v", got)
	}
}

func TestSysctlsAreThePods(t *testing.T) {
	p := newPod(t)
	before, err := os.ReadFile(portStart)
	if err != nil {
		t.Fatal(err)
	}
	req := p.command("c1", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start /proc/sys/kernel/shmmni")
	req.OCI.Linux.Sysctl = map[string]string{"net.ipv4.ip_unprivileged_port_start": "11", "kernel.shmmni": "123"}
	if got := p.finish(p.run(req), ""); got.out != "11\n123\n" {
		t.Errorf("%+v", got)
	}
	again := p.command("c2", "cat /proc/sys/net/ipv4/ip_unprivileged_port_start")
	if got := p.finish(p.run(again), ""); got.out != "11\n" {
		t.Errorf("another container of the pod: %+v", got)
	}
	if own, _ := os.ReadFile(portStart); string(own) != string(before) {
		t.Errorf("the VM's is %q, and was %q", own, before)
	}
}

// portStart is a setting of each network namespace.
const portStart = "/proc/sys/net/ipv4/ip_unprivileged_port_start"

func TestWithoutAPodNetwork(t *testing.T) {
	p := newAgent(t)
	netns := p.args[7]
	unix.Unmount(netns, unix.MNT_DETACH)
	os.Remove(netns)
	p.must(p.agent.CreateSandbox(p.ctx, &agent.CreateSandboxRequest{SandboxId: "sb"}))
	req := p.command("c1", "readlink /proc/self/ns/net")
	req.OCI.Linux.Sysctl = map[string]string{"net.ipv4.ip_unprivileged_port_start": "12"}
	before, err := os.ReadFile(portStart)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.WriteFile(portStart, before, 0) })
	own, _ := os.Readlink("/proc/self/ns/net")
	if got := p.finish(p.run(req), ""); got.out != own+"\n" {
		t.Errorf("%+v, the VM's is %s", got, own)
	}
	if now, _ := os.ReadFile(portStart); string(now) != "12\n" {
		t.Errorf("the VM's network, which is the pod's, has %q", now)
	}
	named := p.command("c2", "true")
	named.OCI.Linux.Namespaces = append(named.OCI.Linux.Namespaces, &agent.LinuxNamespace{Type: "network", Path: netns})
	if _, err := p.agent.CreateContainer(p.ctx, named); err == nil || !strings.Contains(err.Error(), netns) {
		t.Errorf("a network namespace that does not exist: %v", err)
	}
}

// copyFile sends a file as a shim does, in chunks of 1 MiB.
func (p *pod) copyFile(path, content string) {
	p.t.Helper()
	data := []byte(content)
	for offset := 0; offset == 0 || offset < len(data); offset += 1 << 20 {
		p.must(p.agent.CopyFile(p.ctx, &agent.CopyFileRequest{
			Path: path, FileSize: int64(len(data)), FileMode: 0o100644, DirMode: 0x800001E8, Offset: int64(offset),
			Data: data[offset:min(len(data), offset+1<<20)],
		}))
	}
}

func (p *pod) copyLink(path, target string) {
	p.t.Helper()
	p.must(p.agent.CopyFile(p.ctx, &agent.CopyFileRequest{Path: path, FileMode: 0o120777, DirMode: 0x800001E8, Data: []byte(target)}))
}

func TestConfigMapUpdate(t *testing.T) {
	p := newPod(t)
	volume := shared + "/c1-0123456789abcdef-cfg"
	p.must(p.agent.CopyFile(p.ctx, &agent.CopyFileRequest{Path: volume, FileMode: 0o40755, DirMode: 0x800001E8}))
	p.copyFile(volume+"/..2026_01_01/key", "old\n")
	p.copyLink(volume+"/..data", "..2026_01_01")
	p.copyLink(volume+"/key", "..data/key")
	req := p.command("c1", "sleep 1000")
	req.OCI.Mounts = append(req.OCI.Mounts, &agent.Mount{Destination: "/cfg", Source: volume, Type: "bind", Options: []string{"rbind", "rprivate", "ro"}})
	id := p.run(req)
	look := func(exec, want string) {
		p.exec(id, exec, "cat /cfg/key")
		if got := p.finish(id, exec); got.out != want {
			t.Errorf("%s: %+v", exec, got)
		}
	}
	look("before", "old\n")
	p.copyFile(volume+"/..2026_01_02/key", "new\n")
	p.copyLink(volume+"/..data", "..2026_01_02")
	look("after", "new\n")
}

// A container plants a link where the node copies to.
func TestCopyFileDoesNotFollowAContainersLink(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "ln -s /etc /ed/etc; ln -s ../../../../../../../etc /ed/up")
	emptyDir(req, "local")
	p.finish(p.run(req), "")
	for _, link := range []string{"etc", "up"} {
		_, err := p.agent.CopyFile(p.ctx, &agent.CopyFileRequest{Path: shared + "/sb/rootfs/local/ed/" + link + "/evil", FileMode: 0o100644})
		if err == nil {
			t.Errorf("copied through %s", link)
		}
	}
	if _, err := os.Stat("/etc/evil"); err == nil {
		os.Remove("/etc/evil")
		t.Error("written outside")
	}
}

func TestPullErrorsAndProgress(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "true")
	req.Storages[0].Source = strings.Replace(p.image, "busybox", "nothere", 1)
	if _, err := p.agent.CreateContainer(p.ctx, req); err == nil || !strings.Contains(err.Error(), "no such image") {
		t.Errorf("missing image: %v", err)
	}
	req.Storages[0].Driver = "nvdimm"
	if _, err := p.agent.CreateContainer(p.ctx, req); status.Code(err) != codes.Unimplemented || !strings.Contains(err.Error(), "nvdimm") {
		t.Errorf("unknown storage: %v", err)
	}
	resp, err := p.guest.PullProgress(p.ctx, &guest.PullProgressRequest{ContainerId: "c1"})
	if err != nil || !resp.Finished {
		t.Errorf("progress of nothing: %v, %v", resp, err)
	}
}

func TestFullDisk(t *testing.T) {
	p := newPod(t)
	images := p.root + "/pull/images"
	if err := unix.Mount("small", images, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	_, err := p.agent.CreateContainer(p.ctx, p.command("c1", "true"))
	if err == nil || !strings.Contains(err.Error(), p.root+"/pull is full") {
		t.Errorf("a full disk: %v", err)
	}
	if left, _ := os.ReadDir(images); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	unix.Unmount(images, 0)
	p.run(p.command("c1", "true"))
}

func TestNoNewPrivilegesHoldsForExecs(t *testing.T) {
	p := newPod(t)
	req := p.command("c1", "sleep 1000")
	req.OCI.Process.NoNewPrivileges = true
	id := p.run(req)
	p.exec(id, "e", "grep NoNewPrivs /proc/self/status")
	if got := p.finish(id, "e"); got.out != "NoNewPrivs:\t1\n" {
		t.Errorf("%+v", got)
	}
}

func TestGuestCalls(t *testing.T) {
	p := newPod(t)
	details, err := p.agent.GetGuestDetails(p.ctx, &agent.GuestDetailsRequest{MemBlockSize: true})
	if err != nil || details.MemBlockSizeBytes != 128<<20 || !details.AgentDetails.SupportsSeccomp {
		t.Errorf("%v, %v", details, err)
	}
	metrics, err := p.agent.GetMetrics(p.ctx, &agent.GetMetricsRequest{})
	if err != nil || !strings.Contains(metrics.GetMetrics(), "\npodvm_agent_containers 0\n") {
		t.Errorf("%v, %v", metrics, err)
	}
	_, err = p.agent.SetPolicy(p.ctx, &agent.SetPolicyRequest{Policy: "package agent_policy"})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("a policy that is not enforced was accepted: %v", err)
	}
	p.must(p.agent.RemoveStaleVirtiofsShareMounts(p.ctx, &agent.RemoveStaleVirtiofsShareMountsRequest{}))
	_, err = p.agent.CreateSandbox(p.ctx, &agent.CreateSandboxRequest{SandboxId: "other"})
	if status.Code(err) != codes.AlreadyExists {
		t.Errorf("second sandbox: %v", err)
	}
}

func TestNetworkCalls(t *testing.T) {
	p := newPod(t)
	up, err := p.agent.UpdateInterface(p.ctx, &agent.UpdateInterfaceRequest{Interface: &agent.Interface{
		Device: "lo", Name: "lo", Mtu: 9000, IPAddresses: []*agent.IPAddress{{Address: "10.1.2.3", Mask: "24"}, {Family: agent.IPFamily_v6, Address: "fd00::1", Mask: "64"}},
	}})
	if got := fmt.Sprint(up); err != nil || up.Mtu != 9000 || !strings.Contains(got, "10.1.2.3") || !strings.Contains(got, "fd00::1") {
		t.Fatalf("%v, %v", up, err)
	}
	routes, err := p.agent.UpdateRoutes(p.ctx, &agent.UpdateRoutesRequest{Routes: &agent.Routes{Routes: []*agent.Route{
		{Gateway: "10.1.2.4", Device: "lo"}, {Dest: "10.9.0.0/16", Device: "lo"},
	}}})
	if err != nil || !strings.Contains(fmt.Sprint(routes), "10.9.0.0/16") {
		t.Errorf("%v, %v", routes, err)
	}
	list, err := p.agent.ListInterfaces(p.ctx, &agent.ListInterfacesRequest{})
	if err != nil || len(list.Interfaces) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if _, err := p.agent.UpdateInterface(p.ctx, &agent.UpdateInterfaceRequest{Interface: &agent.Interface{Name: "eth9"}}); status.Code(err) != codes.NotFound {
		t.Errorf("unknown interface: %v", err)
	}
}

// TestAgentIsKilled checks what the package comment of the agent promises.
func TestAgentIsKilled(t *testing.T) {
	p := newPod(t)
	id := p.run(p.command("c1", "echo before; sleep 1000"))
	p.until(p.agent.ReadStdout, id, "", "before")
	p.cmd.Process.Kill()
	p.cmd.Wait()
	p.conn.Close()
	p.start()
	p.exec(id, "alive", "hostname")
	if got := p.finish(id, "alive"); got.out != "podhost\n" || got.code != 0 {
		t.Errorf("exec afterwards: %+v", got)
	}
	p.must(p.agent.StatsContainer(p.ctx, &agent.StatsContainerRequest{ContainerId: id}))
	fresh := p.run(p.command("c2", "readlink /proc/self/ns/uts"))
	if got := p.finish(fresh, ""); !strings.Contains(got.out, "uts") {
		t.Errorf("new container afterwards: %+v", got)
	}
	p.signal(id, "", unix.SIGKILL)
	if got := p.finish(id, ""); got != (result{code: 255}) {
		t.Errorf("end of an old container: %+v", got)
	}
}

// TestNothingGrows runs many execs and containers in one agent.
func TestNothingGrows(t *testing.T) {
	p := newPod(t)
	id := p.run(p.command("c1", "sleep 1000"))
	round := func(n int) {
		for i := range 70 {
			exec := fmt.Sprintf("e%d-%d", n, i)
			p.exec(id, exec, "echo x")
			p.finish(id, exec)
		}
		for i := range 3 {
			other := fmt.Sprintf("c%d-%d", n, i)
			p.finish(p.run(p.command(other, "echo y")), "")
			p.remove(other)
		}
	}
	round(0)
	fds, goroutines := p.count()
	round(1)
	var nowFDs, nowGoroutines int
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if nowFDs, nowGoroutines = p.count(); nowFDs <= fds && nowGoroutines <= goroutines {
			break
		}
	}
	if nowFDs > fds || nowGoroutines > goroutines {
		t.Errorf("descriptors %d -> %d, goroutines %d -> %d", fds, nowFDs, goroutines, nowGoroutines)
	}
}

func (p *pod) count() (fds, goroutines int) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	p.must(nil, err)
	metrics, err := p.agent.GetMetrics(p.ctx, &agent.GetMetricsRequest{})
	p.must(nil, err)
	_, after, _ := strings.Cut(metrics.Metrics, "\npodvm_agent_goroutines ")
	fmt.Sscan(after, &goroutines)
	return len(list), goroutines
}

func TestBigFileArrivesWhole(t *testing.T) {
	p := newPod(t)
	content := bytes.Repeat([]byte("0123456789abcde\n"), 5<<16)
	p.copyFile(shared+"/big", string(content))
	got, err := os.ReadFile(filepath.Join(p.root, "shared/containers/big"))
	if err != nil || !bytes.Equal(got, content) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}
