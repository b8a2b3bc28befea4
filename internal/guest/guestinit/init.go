// SPDX-License-Identifier: Apache-2.0

// Package guestinit is PID 1 of the pod VM: it mounts, loads kernel modules,
// configures the network, has the user-data provisioned and keeps the agent
// and the forwarder running.
package guestinit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/guest/kataguest"
	"github.com/outrigger/outrigger/internal/guest/loopdisk"
	"github.com/outrigger/outrigger/internal/guest/reaper"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Programs of the image, see internal/guest/image.
const (
	userDataProgram  = "/usr/local/bin/process-user-data"
	agentProgram     = "/usr/local/bin/podvm-agent"
	forwarderProgram = "/usr/local/bin/agent-protocol-forwarder"
	debugShell       = "/bin/sh"
)

// guest is the state of the boot.
type guest struct {
	con     *console
	args    cmdline
	modules *modules
	reaper  *reaper.Reaper
	disks   []disk
	hasSeed bool
	// end ends the guest; it does not return.
	end func(reason string)
	// held are the programs that were started before they had what they need, by path.
	held map[string]*process
	// seeded reports whether a template has its seed.
	seeded bool
	// took are the steps so far, for the pod's timeline.
	took []mark
}

// mark is a step of the boot, by uptime.
type mark struct {
	name       string
	start, end time.Duration
}

// cmdline is the kernel command line; a word without = has the value "".
type cmdline map[string]string

func parseCmdline(text string) cmdline {
	args := cmdline{}
	for word := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(word, "=")
		args[name] = value
	}
	return args
}

func (c cmdline) has(word string) bool {
	_, ok := c[word]
	return ok
}

// debugArg on the kernel command line shows how long each step takes.
const debugArg = "outrigger.debug"

// step is one part of the boot. An error of a required step ends the guest; other
// errors are only logged, since the pod may still work.
type step struct {
	name     string
	required bool
	run      func() error
}

// Main is podvm-init. As PID 1 it does not return.
func Main() {
	if len(os.Args) > 1 && os.Args[1] == loopdisk.Arg {
		loopdisk.Main(os.Args[2:])
	}
	if os.Getpid() == 1 {
		if inContainer(os.Args[1:], os.Getenv) {
			runInContainer()
		}
		run()
	}
	if len(os.Args) == 4 && os.Args[1] == "-q" && os.Args[2] == "--" {
		if err := modprobe(os.Args[3]); err != nil {
			os.Exit(1)
		}
		return
	}
	fmt.Fprintln(os.Stderr, "podvm-init: this is the init of a pod VM and runs as PID 1 only")
	os.Exit(2)
}

// run boots the guest. It must be PID 1 and does not return.
func run() {
	con := openConsole()
	defer powerOffOnPanic(con)
	if err := makeRootPivotable(); err != nil {
		powerOff(con, "FATAL: root file system: "+err.Error())
	}
	for _, m := range bootMounts {
		if err := m.mount(); err != nil {
			powerOff(con, "FATAL: "+err.Error())
		}
	}
	con = openConsole()
	con.logf("userspace started")
	if err := mountEventLog(); err != nil {
		con.logf("no event log of the measured boot: %v", err)
	}
	g := &guest{con: con, reaper: reaper.New(), held: map[string]*process{}, end: func(reason string) { powerOff(con, reason) }}
	g.took = []mark{{"kernel", 0, uptime()}}
	go g.reaper.Run(context.Background())
	shutdown := listenForShutdown()
	go func() {
		defer powerOffOnPanic(con)
		g.boot()
		g.afterReady()
	}()
	powerOff(con, (<-shutdown).String())
}

// powerOffOnPanic is deferred in goroutines: a panic is written as one line to the
// console, instead of a trace and a kernel panic.
func powerOffOnPanic(con *console) {
	if p := recover(); p != nil {
		powerOff(con, fmt.Sprintf("FATAL: podvm-init panicked: %v", p))
	}
}

func (g *guest) boot() {
	g.take([]step{
		{"standard devices", false, linkStandardDevices},
		{"kernel command line", false, g.readCmdline},
		{"kernel modules", true, g.loadEarlyModules},
		{"drivers of clouds", false, g.coldplug},
		{"TEE", false, g.findTEE},
		{"cgroups", true, enableControllers},
		{"sysctls", false, setSysctls},
		{"debug shell", false, g.startDebugShell},
		{"loopback", false, loopbackUp},
		{stepAwaitSeed, true, g.awaitSeed},
		{"seed", false, g.findSeed},
		{"identity", true, g.takeIdentity},
		{"scratch disk", false, g.findScratch},
		{"hostname", false, g.setHostname},
		{"network", false, g.setupNetwork},
		{"user-data", false, g.provision},
		{"encrypted scratch disk", false, g.encryptScratch},
		{"services", true, g.startServices},
	})
}

