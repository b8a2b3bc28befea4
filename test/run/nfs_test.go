// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/test/stand"
)

// ganesha serves a folder at /export, as versions 3 and 4 of NFS, with a grace period of 5 s.
const ganesha = `NFS_CORE_PARAM { Protocols = 3, 4; NFS_Port = 2049; MNT_Port = 20048; Enable_NLM = false; Enable_RQUOTA = false; Enable_UDP = false; }
NFS_KRB5 { Active_krb5 = false; }
NFSv4 { Grace_Period = 5; Lease_Lifetime = 5; RecoveryBackend = fs; RecoveryRoot = %[1]s/recovery; Only_Numeric_Owners = true; }
EXPORT { Export_Id = 1; Path = %[1]s/export; Pseudo = /export; Access_Type = RW; Squash = No_Root_Squash; SecType = sys; Protocols = 3, 4; Transports = TCP; FSAL { Name = VFS; } }
`

// nfsServer is one outside, whose files are in folder.
type nfsServer struct {
	*stand.Process
	folder string
}

func startNFS(t *testing.T) *nfsServer {
	t.Helper()
	for _, program := range []string{"ganesha.nfsd", "rpcbind"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Fatalf("%s is not installed: run `make setup`", program)
		}
	}
	dir := stand.Dir(t)
	for _, folder := range []string{dir + "/export/a/b", "/run/rpcbind"} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir+"/ganesha.conf", fmt.Appendf(nil, ganesha, dir), 0o600); err != nil {
		t.Fatal(err)
	}
	// Version 3 does not start without it.
	stand.Start(t, stand.Daemon{Path: "ip", Args: []string{"netns", "exec", "outside", "rpcbind", "-f"}, Log: dir + "/rpcbind.log", Socket: "/run/rpcbind.sock"})
	s := &nfsServer{folder: dir + "/export"}
	s.Process = stand.Start(t, stand.Daemon{
		Path: "ip", Args: []string{"netns", "exec", "outside", "ganesha.nfsd", "-F", "-f", dir + "/ganesha.conf", "-L", dir + "/ganesha.log", "-p", dir + "/pid"}, Log: dir + "/out.log",
	})
	stand.ShowOnFailure(t, dir+"/ganesha.log")
	s.await(t)
	return s
}

func (s *nfsServer) await(t *testing.T) {
	t.Helper()
	eventually(t, func() error {
		conn, err := net.Dial("tcp", outsideV4+":2049")
		if err == nil {
			conn.Close()
		}
		return err
	})
}

func (s *nfsServer) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// nfsMount is what the shim makes of a mount of the node's (internal/peerpods/shim).
func nfsMount(at, export, within string, options ...string) podclient.Mount {
	options = append(options, "hard", "proto=tcp", "timeo=600", "retrans=2", "sec=sys", "addr="+outsideV4)
	return podclient.Mount{Type: podclient.MountNetwork, Destination: at, SubPath: within, Storage: &agent.Storage{
		Driver: "nfs", Fstype: "nfs4", Source: outsideV4 + ":" + export, Options: options, MountPoint: podclient.GuestNetwork + "/" + strings.Join(options[:1], ""),
	}}
}

