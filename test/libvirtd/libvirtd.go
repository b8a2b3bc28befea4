// SPDX-License-Identifier: Apache-2.0

// Package libvirtd starts real libvirt daemons with QEMU for tests. Each has a
// mount namespace with folders, sockets and devices of its own, a network with
// NAT and DHCP, and a storage pool that holds the pod VM image. Everything is
// gone when the test ends, however it ends.
//
// The daemon lives in the network and PID namespaces of the test, so the
// package's TestMain must be [testns.Main].
package libvirtd

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// Names of what every daemon has.
const (
	Pool    = "podpool"
	Network = "podnet"
	// Volume is the base volume, a copy of the image podvm.qcow2.
	Volume = "podvm-base.qcow2"
	// Firmware is Debian's UEFI, which the image boots with.
	Firmware = "/usr/share/OVMF/OVMF_CODE_4M.fd"
)

// Options are what a test may want otherwise.
type Options struct {
	// PoolSize, if not zero, puts the pool on a file system of so many bytes.
	PoolSize int64
	// Image is the file to make the base volume from; by default podvm.qcow2
	// in the folder OUTRIGGER_PODVM_DIR.
	Image string
	// NAT gives the network firewall rules, as libvirt's own default has: a hundred calls
	// of iptables. Without, VMs are reached from other networks.
	NAT bool
	// TLS makes the daemon listen on TCP for clients with a certificate.
	TLS bool
	// Listen is the address for these, 127.0.0.1 by default.
	Listen string
}

// Daemon is a running libvirtd.
type Daemon struct {
	// Dir is short and holds everything: run, lib, cache, log, etc, pool.
	Dir string
	// Socket is that of the daemon, and URI names it.
	Socket, URI string
	// PoolDir is the pool's folder.
	PoolDir string
	// Bridge is the network's interface on this node, Gateway its address.
	Bridge, Gateway string
	// TLS is set with Options.TLS.
	TLS *TLS

	house *house
	// ended is closed when the process has ended.
	process *os.Process
	ended   chan struct{}
	// orphaned are folders that libvirt does not remove itself.
	orphaned []string
}

// Start starts a daemon and makes its network, pool and base volume. A test is
// skipped where it cannot be, with a word on how to run it.
func Start(t testing.TB, o Options) *Daemon {
	t.Helper()
	testns.RequireRoot(t)
	if !testns.Inside() {
		t.Fatal("libvirtd changes the machine's network: the package's TestMain must be testns.Main")
	}
	if o.Image == "" {
		o.Image = filepath.Join(ImageDir(t), "podvm.qcow2")
	}
	dir := stand.Dir(t)
	d := &Daemon{Dir: dir, PoolDir: dir + "/pool", Socket: dir + "/run/libvirt-sock"}
	d.URI = "qemu+unix:///system?socket=" + d.Socket
	d.house = openHouse(t, dir, o.PoolSize)
	d.configure(t, o)
	stand.ShowOnFailure(t, dir+"/log/libvirtd.log")
	d.start(t)
	d.makeNetwork(t, o.NAT)
	d.makePool(t, o.Image)
	return d
}

// ImageDir is the folder of the pod VM image; a test is skipped without one.
func ImageDir(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("OUTRIGGER_PODVM_DIR")
	if dir == "" {
		dir = filepath.Join(stand.Root(), "bin", "podvm")
	}
	if _, err := os.Stat(filepath.Join(dir, "podvm.qcow2")); err != nil {
		t.Skipf("no pod VM image (%v); run: make podvm && sudo -E go test -tags integration ...", err)
	}
	return dir
}

// qemuConf: root, for the folders of tests are closed to other users; no
// mount namespaces of the guests, so that their processes are found by ours.
const qemuConf = `user = "root"
group = "root"
security_driver = "none"
namespaces = []
stdio_handler = "file"
`

const libvirtdConf = `auth_unix_rw = "none"
unix_sock_rw_perms = "0700"
log_outputs = "2:file:/var/log/libvirt/libvirtd.log"
`

func (d *Daemon) configure(t testing.TB, o Options) {
	t.Helper()
	conf := libvirtdConf
	if o.TLS {
		d.TLS = newTLS(t, d.Dir+"/etc/pki", cmp.Or(o.Listen, "127.0.0.1"))
		conf += d.TLS.conf()
	}
	d.write(t, "etc/qemu.conf", qemuConf)
	d.write(t, "etc/libvirtd.conf", conf)
}