// take takes the steps one by one.
func (g *guest) take(steps []step) {
	begin := uptime()
	for _, s := range steps {
		if err := s.run(); err != nil && (s.required || g.isTemplate() && !g.seeded) { // many VMs would have it
			g.end(fmt.Sprintf("FATAL: %s: %v", s.name, err))
		} else if err != nil {
			g.con.logf("ERROR: %s: %v", s.name, err)
		}
		now := uptime()
		if g.args.has(debugArg) {
			g.con.logf("%s took %v", s.name, (now - begin).Round(time.Millisecond/10))
		}
		g.note(s.name, begin, now)
		begin = now
	}
}

// leastMark is the shortest step that is worth a line of the timeline.
const leastMark = time.Millisecond

// note keeps a step for the timeline. That of a restored VM begins when it has its seed.
func (g *guest) note(name string, start, end time.Duration) {
	if name == stepAwaitSeed && g.seeded {
		g.took = []mark{{"restored", end, end}}
	} else if end-start >= leastMark {
		g.took = append(g.took, mark{strings.ReplaceAll(name, " ", "-"), start, end})
	}
}

// writeMarks hands the steps to the agent, which returns them to the node. In a VM of a pool
// they were not for the pod.
func (g *guest) writeMarks(to marks.Marks) {
	for _, step := range to.Read() {
		if step.Name == marks.Handover {
			return
		}
	}
	for _, m := range g.took {
		to.Add(m.name, m.start, m.end, "")
	}
}

// stepAwaitSeed is where a template is saved and restored.
const stepAwaitSeed = "saved state"

func (g *guest) readCmdline() error {
	data, err := os.ReadFile("/proc/cmdline")
	g.args = parseCmdline(string(data))
	return err
}

func (g *guest) loadEarlyModules() error {
	var err error
	if g.modules, err = readModules(modulesOrder, modulesDir); err != nil {
		return err
	}
	return g.loadModules(stageEarly)
}

func (g *guest) loadModules(stage string) error {
	n, err := g.modules.load(stage)
	if n > 0 {
		g.con.logf("loaded %d %s modules", n, stage)
	}
	return err
}

// findSeed checks virtio disks first; the drivers of other storage are only
// loaded if none of them has the seed.
func (g *guest) findSeed() error {
	g.disks = listDisks("/sys/block", "/dev")
	dir, err := mountSeed(g.disks)
	if dir == "" && err == nil {
		if err := g.loadModules(stageStorage); err != nil {
			g.con.logf("ERROR: storage modules: %v", err)
		}
		g.disks = listDisks("/sys/block", "/dev")
		dir, err = mountSeed(g.disks)
	}
	if dir != "" && err == nil {
		g.hasSeed = dir == seedDir
		g.con.logf("mounted the seed on %s", dir)
	}
	return err
}

func (g *guest) findScratch() error {
	if AlwaysEncryptScratch {
		return nil // see encryptScratch
	}
	found, err := mountScratch(g.disks)
	if found && err == nil {
		g.con.logf("mounted the scratch disk on %s", scratchDir)
	}
	return err
}

