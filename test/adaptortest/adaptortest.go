// SPDX-License-Identifier: Apache-2.0

// Package adaptortest has stand-ins for what surrounds the adaptor. Network
// and Relay keep their state in files, as the kernel and the relay process
// keep theirs: it outlives the process that made it.
package adaptortest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	guestpb "github.com/outrigger/outrigger/internal/protocol/guest"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
)

// Network records tunnels as files in Dir.
type Network struct {
	Dir string
	// SetupErr, when set, is the error that every Setup returns.
	SetupErr func() error
}

// Inspect returns the same plausible pod for every namespace.
func (n *Network) Inspect(_ context.Context, netns string, node netip.Addr) (*podnetwork.Config, error) {
	if strings.Contains(netns, "missing") {
		return nil, fmt.Errorf("open %s: %w", netns, fs.ErrNotExist)
	}
	if !node.IsValid() {
		node = netip.MustParseAddr("192.0.2.1")
	}
	return &podnetwork.Config{
		PodIP:        netip.MustParsePrefix("10.244.0.7/24"),
		PodHwAddr:    "02:00:00:00:00:07",
		Interface:    "eth0",
		WorkerNodeIP: netip.PrefixFrom(node, 24),
		TunnelType:   "vxlan",
		MTU:          1450,
	}, nil
}

// Setup records the tunnel.
func (n *Network) Setup(_ context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error {
	if n.SetupErr != nil {
		if err := n.SetupErr(); err != nil {
			return err
		}
	}
	if !vm.IsValid() || cfg.VXLANID == 0 {
		return fmt.Errorf("tunnel without address or id: %s, %d", vm, cfg.VXLANID)
	}
	return os.WriteFile(n.path(cfg), []byte(netns+" "+vm.String()), 0o600)
}

// Teardown removes the record; there may be none.
func (n *Network) Teardown(_ context.Context, _ string, cfg *podnetwork.Config, _ netip.Addr) error {
	return ignoreMissing(os.Remove(n.path(cfg)))
}

// OpenFrames opens something in place of a packet socket.
func (n *Network) OpenFrames(string) (*os.File, error) { return os.Open(os.DevNull) }

// Tunnels returns how many there are.
func (n *Network) Tunnels() int { return count(n.Dir) }

func (n *Network) path(cfg *podnetwork.Config) string {
	return filepath.Join(n.Dir, fmt.Sprint(cfg.VXLANID))
}

// Relay records what it serves as files in Dir. The agent socket of a served
// sandbox is an empty file.
type Relay struct {
	Dir string
	// ServeErr, when set, is called before each Serve.
	ServeErr func(context.Context, *relaypb.ServeRequest) error
	// Idle, when set, returns since when a sandbox has had no client; a zero
	// time means that it has one.
	Idle func(id string) time.Time
	// TimelineOf, when set, is called by Timeline.
	TimelineOf func(id string) *timelinepb.Timeline
	// AttestationOf, when set, is called by Attestation.
	AttestationOf func(id string) (*guestpb.AttestationResponse, error)
}

// Serve records the request and makes the socket.
func (r *Relay) Serve(ctx context.Context, req *relaypb.ServeRequest) error {
	if r.ServeErr != nil {
		if err := r.ServeErr(ctx, req); err != nil {
			return err
		}
	}
	data, err := json.Marshal(&relaypb.Served{Id: req.GetId(), SocketPath: req.GetSocketPath(), Address: req.GetAddress()})
	if err != nil {
		return err
	}
	if err := os.WriteFile(req.GetSocketPath(), nil, 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.Dir, req.GetId()), data, 0o600)
}

// Stop forgets the sandbox and removes its socket.
func (r *Relay) Stop(_ context.Context, id string) error {
	data, err := os.ReadFile(filepath.Join(r.Dir, id))
	if err != nil {
		return ignoreMissing(err)
	}
	var served relaypb.Served
	if err := json.Unmarshal(data, &served); err != nil {
		return err
	}
	if err := ignoreMissing(os.Remove(served.GetSocketPath())); err != nil {
		return err
	}
	return ignoreMissing(os.Remove(filepath.Join(r.Dir, id)))
}

// List returns what is served.
func (r *Relay) List(context.Context) ([]*relaypb.Served, error) {
	entries, err := os.ReadDir(r.Dir)
	if err != nil {
		return nil, err
	}
	var list []*relaypb.Served
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(r.Dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		served := new(relaypb.Served)
		if err := errors.Join(err, json.Unmarshal(data, served)); err != nil {
			return nil, err
		}
		served.Clients = 1
		if r.Idle != nil {
			if since := r.Idle(served.GetId()); !since.IsZero() {
				served.Clients, served.IdleSinceUnixNano = 0, since.UnixNano()
			}
		}
		list = append(list, served)
	}
	return list, nil
}

// Timeline returns what TimelineOf says; without it the relay is one of an older version.
func (r *Relay) Timeline(_ context.Context, id string) (*timelinepb.Timeline, error) {
	if r.TimelineOf == nil {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	return r.TimelineOf(id), nil
}

// Attestation returns what AttestationOf says; without it the VM does not attest.
func (r *Relay) Attestation(_ context.Context, id string) (*guestpb.AttestationResponse, error) {
	if r.AttestationOf == nil {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	return r.AttestationOf(id)
}

// Served returns how many sandboxes are served.
func (r *Relay) Served() int { return count(r.Dir) }

// VNIs counts upwards from Min and never hands out what is taken.
type VNIs struct {
	Min   uint32
	mu    sync.Mutex
	taken map[uint32]bool
}

// Acquire takes the lowest free id.
func (v *VNIs) Acquire() (uint32, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for vni := v.Min; ; vni++ {
		if !v.taken[vni] {
			v.take(vni)
			return vni, nil
		}
	}
}

// Reserve takes that id.
func (v *VNIs) Reserve(vni uint32) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.taken[vni] {
		return fmt.Errorf("%d is taken", vni)
	}
	v.take(vni)
	return nil
}

// Release gives it back.
func (v *VNIs) Release(vni uint32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.taken, vni)
}

// Taken returns how many are taken.
func (v *VNIs) Taken() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.taken)
}

func (v *VNIs) take(vni uint32) {
	if v.taken == nil {
		v.taken = map[uint32]bool{}
	}
	v.taken[vni] = true
}

// Issue returns an identity of marked texts in place of certificates.
func Issue(serverName string, _ time.Time) (*adaptor.Identity, error) {
	return &adaptor.Identity{
		NodeIdentity: adaptor.NodeIdentity{CA: "CA of " + serverName, ClientCert: "client certificate", ClientKey: "client key"},
		ServerCert:   "server certificate of " + serverName,
		ServerKey:    "server key of " + serverName,
	}, nil
}

// IssueReal issues certificates that TLS can read.
func IssueReal(serverName string, now time.Time) (*adaptor.Identity, error) {
	b, err := podtls.NewBundle(serverName, now)
	if err != nil {
		return nil, err
	}
	return &adaptor.Identity{
		NodeIdentity: adaptor.NodeIdentity{CA: string(b.CAPEM), ClientCert: string(b.ClientCertPEM), ClientKey: string(b.ClientKeyPEM)},
		ServerCert:   string(b.ServerCertPEM), ServerKey: string(b.ServerKeyPEM),
	}, nil
}

func count(dir string) int {
	entries, _ := os.ReadDir(dir)
	return len(entries)
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