func TestNFS(t *testing.T) {
	n := newNode(t)
	outside(t)
	s := startNFS(t)
	first, second := n.newPod(t, "first"), n.newPod(t, "second")
	plain, _, _ := second.container(t, "plain", "sleep", "1000000")
	if out, code := run(t, plain, "grep", "-E", "^(nfs|sunrpc)", "/proc/modules"); code != 1 {
		t.Errorf("a VM without a network file system has its modules: %s", out)
	}
	const v4 = "vers=4.2"
	one := podclient.ContainerSpec{Name: "one", Args: []string{"sleep", "1000000"}, Mounts: []podclient.Mount{
		nfsMount("/whole", "/export", "", v4), nfsMount("/part", "/export", "a/b", v4),
	}}
	writer, _, _ := first.containerWith(t, one, nil)

	t.Run("Written", func(t *testing.T) {
		mustRun(t, writer, "sh", "-c", "echo one >/whole/first; echo two >/part/second; chown 1234:4321 /whole/first")
		if got := s.read(t, "first") + s.read(t, "a/b/second"); got != "one\ntwo\n" {
			t.Errorf("the server has %q", got)
		}
		info, err := os.Stat(s.folder + "/first")
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != 1234 || info.Sys().(*syscall.Stat_t).Gid != 4321 {
			t.Errorf("%+v, %v; want 1234:4321", info, err)
		}
		t.Logf("the VM's mount table:\n%s", mustRun(t, writer, "grep", " nfs", "/proc/self/mountinfo"))
	})
	t.Run("PodsNetwork", func(t *testing.T) {
		// proc_net_tcp: the port of the remote address in hexadecimal, 01 is ESTABLISHED. Sockets of the VM's own network are not here.
		if table := mustRun(t, writer, "cat", "/proc/net/tcp"); !strings.Contains(table, ":0801 01 ") {
			t.Errorf("no connection to the server in the pod's network:\n%s", table)
		}
	})
	t.Run("Shared", func(t *testing.T) {
		two := one
		two.Name, two.Mounts = "two", []podclient.Mount{nfsMount("/whole", "/export", "", v4)}
		two.Mounts[0].ReadOnly = true
		reader, _, _ := first.containerWith(t, two, nil)
		if got := mustRun(t, reader, "cat", "/whole/first"); got != "one\n" {
			t.Errorf("another container of the pod reads %q", got)
		}
		if out, code := run(t, reader, "touch", "/whole/third"); code == 0 || !strings.Contains(out, "Read-only file system") {
			t.Errorf("a read-only mount was written: %s", out)
		}
	})
	t.Run("Locks", func(t *testing.T) { nfsLocks(t, first, second) })
	t.Run("Refused", func(t *testing.T) { nfsRefusals(t, second) })
	t.Run("Version3", func(t *testing.T) {
		m := nfsMount("/whole", "/export", "", "vers=3", "nolock", "mountport=20048", "mountproto=tcp", "port=2049", "mountaddr="+outsideV4)
		m.Storage.Source, m.Storage.Fstype = outsideV4+":"+s.folder, "nfs"
		c, _, _ := second.containerWith(t, podclient.ContainerSpec{Name: "old", Args: []string{"sleep", "1000000"}, Mounts: []podclient.Mount{m}}, nil)
		mustRun(t, c, "sh", "-c", "echo three >/whole/third")
		if got := s.read(t, "third"); got != "three\n" {
			t.Errorf("the server has %q", got)
		}
	})
	t.Run("Restarted", func(t *testing.T) { s.restarted(t, writer) })
	t.Run("Gone", func(t *testing.T) { s.gone(t, n, first, second, writer) })
}

// nfsLocks: a lock of one pod is one for the other, since the server has two clients.
func nfsLocks(t *testing.T, first, second *pod) {
	spec := podclient.ContainerSpec{Name: "locks", Image: first.node.registry.WithNettool, Args: []string{"sleep", "1000000"}, Mounts: []podclient.Mount{nfsMount("/whole", "/export", "", "vers=4.2")}}
	holder, _, _ := first.containerWith(t, spec, nil)
	other, _, _ := second.containerWith(t, spec, nil)
	process, out := begin(t, holder, "sleep 1000000 | nettool lock /whole/lock")
	out.wait(t, "locked\n")
	if text, code := run(t, other, "sh", "-c", "nettool lock /whole/lock </dev/null"); code == 0 || !strings.Contains(text, "flock: resource temporarily unavailable") {
		t.Errorf("exit code %d of another pod: %s", code, text)
	}
	mustRun(t, holder, "killall", "sleep") // the end of its input: a kernel does not wait for the unlock of a program that is killed
	if _, err := process.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustRun(t, other, "sh", "-c", "nettool lock /whole/lock </dev/null")
	const id = "/sys/module/nfs/parameters/nfs4_unique_id" // with equal host names it alone tells them apart
	if a, b := mustRun(t, holder, "cat", id), mustRun(t, other, "cat", id); a == b || len(a) < 20 {
		t.Errorf("the VMs' names as clients: %q and %q", a, b)
	}
}