// seedFile reads a file of the seed; absent is not an error.
func (g *guest) seedFile(name string) ([]byte, error) {
	if !g.hasSeed {
		return nil, nil
	}
	data, err := os.ReadFile(filepath.Join(seedDir, name))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func (g *guest) setHostname() error {
	data, err := g.seedFile("meta-data")
	if err != nil {
		return err
	}
	meta, err := parseMetaData(data)
	if err != nil {
		return err
	}
	name := cmp.Or(meta.LocalHostname, "podvm")
	if err := unix.Sethostname([]byte(name)); err != nil {
		return fmt.Errorf("set host name %q: %w", name, err)
	}
	return os.WriteFile("/etc/hostname", []byte(name+"\n"), 0o644)
}

// setupNetwork follows the seed, else the kernel command line, else asks DHCP
// on the first interface.
func (g *guest) setupNetwork() error {
	data, err := g.seedFile("network-config")
	if err != nil {
		return err
	}
	if len(data) > 0 {
		cfg, err := parseNetworkConfig(data)
		if err != nil {
			return err
		}
		return g.applyNetwork(cfg)
	}
	link, err := firstNIC()
	if err != nil {
		return err
	}
	nic, err := cmdlineNIC(g.args)
	if err != nil {
		return err
	}
	if nic == nil {
		nic = &nicConfig{dhcp4: true}
	}
	return g.applyNIC(nic, link, nil)
}

func (g *guest) applyNetwork(cfg *netConfig) error {
	var errs []error
	var dns []netip.Addr
	for i := range cfg.nics {
		nic := &cfg.nics[i]
		if err := g.takeAddress(nic.mac); err != nil {
			return err
		}
		link, err := nic.find()
		if err == nil {
			err = g.applyNIC(nic, link, cfg.search)
		}
		errs = append(errs, err)
		dns = append(dns, nic.dns...)
	}
	errs = append(errs, writeResolvConf(dns, cfg.search))
	return errors.Join(errs...)
}

func (g *guest) applyNIC(nic *nicConfig, link netlink.Link, search []string) error {
	if err := nic.apply(link); err != nil {
		return err
	}
	link, err := netlink.LinkByIndex(link.Attrs().Index)
	if err != nil {
		return err
	}
	if nic.dhcp4 {
		g.startDHCP(link)
		return nil
	}
	g.con.logf("network %s has %s", link.Attrs().Name, joinAddrs(nic.addresses))
	return nil
}

// startDHCP waits for the first answer only when the VM has no seed, since
// then the user-data must come over the network.
func (g *guest) startDHCP(link netlink.Link) {
	first := make(chan struct{})
	answered := sync.OnceFunc(func() { close(first) })
	go runDHCP(context.Background(), link, func(l *dhcpLease, err error) {
		if err != nil {
			g.con.logf("ERROR: %v", err)
		} else {
			g.con.logf("network %s has %s by DHCP for %v", link.Attrs().Name, joinAddrs(l.addresses), l.duration)
		}
		answered()
	})
	if !g.hasSeed {
		<-first
	}
}

func joinAddrs(list []netip.Prefix) string {
	texts := make([]string, len(list))
	for i, p := range list {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}

var provisionCommand = []string{userDataProgram, "provision-files"}

// provision runs process-user-data to its end, which in a VM of a pool comes when it has
// the user-data of a pod.
func (g *guest) provision() error {
	p, err := g.held[userDataProgram], error(nil)
	if p == nil || p.Ended() {
		p, err = g.spawn(provisionCommand, nil)
	}
	if err != nil {
		return err
	}
	p.letGo()
	// In a VM of a pool there are days for what the pod would have to wait for.
	g.holdPaths(services()...)
	if !p.Ended() && g.modules != nil { // a container has none
		g.tryModules(stageStart)
	}
	if <-p.Done; p.Code() != 0 {
		return fmt.Errorf("%s: %w", userDataProgram, exitError(p.Status))
	}
	g.con.logf("user-data provisioned")
	return nil
}

// services are the programs of ours that serve the pod.
func services() []string {
	if kataguest.Find() != nil {
		return []string{forwarderProgram}
	}
	return []string{forwarderProgram, agentProgram}
}

// holdPaths starts and holds programs of our own executable: others do not wait. An error is
// only logged: the program is started later.
func (g *guest) holdPaths(paths ...string) {
	own, _ := os.Stat("/proc/self/exe")
	for _, path := range paths {
		if info, err := os.Stat(path); g.held[path] != nil || err != nil || !os.SameFile(info, own) {
			continue
		}
		if err := g.hold([]string{path}); err != nil {
			g.con.logf("ERROR: start %s in advance: %v", path, err)
		}
	}
}

func (g *guest) startServices() error {
	for _, p := range services() {
		if _, err := os.Stat(p); err != nil {
			return err
		}
	}
	if kata := kataguest.Find(); kata == nil {
		go g.supervise([]string{agentProgram}, "0", g.held[agentProgram])
	} else if err := g.startKata(kata); err != nil {
		return err
	}
	go g.supervise([]string{forwarderProgram}, "-999", g.held[forwarderProgram])
	return nil
}

// afterReady runs the steps that the agent's start need not wait for.
func (g *guest) afterReady() {
	g.writeMarks(marks.Beside(agentSocket))
	g.tryModules(stageStart)
	if g.awaitAgent() {
		g.con.logf("agent is ready")
	}
	g.tryModules(stageLate)
	g.tryModules(stageStorage)
	n := watchPowerButton(func() { _ = syscall.Kill(os.Getpid(), syscall.SIGTERM) })
	if n > 0 {
		g.con.logf("listening to the power button")
	}
}

func (g *guest) tryModules(stage string) {
	if err := g.loadModules(stage); err != nil {
		g.con.logf("ERROR: %s modules: %v", stage, err)
	}
}

// readiness is how the agent and the forwarder show that they serve: the
// agent's socket in the file system, and the forwarder's TCP port (15150) as
// the kernel lists it (proc_net_tcp: local port in hex, state 0A is LISTEN).
const (
	agentSocket   = "/run/kata-containers/agent.sock"
	forwarderPort = ":3B2E "
	listenState   = " 0A "
)

// awaitAgent waits at most ten seconds until the pod can be used.
func (g *guest) awaitAgent() bool {
	for range 1000 {
		if _, err := os.Stat(agentSocket); err == nil && forwarderListens() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func forwarderListens() bool {
	for _, table := range []string{"/proc/net/tcp6", "/proc/net/tcp"} {
		data, _ := os.ReadFile(table)
		for line := range strings.Lines(string(data)) {
			if strings.Contains(line, forwarderPort) && strings.Contains(line, listenState) {
				return true
			}
		}
	}
	return false
}

// startDebugShell keeps a shell on the console of a debug image; it starts
// early, to debug a boot that hangs.
func (g *guest) startDebugShell() error {
	if _, err := os.Stat(debugShell); err != nil {
		return nil
	}
	go func() {
		for {
			shell, err := g.startShell()
			if err != nil {
				g.con.logf("ERROR: shell: %v", err)
				return
			}
			<-shell.Done
		}
	}()
	return nil
}
