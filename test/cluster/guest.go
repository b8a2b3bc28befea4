// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/stand"
)

// guest is what runs in place of a VM. Its first process ends all others with
// it.
type guest struct {
	cloud    *Cloud
	name, id string
	instance provider.Instance

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	cgroups cgroups
}

func newGuest(c *Cloud, i provider.Instance) *guest {
	return &guest{cloud: c, name: i.Name, id: i.ID, instance: i}
}

func (g *guest) folder() string { return filepath.Join(g.cloud.dir, g.id) }

func (g *guest) console() string { return filepath.Join(g.cloud.dir, "log", g.name+".log") }

// start returns when the guest begins to boot. What it made on an error, end
// removes.
func (g *guest) start(userData string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	err := os.MkdirAll(g.folder(), 0o700)
	if err == nil {
		err = os.WriteFile(filepath.Join(g.folder(), "user-data"), []byte(userData), 0o600)
	}
	if err != nil {
		return err
	}
	proceed, err := g.launch()
	if err != nil {
		return err
	}
	defer proceed.Close()
	if err := g.enterCgroups(); err != nil {
		return err
	}
	if err := g.attach(); err != nil {
		return err
	}
	_, err = io.WriteString(proceed, "go\n")
	return err
}

// launch starts the first process, which waits for a line.
func (g *guest) launch() (proceed io.WriteCloser, err error) {
	console, err := os.OpenFile(g.console(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer console.Close()
	cmd := exec.Command("sh", filepath.Join(g.cloud.dir, "guest.sh"), g.folder(), filepath.Join(stand.Root(), "bin"),
		filepath.Join(cgroupPrefix+filepath.Base(g.cloud.dir), g.id))
	cmd.Stdout, cmd.Stderr = console, console
	cmd.Env = append(os.Environ(), "GUEST_FORWARDER="+g.cloud.Forwarder)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC,
	}
	if proceed, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g.cmd, g.exited = cmd, make(chan struct{})
	go func() { cmd.Wait(); close(g.exited) }()
	return proceed, nil
}

// enterCgroups gives the guest cgroups of its own, which nothing outside of it
// sees as those of a pod.
func (g *guest) enterCgroups() error {
	for _, parent := range g.cloud.cgroups {
		dir, err := makeCgroup(parent, g.id)
		if err != nil {
			return err
		}
		g.cgroups = append(g.cgroups, dir)
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(g.cmd.Process.Pid)), 0); err != nil {
			return err
		}
	}
	return nil
}

// attach gives the guest its interface on the network of the nodes.
func (g *guest) attach() error {
	bridge, err := netlink.LinkByName(bridgeName)
	if err != nil {
		return err
	}
	ip := g.instance.IPs[0]
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("orguest%d", ip.As4()[3]), MasterIndex: bridge.Attrs().Index},
		PeerName:  "eth0", PeerNamespace: netlink.NsPid(g.cmd.Process.Pid),
	}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(veth); err != nil {
		return err
	}
	ns, err := netns.GetFromPid(g.cmd.Process.Pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	return setUpMachine(ns, ip)
}

// end removes the guest; it may be called again.
func (g *guest) end() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd == nil {
		return os.RemoveAll(g.folder())
	}
	g.cmd.Process.Kill()
	<-g.exited
	// The namespace's end removes the interface as well, some time later.
	link, err := netlink.LinkByName(fmt.Sprintf("orguest%d", g.instance.IPs[0].As4()[3]))
	if err == nil {
		netlink.LinkDel(link)
	}
	return errors.Join(g.removeCgroups(), os.RemoveAll(g.folder()))
}

// removeCgroups waits for processes that the kernel is still ending.
func (g *guest) removeCgroups() error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := g.cgroups.remove()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