// begin runs a command of the shell that does not end at once.
func begin(t *testing.T, c *podclient.Container, command string) (*podclient.Process, *output) {
	t.Helper()
	process, err := c.Exec(t.Context(), podclient.ExecSpec{Args: []string{"sh", "-c", command}, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	out := newOutput()
	process.Stream(podclient.IO{Stdout: out, Stderr: out})
	return process, out
}

// nfsRefusals are named.
func nfsRefusals(t *testing.T, p *pod) {
	for name, c := range map[string]struct {
		export, want string
		options      []string
	}{
		"port":    {"/export", "cannot be reached from the pod's network: dial tcp " + outsideV4 + ":2050: connect: connection refused", []string{"vers=4.2", "port=2050"}},
		"server":  {"/export", "cannot be reached from the pod's network: dial tcp 198.51.100.3:2049: connect: no route to host", []string{"vers=4.2"}},
		"export":  {"/none", "the server has no such export", []string{"vers=4.1"}},
		"option":  {"/export", "does not know one of the options", []string{"vers=4.0", "no-such-option"}},
		"subPath": {"/export", "/none: no such file or directory", []string{"vers=4.0"}},
	} {
		m := nfsMount("/data", c.export, "", c.options...)
		switch m.Storage.MountPoint += name; name {
		case "subPath":
			m.SubPath = "none"
		case "server":
			m.Storage.Options = append(m.Storage.Options, "addr=198.51.100.3")
		}
		_, err := p.CreateContainer(t.Context(), podclient.ContainerSpec{Name: name, Image: p.node.registry.Ref, Args: []string{"true"}, Mounts: []podclient.Mount{m}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// restarted: what is written while the server is away is there when it is back.
func (s *nfsServer) restarted(t *testing.T, writer *podclient.Container) {
	s.Stop(syscall.SIGKILL)
	process, out := begin(t, writer, "echo began; echo meanwhile >/whole/fourth; cat /whole/fourth")
	out.wait(t, "began\n")
	s.Again(t)
	s.await(t)
	if code, err := process.Wait(t.Context()); err != nil || code != 0 || out.String() != "began\nmeanwhile\n" {
		t.Fatalf("exit code %d, %v, %q", code, err, out)
	}
	if got := s.read(t, "fourth"); got != "meanwhile\n" {
		t.Errorf("the server has %q", got)
	}
}

// gone: a pod that has written to a server that is gone ends, and one whose server is there leaves all
// that it has written.
func (s *nfsServer) gone(t *testing.T, n *node, first, second *pod, writer *podclient.Container) {
	// The file is open, so that nothing has been sent yet.
	_, held := begin(t, writer, "exec 3>/whole/fifth; echo last >&3; echo held; sleep 1000000")
	held.wait(t, "held\n")
	first.stop(t)
	if got := s.read(t, "fifth"); got != "last\n" {
		t.Errorf("the server has %q", got)
	}
	c, _, _ := second.containerWith(t, podclient.ContainerSpec{Name: "late", Args: []string{"sleep", "1000000"}, Mounts: []podclient.Mount{nfsMount("/whole", "/export", "", "vers=4.2")}}, nil)
	mustRun(t, c, "touch", "/whole/sixth")
	s.Stop(syscall.SIGKILL)
	_, out := begin(t, c, "echo began; echo lost >/whole/sixth")
	out.wait(t, "began\n")
	began := time.Now()
	second.stop(t)
	t.Logf("the pod without its server ended after %s", time.Since(began).Round(time.Second))
	n.wantNothingLeft(t)
}
