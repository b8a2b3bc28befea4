// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	guestpb "github.com/outrigger/outrigger/internal/protocol/guest"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/provider"
)

// Network is the node's half of pod networks.
type Network interface {
	// Inspect reads the pod's namespace; it changes nothing. node is the
	// address at which VMs reach this node; invalid means that of the node's
	// default route.
	Inspect(ctx context.Context, netns string, node netip.Addr) (*podnetwork.Config, error)
	// Setup makes the tunnel to the VM. Making it again is success.
	Setup(ctx context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error
	// Teardown removes it. It is success when there is none, also when the
	// namespace is gone. vm is invalid when the VM never had an address.
	Teardown(ctx context.Context, netns string, cfg *podnetwork.Config, vm netip.Addr) error
	// OpenFrames opens the packet socket of an encrypted tunnel that Setup made.
	OpenFrames(netns string) (*os.File, error)
}

// VNIs hands out the tunnel ids of this node; *podnetwork.VNIPool is one. All
// methods are safe for concurrent use.
type VNIs interface {
	// Acquire takes a free one.
	Acquire() (uint32, error)
	// Reserve takes that one; it is an error if it is taken.
	Reserve(vni uint32) error
	// Release gives one back; of a free one it does nothing.
	Release(vni uint32)
}

// Relay controls the agent relay of this node, which outlives the adaptor.
type Relay interface {
	Serve(ctx context.Context, req *relaypb.ServeRequest) error
	Stop(ctx context.Context, id string) error
	List(ctx context.Context) ([]*relaypb.Served, error)
	// Timeline returns how the agent was reached, and what it says of its start.
	Timeline(ctx context.Context, id string) (*timelinepb.Timeline, error)
	// Attestation returns how far the pod's attestation is; an error of a VM that does not attest.
	Attestation(ctx context.Context, id string) (*guestpb.AttestationResponse, error)
}

// Identity is what both ends of one sandbox's agent channel prove themselves
// with, PEM. The VM's key is kept in memory only, and only until it boots.
type Identity struct {
	NodeIdentity
	ServerCert string
	ServerKey  string
}

// OwnCA names the files of an operator who issues certificates: the node's,
// and those built into the VM image, whose server name is OwnCAServerName.
// They are read each time, so they may be renewed.
type OwnCA struct {
	CAFile, CertFile, KeyFile string
	// ServerIdentity, if not empty, is the URI of a resource (package keybroker) at the key broker that a pod's initdata names: the VM's
	// certificate and key, PEM, one after the other, in place of those in its image. No user-data has a secret then.
	ServerIdentity string
}

// OwnCAServerName is what the VM's certificate must be for with an own CA.
const OwnCAServerName = "podvm-server"

// TLS is how the agent channel is secured.
type TLS struct {
	// Disabled means plain TCP.
	Disabled bool
	// Issue makes the identity of one sandbox; needed unless Disabled or OwnCA.
	Issue func(serverName string, now time.Time) (*Identity, error)
	// OwnCA replaces Issue.
	OwnCA *OwnCA
	// SkipVerify accepts any certificate of the VM.
	SkipVerify bool
	// MinVersion is VersionTLS12 or VersionTLS13; empty means VersionTLS12.
	MinVersion string
	// CipherSuites are IANA names; empty means the library's choice.
	CipherSuites []string
}

// TunnelAuto is an encrypted tunnel for pods that attest, and one of the kernel for others.
const TunnelAuto = "auto"

// Options is all that a Service needs. The zero value of a field marked so is
// replaced by its default.
type Options struct {
	// Provider makes the VMs; ProviderName is its name in the table.
	Provider     provider.Provider
	ProviderName string
	Network      Network
	VNIs         VNIs
	// MinVNI is what pod-network's index counts from.
	MinVNI int
	Relay  Relay
	TLS    TLS

	// PodsDir holds one folder for each sandbox. Absolute, without ':'.
	PodsDir string
	// DirectVolumes is where CSI drivers write their records; directvolume.Root by default.
	DirectVolumes string
	// ForwarderPort is the TCP port of agent-protocol-forwarder. Default 15150.
	ForwarderPort int
	// ProxyTimeout is the longest wait for the VM's agent. Default 5 min.
	ProxyTimeout time.Duration
	// VXLANPort is the UDP port of the tunnels. Default 4789 (RFC 7348).
	VXLANPort int
	// TunnelType is [podnetwork.TunnelVXLAN], the default, [podnetwork.TunnelTLS] or [TunnelAuto].
	TunnelType string
	// ExternalViaPodVM gives pods the VM's own way to the outside.
	ExternalViaPodVM bool
	// Initdata is for pods without their own: base64 of gzip of TOML.
	Initdata string
	// PodImages are the VM images that a pod may name: NAME, NAME* or *. None
	// by default.
	PodImages []string
	// InsecureRegistries are those with which VMs speak plain HTTP: HOST, with any
	// port, HOST:PORT, or [apf.NodeItself]. None by default.
	InsecureRegistries []string
	// AuthFile is a registry auth file for the guest, read for each VM.
	AuthFile string
	// ScratchSpace tells the guest to use an encrypted scratch disk.
	ScratchSpace bool

	// HandOver gives a VM of a pool its user-data; handover.Send by default.
	HandOver func(ctx context.Context, address string, config *tls.Config, document []byte) error
	// Pool are VMs that wait here for the next pods; none by default, and none beside a Cluster.
	Pool Pool
	// OtherPods are patterns of the PodsDirs of adaptors that have the same ClusterID and
	// NodeName. What is on record there is not deleted.
	OtherPods []string
	// Cluster is the orchestrator of the pods; nil without one.
	Cluster Cluster
	// Observers receive all changes.
	Observers []Observer

	// ClusterID and NodeName own the instances made here. Without ClusterID,
	// only instances in the journal are ever deleted.
	ClusterID string
	NodeName  string

	// OrphanTimeout is how long a sandbox lives without a client. 0: for ever.
	OrphanTimeout time.Duration
	// SweepInterval is the pause between two looks for orphans. Default: a
	// quarter of OrphanTimeout, at least 1 s and at most 1 min.
	SweepInterval time.Duration
	// SweepGrace is the age below which an unknown instance is left alone,
	// since the cloud's list may lag. Default 10 min.
	SweepGrace time.Duration
	// ListSettle is how long after a request with a lost reply the instance
	// must stay absent from the cloud's list before it counts as not created.
	// Default 10 s.
	ListSettle time.Duration
	// StopGrace is how long StopVM waits for the removal before it leaves it
	// to the background. Default 800 ms: runtime-rs gives StopVM 1 s.
	StopGrace time.Duration
	// WatchInterval is the pause between two looks at a VM that does not
	// answer yet: whether it still runs. Default 5 s.
	WatchInterval time.Duration
	// EndedInterval is how often VMs of this node are checked for having ended.
	// Default 1 s.
	EndedInterval time.Duration
	// DeleteTimeout bounds one DeleteInstance. Default 10 min.
	DeleteTimeout time.Duration
	// MinBackoff and MaxBackoff bound the pauses between two tries to remove
	// a sandbox, which double. Defaults 250 ms and 30 s.
	MinBackoff, MaxBackoff time.Duration

	// Log defaults to slog.Default().
	Log *slog.Logger
	// Now defaults to time.Now.
	Now func() time.Time
	// Hook, for crash tests, is called at every Point. Default: nothing.
	Hook func(Point)
}

func (o *Options) setDefaults() {
	o.ForwarderPort = cmp.Or(o.ForwarderPort, 15150)
	if o.HandOver == nil {
		o.HandOver = handover.Send
	}
	o.ProxyTimeout = cmp.Or(o.ProxyTimeout, 5*time.Minute)
	o.VXLANPort = cmp.Or(o.VXLANPort, 4789)
	o.TunnelType = cmp.Or(o.TunnelType, podnetwork.TunnelVXLAN)
	o.SweepInterval = cmp.Or(o.SweepInterval, min(max(o.OrphanTimeout/4, time.Second), time.Minute))
	o.SweepGrace = cmp.Or(o.SweepGrace, 10*time.Minute)
	o.ListSettle = cmp.Or(o.ListSettle, 10*time.Second)
	o.WatchInterval = cmp.Or(o.WatchInterval, 5*time.Second)
	o.EndedInterval = cmp.Or(o.EndedInterval, time.Second)
	o.StopGrace = cmp.Or(o.StopGrace, 800*time.Millisecond)
	o.DeleteTimeout = cmp.Or(o.DeleteTimeout, 10*time.Minute)
	o.MinBackoff = cmp.Or(o.MinBackoff, 250*time.Millisecond)
	o.MaxBackoff = cmp.Or(o.MaxBackoff, 30*time.Second)
	o.Log = cmp.Or(o.Log, slog.Default())
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Hook == nil {
		o.Hook = func(Point) {}
	}
}

// Check reports everything that is wrong at once, except for the parts that may
// still be missing: provider, network, VNIs and relay.
func (o *Options) Check() error {
	o.setDefaults()
	var problems []error
	wrong := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, fmt.Errorf(format, args...))
		}
	}
	wrong(!filepath.IsAbs(o.PodsDir), "-pods-dir %q is not an absolute path", o.PodsDir)
	wrong(strings.Contains(o.PodsDir, ":"), "-pods-dir %q contains ':', which shims refuse in a socket path", o.PodsDir)
	wrong(o.ForwarderPort < 1 || o.ForwarderPort > 65535, "-forwarder-port %d is not between 1 and 65535", o.ForwarderPort)
	wrong(o.VXLANPort < 1 || o.VXLANPort > 65535, "-vxlan-port %d is not between 1 and 65535", o.VXLANPort)
	wrong(o.TunnelType == podnetwork.TunnelTLS && (o.TLS.Disabled || o.TLS.SkipVerify),
		"-tunnel-type tls (TUNNEL_TYPE) goes without -disable-tls and -tls-skip-verify: such a tunnel would protect nothing")
	wrong(o.ProxyTimeout <= 0, "-proxy-timeout %s is not positive", o.ProxyTimeout)
	wrong(o.OrphanTimeout < 0, "-orphan-timeout %s is negative", o.OrphanTimeout)
	wrong(!o.TLS.Disabled && o.TLS.OwnCA == nil && o.TLS.Issue == nil, "adaptor: no issuer of certificates")
	wrong(o.Pool.Size < 0, "-pool-size %d is negative", o.Pool.Size)
	wrong(o.Pool.Size > 0 && (o.TLS.Disabled || o.TLS.OwnCA != nil || o.Initdata != ""),
		"-pool-size goes without -disable-tls, an own CA and -initdata: a VM that waits needs certificates of its own, and takes no initdata")
	problems = append(problems, checkPatterns(o.PodImages), checkRegistries(o.InsecureRegistries))
	if o.AuthFile != "" {
		_, err := parseAuthFile(o.AuthFile)
		wrong(err != nil, "-auth-file: %v", err)
	}
	if ca := o.TLS.OwnCA; ca != nil {
		_, err := ca.read()
		wrong(err != nil, "own CA: %v", err)
		wrong(ca.ServerIdentity != "" && (o.TLS.Disabled || o.TLS.SkipVerify),
			"-server-identity (SERVER_IDENTITY) goes without -disable-tls and -tls-skip-verify: nobody would look at it")
		wrong(ca.ServerIdentity != "" && o.AuthFile != "",
			"-server-identity (SERVER_IDENTITY) goes without -auth-file (AUTH_FILE): user-data takes no secret then. Put the credentials at the key broker, and authenticated_registry_credentials_uri into the initdata")
	}
	return errors.Join(problems...)
}
