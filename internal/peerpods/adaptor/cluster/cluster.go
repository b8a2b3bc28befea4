// SPDX-License-Identifier: Apache-2.0

// Package cluster is the adaptor's part in a Kubernetes cluster: it claims
// instances with PeerPods, reports what happens to a Pod's VM in Events,
// advertises how many VMs the node may have, and fetches what a pod's VM needs
// to pull images.
//
// Pods start and stop without the API server. What could not be written is
// written later, from the journal: the record of a sandbox stays until its
// PeerPod is released.
//
// It uses plain HTTP requests for the few fields it needs. Kubernetes' Go types
// of pods, secrets and nodes would add 7 MB to a daemon that runs on every
// node.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Options is all that a Cluster needs. Zero values marked so have defaults.
type Options struct {
	// Config reaches the API server as the adaptor.
	Config *rest.Config
	// NodeConfig, if any, reaches it as the node, for Secrets of its pods.
	NodeConfig *rest.Config
	// NodeName is the node's object; Owner is this adaptor's pod (its UID).
	NodeName, Owner string
	// Namespace has the VMs of pools and the Secret with which this node takes one; empty:
	// none is taken.
	Namespace string
	// Provider and ClusterID stand in PeerPods.
	Provider, ClusterID string
	// Limit is how many pod VMs the node advertises; negative: it does not.
	Limit int
	// GuestSteps has the steps of guests written into PeerPods, which is a write more for
	// each pod.
	GuestSteps bool
	// ClaimWait bounds how long a sandbox waits for the API server. Default 2 s.
	ClaimWait time.Duration
	// AwayWait replaces ClaimWait while the API server is unreachable. Default
	// 200 ms.
	AwayWait time.Duration
	// MinRetry and MaxRetry bound the backoff between attempts, which doubles.
	// Defaults 200 ms and 15 s.
	MinRetry, MaxRetry time.Duration
	// Resync is the pause between two looks at the node and at its PeerPods.
	// Default 1 min.
	Resync time.Duration
	// Log defaults to slog.Default(), Now to time.Now.
	Log *slog.Logger
	Now func() time.Time
}

func (o *Options) complete() error {
	if o.Config == nil || o.NodeName == "" {
		return errors.New("cluster: the API server and the node's name are required")
	}
	for field, value := range map[*time.Duration]time.Duration{
		&o.ClaimWait: 2 * time.Second, &o.AwayWait: 200 * time.Millisecond,
		&o.MinRetry: 200 * time.Millisecond, &o.MaxRetry: 15 * time.Second, &o.Resync: time.Minute,
	} {
		if *field == 0 {
			*field = value
		}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return nil
}

// Cluster is an [adaptor.Cluster]. Make it with New, Run it beside the service
// and Close it after the service.
type Cluster struct {
	opts    Options
	api     *kubeapi.Client
	secrets []reader
	claims  *tracker
	events  *recorder
	node    *nodeResource
	pools   pools

	// failing is set while the API server is unreachable.
	failing atomic.Bool
	work    sync.WaitGroup
}

var _ adaptor.Cluster = (*Cluster)(nil)

// New connects nothing yet: the API server may be unreachable.
func New(opts Options) (*Cluster, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, pools: pools{waiting: map[string]candidates{}}}
	var err error
	if c.api, err = kubeapi.New(opts.Config); err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	peerPods, err := claims.NewREST(opts.Config)
	if err != nil {
		return nil, fmt.Errorf("API server: %w", err)
	}
	if opts.NodeConfig != nil {
		asNode, err := kubeapi.New(opts.NodeConfig)
		if err != nil {
			return nil, fmt.Errorf("API server as the node: %w", err)
		}
		c.secrets = append(c.secrets, reader{"the node", asNode})
	}
	c.secrets = append(c.secrets, reader{"the adaptor's service account", c.api})
	c.events = newRecorder(c)
	c.claims = newClaims(c, peerPods)
	c.node = &nodeResource{cluster: c}
	return c, nil
}

// Run works in the background until ctx ends. When it returns the node's
// resource is withdrawn, if it is still this adaptor's.
func (c *Cluster) Run(ctx context.Context) {
	c.work.Go(func() { c.events.run(ctx) })
	c.work.Go(func() { c.claims.run(ctx) })
	c.work.Go(func() { c.claims.resync(ctx) })
	c.node.run(ctx)
	c.work.Wait()
}

// Observe implements [adaptor.Observer].
func (c *Cluster) Observe(change adaptor.Change) {
	c.claims.observe(change)
	c.events.observe(change)
}

// Pod implements [adaptor.Cluster].
func (c *Cluster) Pod(ctx context.Context, namespace, name string) (adaptor.Pod, error) {
	p, err := c.pod(ctx, namespace, name)
	if err != nil {
		return adaptor.Pod{}, err
	}
	return adaptor.Pod{UID: string(p.Metadata.UID), Initdata: p.Metadata.Annotations[cloudinit.InitDataAnnotation]}, nil
}

// errElsewhere means that a pod of that name runs on another node, so it is not
// this sandbox's.
var errElsewhere = errors.New("the pod of that name is on another node")

func (c *Cluster) pod(ctx context.Context, namespace, name string) (*pod, error) {
	ctx, cancel := c.withClaimTimeout(ctx)
	defer cancel()
	return c.lookup(ctx, namespace, name)
}

func (c *Cluster) lookup(ctx context.Context, namespace, name string) (*pod, error) {
	p := new(pod)
	err := c.noteReachable(c.api.Get(ctx, kubeapi.Path(kubeapi.Core, namespace, "pods", name), p))
	if err == nil && p.Spec.NodeName != "" && p.Spec.NodeName != c.opts.NodeName {
		return nil, fmt.Errorf("%w (%s)", errElsewhere, p.Spec.NodeName)
	}
	return p, err
}

// noSuchPod reports whether err means that the cluster has no pod for this
// sandbox.
func noSuchPod(err error) bool {
	return apierrors.IsNotFound(err) || errors.Is(err, errElsewhere)
}

// withClaimTimeout limits how long a sandbox waits for the API server. While the
// API server is unreachable the limit is short: otherwise each pod would wait for
// the full time.
func (c *Cluster) withClaimTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := c.opts.ClaimWait
	if c.failing.Load() {
		wait = c.opts.AwayWait
	}
	return context.WithTimeout(ctx, wait)
}

// noteReachable records, from the error of a request, whether the API server is
// reachable. It returns err.
func (c *Cluster) noteReachable(err error) error {
	failing := unreachable(err) && !errors.Is(err, context.Canceled)
	if was := c.failing.Swap(failing); was != failing {
		if failing {
			c.opts.Log.Warn("the API server is unreachable; pods start and stop without it, and PeerPods and Events are written later", "error", err)
		} else {
			c.opts.Log.Info("the API server is reachable again")
		}
	}
	return err
}

// Away reports whether the API server did not answer the last request.
func (c *Cluster) Away() bool { return c.failing.Load() }

// Backlog returns how many PeerPods are still to be written.
func (c *Cluster) Backlog() int { return c.claims.backlog() }

// DroppedEvents returns how many Events were never written.
func (c *Cluster) DroppedEvents() int64 { return c.events.dropped.Load() }
