// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/peerpods/handover"
)

// TestRestoredVMsDiffer: of two VMs that were restored from one, nothing is the same that would let one
// be taken for the other, or guess its secrets; and both have the time.
func TestRestoredVMsDiffer(t *testing.T) {
	n := newNode(t)
	numbers := capture(t)
	seen := map[string]string{}
	for _, name := range []string{"one", "two"} {
		p := n.newPod(t, name)
		line, err := n.client.Timeline(t.Context(), p.ID())
		if err != nil {
			t.Fatal(err)
		}
		restored := false
		for _, step := range line.Steps {
			restored = restored || step.Name == "restored"
		}
		if !restored {
			t.Errorf("pod %s has a VM that was not restored", name)
		}
		for what, value := range n.identity(t, p, numbers) {
			if value == "" || seen[what] == value {
				t.Errorf("%s of pod %s is %q, and was %q", what, name, value, seen[what])
			}
			seen[what] = value
		}
	}
}

// identity is what a pod's VM has for itself alone.
func (n *node) identity(t *testing.T, p *pod, numbers *firstNumbers) map[string]string {
	t.Helper()
	c, _, _ := p.container(t, "sleeper", "sleep", "1000000")
	before := time.Now()
	seconds, err := strconv.ParseInt(strings.TrimSpace(mustRun(t, c, "date", "+%s")), 10, 64)
	if now := time.Unix(seconds, 0); err != nil || now.Before(before.Add(-2*time.Second)) || now.After(time.Now().Add(2*time.Second)) {
		t.Errorf("the guest's time is %v, and not %v (%v)", now, before, err)
	}
	var sandbox struct {
		Instance  string       `json:"instance-id"`
		Addresses []netip.Addr `json:"addresses"`
		TLS       struct{ CA string }
	}
	var vm struct{ MAC, UUID string }
	readRecord(t, filepath.Join(n.dir, "pods", p.ID(), "sandbox.json"), &sandbox)
	readRecord(t, filepath.Join(n.dir, "qemu", "instances", sandbox.Instance, "instance.json"), &vm)
	return map[string]string{
		"random id of the boot":     mustRun(t, c, "cat", "/proc/sys/kernel/random/boot_id"),
		"random number, kernel":     mustRun(t, c, "cat", "/proc/sys/kernel/random/uuid"),
		"random number, userland":   mustRun(t, c, "sh", "-c", "head -c 32 /dev/urandom | sha256sum"),
		"host name":                 mustRun(t, c, "hostname"),
		"MAC address":               vm.MAC,
		"machine id":                vm.UUID,
		"address":                   sandbox.Addresses[0].String(),
		"authority of TLS":          sandbox.TLS.CA,
		"first TCP sequence number": numbers.of(t, sandbox.Addresses[0]),
	}
}

func readRecord(t *testing.T, path string, into any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// firstNumbers are the sequence numbers with which VMs answered the node's first connection.
type firstNumbers struct {
	mu sync.Mutex
	by map[netip.Addr]uint32
}

// capture sees all packets of this network namespace until the test ends.
func capture(t *testing.T) *firstNumbers {
	t.Helper()
	const all = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL<<8&0xff00 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, all)
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000})
	}
	if err != nil {
		t.Fatal(err)
	}
	f, ended, done := &firstNumbers{by: map[netip.Addr]uint32{}}, t.Context().Done(), make(chan struct{})
	go func() {
		defer close(done)
		defer unix.Close(fd)
		for packet := make([]byte, 1<<16); ; {
			select {
			case <-ended:
				return
			default:
			}
			if size, _, err := unix.Recvfrom(fd, packet, 0); err == nil {
				f.note(packet[:size])
			}
		}
	}()
	t.Cleanup(func() { <-done })
	return f
}

// note keeps the number of a VM's reply (SYN and ACK) from the port of its forwarder.
func (f *firstNumbers) note(ip []byte) {
	if len(ip) < 40 || ip[0]>>4 != 4 || ip[9] != unix.IPPROTO_TCP {
		return
	}
	tcp := ip[int(ip[0]&0xf)*4:]
	if len(tcp) < 20 || fmt.Sprint(binary.BigEndian.Uint16(tcp)) != handover.Port || tcp[13]&0x3f != 0x12 {
		return
	}
	from := netip.AddrFrom4([4]byte(ip[12:16]))
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.by[from]; !known {
		f.by[from] = binary.BigEndian.Uint32(tcp[4:])
	}
}

func (f *firstNumbers) of(t *testing.T, vm netip.Addr) string {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	number, known := f.by[vm.Unmap()]
	if !known {
		t.Fatalf("no reply of %s to a connection was seen", vm)
	}
	return fmt.Sprint(number)
}