func (d *Daemon) write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(d.Dir, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// start starts the process. It ends with the mount namespace, and so after all
// that a test still does in its clean-up.
func (d *Daemon) start(t testing.TB) {
	t.Helper()
	args := d.house.command("libvirtd", "--pid-file", d.Dir+"/libvirtd.pid")
	if d.TLS != nil {
		args = append(args, "--listen")
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d.process, d.ended = cmd.Process, make(chan struct{})
	go func() { cmd.Wait(); close(d.ended) }()
	d.awaitSocket(t)
	// The socket takes connections before the drivers are ready.
	d.Virsh(t, "uri")
}

func (d *Daemon) awaitSocket(t testing.TB) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		if c, err := net.Dial("unix", d.Socket); err == nil {
			c.Close()
			return
		}
		select {
		case <-d.ended:
			t.Fatalf("libvirtd ended before it served %s", d.Socket)
		case <-deadline:
			t.Fatalf("libvirtd does not serve %s", d.Socket)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Env are the variables that lead the libvirt provider to this daemon.
func (d *Daemon) Env() []string {
	return []string{
		"LIBVIRT_URI=" + d.URI, "LIBVIRT_POOL=" + Pool, "LIBVIRT_NET=" + Network,
		"LIBVIRT_VOL_NAME=" + Volume, "LIBVIRT_EFI_FIRMWARE=" + Firmware,
	}
}

// Kill ends the daemon with SIGKILL. Guests, network and leases stay.
func (d *Daemon) Kill(t testing.TB) {
	t.Helper()
	d.process.Kill()
	<-d.ended
	d.orphaned = append(d.orphaned, d.halfStarted()...)
	// A daemon that asks a QEMU which has not noticed yet is hung up on, and
	// then believes that the guest has ended.
	deadline := time.Now().Add(time.Minute)
	for d.monitored(t) {
		if time.Now().After(deadline) {
			t.Fatal("QEMU does not notice that the daemon is gone")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Freeze stops the daemon from answering until thaw is called; connections are
// taken and stay open.
func (d *Daemon) Freeze(t testing.TB) (thaw func()) {
	t.Helper()
	signal := func(s syscall.Signal) {
		if err := d.process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}

// monitored reports whether one of our QEMUs believes that the daemon watches it.
func (d *Daemon) monitored(t testing.TB) bool {
	t.Helper()
	connected := monitors(t)
	for _, pid := range d.guests() {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		for _, fd := range fds {
			if link, _ := os.Readlink(fd); connected[link] {
				return true
			}
		}
	}
	return false
}

// monitors are the connected monitor sockets, named as in /proc/PID/fd.
func monitors(t testing.TB) map[string]bool {
	t.Helper()
	sockets, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for line := range strings.Lines(string(sockets)) {
		// Num RefCount Protocol Flags Type St Inode Path; state 03 is connected.
		f := strings.Fields(line)
		if len(f) == 8 && f[5] == "03" && strings.HasSuffix(f[7], "/monitor.sock") {
			found["socket:["+f[6]+"]"] = true
		}
	}
	return found
}

// Restart kills the daemon, if it still runs, and starts it again.
func (d *Daemon) Restart(t testing.TB) {
	t.Helper()
	d.Kill(t)
	d.start(t)
}

// Virsh runs libvirt's own client and returns what it printed.
func (d *Daemon) Virsh(t testing.TB, args ...string) string {
	t.Helper()
	out, err := d.virsh(args...)
	// libvirt does not wait for the end of a network's dnsmasq, which has the address until then.
	for deadline := time.Now().Add(time.Minute); err != nil && strings.Contains(err.Error(), "Address already in use") && time.Now().Before(deadline); {
		time.Sleep(50 * time.Millisecond)
		out, err = d.virsh(args...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (d *Daemon) virsh(args ...string) (string, error) {
	out, err := output("virsh", append([]string{"--quiet", "--connect", d.URI}, args...)...)
	if err != nil {
		return "", fmt.Errorf("virsh %v: %w: %s", args, err, out)
	}
	return out, nil
}
