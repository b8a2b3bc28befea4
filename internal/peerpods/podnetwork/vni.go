// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/vishvananda/netlink"
)

// maxVNI is the largest VXLAN network identifier: 24 bits (RFC 7348).
const maxVNI = 1<<24 - 1

// namedNetnsDir is where ip-netns and CNI runtimes mount namespaces.
const namedNetnsDir = "/run/netns"

// ErrVNIsExhausted means that every VNI from the pool's minimum up is in use.
var ErrVNIsExhausted = errors.New("no VXLAN network identifier is free")

// VNIPool hands out VXLAN network identifiers that no other tunnel of this
// node uses, and that nobody can guess: whoever knows a tunnel's could try to
// send into it. It does not persist them: after a restart, reserve those of the
// journal before the first Acquire. Its methods are safe for concurrent use.
type VNIPool struct {
	mu   sync.Mutex
	min  uint32
	held map[uint32]bool
	// seen are those of tunnels found on the node when the pool was made.
	seen map[uint32]bool
	// released have been used before; others are taken first.
	released map[uint32]bool
}

// NewVNIPool makes a pool that begins at min, which must be from 1 to
// 16777215. It looks for existing VXLAN devices in this network namespace and
// in those mounted under /run/netns.
func NewVNIPool(min uint32) (*VNIPool, error) {
	if min == 0 || min > maxVNI {
		return nil, fmt.Errorf("smallest VXLAN network identifier %d: want 1 to %d", min, maxVNI)
	}
	seen, err := currentVNIs()
	if err != nil {
		return nil, err
	}
	mounted, _ := filepath.Glob(filepath.Join(namedNetnsDir, "*"))
	for _, path := range mounted {
		addVNIs(seen, path)
	}
	return &VNIPool{min: min, held: map[uint32]bool{}, seen: seen, released: map[uint32]bool{}}, nil
}

// Reserve takes one identifier, as a journal names it. It may be below the
// pool's minimum, which can have been changed since. Reserving twice is an
// error: two sandboxes would share a tunnel.
func (p *VNIPool) Reserve(v uint32) error {
	if v == 0 || v > maxVNI {
		return fmt.Errorf("VXLAN network identifier %d: want 1 to %d", v, maxVNI)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[v] {
		return fmt.Errorf("VXLAN network identifier %d is reserved already", v)
	}
	p.held[v] = true
	return nil
}

// maxReleased bounds what a pool remembers.
const maxReleased = 1 << 16

// Acquire takes a free identifier at random. Released ones come last, so that
// stray packets of a removed pod do not reach a new one. [ErrVNIsExhausted]
// when none is free.
func (p *VNIPool) Acquire() (uint32, error) {
	present, err := currentVNIs()
	if err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.released) > maxReleased {
		clear(p.released)
	}
	for _, others := range []map[uint32]bool{p.released, nil} {
		if v, found := p.random(func(v uint32) bool { return !p.held[v] && !p.seen[v] && !present[v] && !others[v] }); found {
			p.held[v] = true
			return v, nil
		}
	}
	return 0, fmt.Errorf("%w from %d to %d", ErrVNIsExhausted, p.min, maxVNI)
}

// random returns the first identifier from a random one on that is free.
func (p *VNIPool) random(free func(uint32) bool) (uint32, bool) {
	span := maxVNI - p.min + 1
	var number [8]byte
	rand.Read(number[:]) // never fails
	begin := uint32(binary.NativeEndian.Uint64(number[:]) % uint64(span))
	for i := range span {
		if v := p.min + (begin+i)%span; free(v) {
			return v, true
		}
	}
	return 0, false
}

// Release gives an identifier back after its tunnel was removed. Releasing a
// free one does nothing.
func (p *VNIPool) Release(v uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[v] {
		p.released[v] = true
	}
	delete(p.held, v)
	delete(p.seen, v)
}

func currentVNIs() (map[uint32]bool, error) {
	links, err := dump(netlink.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list the node's interfaces: %w", err)
	}
	return vnisOf(links), nil
}

// addVNIs skips namespaces that cannot be entered: the kernel refuses a tunnel
// whose VNI is taken in any case, this check only makes that unlikely.
func addVNIs(vnis map[uint32]bool, path string) {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return
	}
	ns, err := openNamespace(path)
	if err != nil {
		return
	}
	defer ns.Close()
	if links, err := ns.links(); err == nil {
		maps.Copy(vnis, vnisOf(links))
	}
}

func vnisOf(links []netlink.Link) map[uint32]bool {
	vnis := map[uint32]bool{}
	for _, link := range links {
		if vxlan, ok := link.(*netlink.Vxlan); ok {
			vnis[uint32(vxlan.VxlanId)] = true
		}
	}
	return vnis
}
