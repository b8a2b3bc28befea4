// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/nocloud"
)

// A template is a VM that is saved and then restored for many pods. It has
// nocloud.TemplateArg on its kernel's command line and an empty disk for its seed. It
// boots as far as it can without an identity, and waits. A restored VM finds a seed
// on the disk and takes its identity from it: random numbers, clock and MAC address.
// Nothing that depends on them exists before.

// seedPoll is how often a template checks for its seed: each tick of its kernel.
const seedPoll = 4 * time.Millisecond

// isTemplate reports whether this VM was booted as a template, also after it
// was restored.
func (g *guest) isTemplate() bool { return g.args.has(nocloud.TemplateArg) }

// awaitSeed waits in a template until it is restored with a seed. Before that it
// loads the modules and starts the programs that it would need later. In a VM that
// is not a template it returns at once.
func (g *guest) awaitSeed() error {
	if !g.isTemplate() {
		return nil
	}
	for _, stage := range []string{stageStart, stageLate, stageStorage} {
		if err := g.loadModules(stage); err != nil {
			return err
		}
	}
	if err := g.modules.loadDemand(); err != nil {
		return err
	}
	if err := g.holdPrograms(); err != nil {
		return err
	}
	dev, err := seedDisk("/sys/block", "/dev")
	if err != nil {
		return err
	}
	g.con.logf(nocloud.TemplateReady)
	// The kernel does not cache a device that nobody has open: each probe reads the disk.
	for fstype := ""; fstype != "iso9660"; fstype, _ = probeLabel(dev) {
		time.Sleep(seedPoll)
	}
	g.seeded = true
	return nil
}

// holdPrograms starts and holds the programs that every pod needs, as far as they do not depend on
// the pod. Go seeds the random numbers of a process once, from what the kernel gives it at its
// start, so that they may not draw secrets from them (see pull/resolver.go).
func (g *guest) holdPrograms() error {
	commands := [][]string{provisionCommand}
	for _, path := range services() {
		commands = append(commands, []string{path})
	}
	for _, argv := range commands {
		if err := g.hold(argv); err != nil {
			return fmt.Errorf("start %s in advance: %w", argv[0], err)
		}
	}
	return nil
}

// seedDisk returns the still empty disk that is to hold the seed.
func seedDisk(sysBlock, dev string) (string, error) {
	for _, d := range listDisks(sysBlock, dev) {
		if d.serial == "cidata" {
			return d.dev, nil
		}
	}
	return "", errors.New("a template needs a disk with the serial number cidata")
}

// takeIdentity sets random numbers and clock of a restored VM from its seed, before
// anything uses them.
func (g *guest) takeIdentity() error {
	if !g.isTemplate() {
		return nil
	}
	data, err := g.seedFile("meta-data")
	if err != nil {
		return err
	}
	random, now, err := parseIdentity(data)
	if err != nil {
		return err
	}
	if err := reseed(random); err != nil {
		return fmt.Errorf("reseed the kernel's random numbers: %w", err)
	}
	// The kernel makes the boot id when it is first read: with the new key.
	if id, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
		g.con.logf("restored, boot id %s", strings.TrimSpace(string(id)))
	}
	return setClock(now)
}

// leastSeed is the fewest random bytes a seed must hold: the size of the kernel's own
// key (drivers/char/random.c, CHACHA_KEY_SIZE).
const leastSeed = 32

// parseIdentity returns the random bytes and the time in a seed's meta-data.
func parseIdentity(data []byte) (random []byte, now time.Time, err error) {
	meta, err := parseMetaData(data)
	if err != nil {
		return nil, now, err
	}
	random, err = base64.StdEncoding.DecodeString(meta.RandomSeed)
	if err != nil || len(random) < leastSeed {
		return nil, now, fmt.Errorf("meta-data has no random_seed of %d bytes or more: this VM would have the keys of others", leastSeed)
	}
	if now, err = time.Parse(time.RFC3339Nano, meta.Time); err != nil {
		return nil, now, fmt.Errorf("meta-data: outrigger-time: %w", err)
	}
	return random, now, nil
}

// reseed gives the kernel random bytes, from which it makes a new key at once
// (random(4): RNDADDENTROPY, RNDRESEEDCRNG).
func reseed(random []byte) error {
	file, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	// struct rand_pool_info: entropy_count in bits, buf_size in bytes, buf.
	const header = 8
	info := make([]byte, header+len(random))
	*(*int32)(unsafe.Pointer(&info[0])) = int32(8 * len(random))
	*(*int32)(unsafe.Pointer(&info[4])) = int32(len(random))
	copy(info[header:], random)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&info[0]))); errno != 0 {
		return errno
	}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), rndReseedCRNG, 0); errno != 0 {
		return errno
	}
	return nil
}

// rndReseedCRNG is RNDRESEEDCRNG of linux/random.h.
const rndReseedCRNG = 0x5207

// setClock sets the clock, which stood still while the VM was saved. It uses the later
// of now, from the seed, and the hardware clock: both are behind the real time, so the
// later one is closer.
func setClock(now time.Time) error {
	// The first clock, in whole seconds (Documentation/admin-guide/rtc.rst).
	text, _ := os.ReadFile("/sys/class/rtc/rtc0/since_epoch")
	if seconds, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && time.Unix(seconds, 0).After(now) {
		now = time.Unix(seconds, 0)
	}
	spec := unix.NsecToTimespec(now.UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &spec)
}

// takeAddress gives the NIC of a restored VM the MAC address of its seed.
func (g *guest) takeAddress(mac net.HardwareAddr) error {
	if !g.isTemplate() || len(mac) == 0 {
		return nil
	}
	link, err := firstNIC()
	if err != nil {
		return err
	}
	if err := netlink.LinkSetHardwareAddr(link, mac); err != nil {
		return fmt.Errorf("set MAC address %s of %s: %w", mac, link.Attrs().Name, err)
	}
	return nil
}
