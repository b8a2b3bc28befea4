// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// RebootTime is how long a machine is away.
const RebootTime = 3 * time.Millisecond

// Pool is a number of machines and a cluster.
type Pool struct {
	World *cloudsim.World
	// Kubeconfig reaches the API server.
	Kubeconfig string

	keys     *Keys
	port     uint16 // where machines listen, if they do
	server   *cloudsim.Server
	machines map[netip.Addr]*Machine
	config   *ssh.ServerConfig

	mu      sync.Mutex
	maps    map[string]*configMap
	version int
}

// Machine is one of the pool.
type Machine struct {
	Addr netip.Addr

	pool  *Pool
	mu    sync.Mutex
	files map[string]string
	boots int
	conns map[net.Conn]chan struct{} // closed when the connection is
	down  bool
	mute  bool // serves no boot id
}

// documentation is a network that nobody has.
var documentation = [3]byte{192, 0, 2}

// Addr is the address of a machine, counted from 1.
func Addr(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{documentation[0], documentation[1], documentation[2], byte(n)})
}

// Start makes a pool of n machines, which [Pool.Dial] reaches. They let in
// whoever has the user's key, as user peerpod, and have the host's.
func Start(t testing.TB, n int, k *Keys) *Pool {
	t.Helper()
	user := k.User.PublicKey()
	p := &Pool{keys: k, World: cloudsim.NewWorld(), machines: map[netip.Addr]*Machine{}, maps: map[string]*configMap{}}
	p.config = &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		if c.User() != "peerpod" || string(key.Marshal()) != string(user.Marshal()) {
			return nil, errors.New("no such key")
		}
		return nil, nil
	}}
	p.config.AddHostKey(k.Host)
	for i := range n {
		m := &Machine{Addr: Addr(i + 1), pool: p, conns: map[net.Conn]chan struct{}{}}
		m.start()
		p.machines[m.Addr] = m
	}
	t.Cleanup(p.close)
	p.serveAPI(t)
	return p
}

func (p *Pool) close() {
	for _, m := range p.machines {
		m.mu.Lock()
		m.cut()
		m.down = true
		m.mu.Unlock()
	}
}

// Dial connects to a machine's port 22.
func (p *Pool) Dial(ctx context.Context, address string) (net.Conn, error) {
	addr, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	if err := p.connecting(); err != nil {
		return nil, err
	}
	m := p.machines[addr.Addr()]
	if m == nil || addr.Port() != 22 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route to host")}
	}
	return m.accept(ctx)
}

// connecting is what the script says of a connection.
func (p *Pool) connecting() error {
	f := p.World.Called("ssh:connect")
	if f == nil {
		return nil
	}
	if f.Delay > 0 {
		time.Sleep(f.Delay) // the network's
	}
	if f.Drop {
		return &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("connection refused")}
	}
	return nil
}

// Machine returns one.
func (p *Pool) Machine(n int) *Machine { return p.machines[Addr(n)] }

// Leaks returns what the test has left.
func (p *Pool) Leaks() ([]string, error) {
	var left []string
	for _, r := range p.World.Own() {
		left = append(left, r.String())
	}
	return left, nil
}

// UserData returns what the guest at an address read.
func (p *Pool) UserData(addr netip.Addr) (string, error) {
	m := p.machines[addr]
	if m == nil {
		return "", fmt.Errorf("no machine %s", addr)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	text, ok := m.files[UserDataFile]
	if !ok {
		return "", fmt.Errorf("machine %s has no user-data", addr)
	}
	return text, nil
}

// entryOf returns what the state says of a machine.
func (p *Pool) entryOf(addr netip.Addr) (id string, tags map[string]string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.maps {
		var state map[netip.Addr]struct {
			ID   string            `json:"id"`
			Tags map[string]string `json:"tags"`
		}
		if json.Unmarshal([]byte(m.Data["state"]), &state) == nil && state[addr].ID != "" {
			return state[addr].ID, state[addr].Tags
		}
	}
	return "", nil
}

// AddForeign gives a machine to somebody else, who uses the same pool.
func (p *Pool) AddForeign(t testing.TB, n int, tags map[string]string) {
	t.Helper()
	addr := Addr(n)
	m := p.machines[addr]
	m.mu.Lock()
	m.files[UserDataFile] = "somebody else's"
	boot := m.files[bootID]
	m.mu.Unlock()
	state, err := json.Marshal(map[netip.Addr]any{addr: map[string]any{
		"phase": "ready", "since": time.Now().UTC(), "boot": boot, "id": "ffffffff-0000-5000-8000-000000000001", "key": tags["outrigger-key"], "tags": tags, "created": time.Now().UTC(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.store("pods", "byom-ip-pool-state", map[string]string{"state": string(state)})
	p.mu.Unlock()
	p.World.AddForeign(cloudsim.KindInstance, addr.String(), tags)
}
