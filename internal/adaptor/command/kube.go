// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/adaptor"
	"github.com/outrigger/outrigger/internal/adaptor/cluster"
)

// identityWait bounds the wait, at start, for the cluster's identity.
const identityWait = 20 * time.Second

// kube is the part in a cluster; nil outside of one.
type kube struct {
	*cluster.Cluster
	ctx context.Context
}

// joinCluster makes the adaptor a part of the cluster, if this is a node of
// one.
func (d *daemon) joinCluster(ctx context.Context, opts *adaptor.Options) (*kube, error) {
	if d.getenv("NODE_NAME") == "" {
		return nil, nil
	}
	config, err := cluster.Config(d.getenv)
	if errors.Is(err, cluster.ErrNone) {
		d.log.Info("NODE_NAME is set, but this is no part of a cluster: there is neither KUBECONFIG nor a service account")
		return nil, nil
	}
	if err != nil {
		return nil, usageError{err}
	}
	asNode, err := cluster.NodeConfig(d.cfg.kubelet)
	if err != nil {
		return nil, usagef("-kubelet-kubeconfig (KUBELET_KUBECONFIG): %w", err)
	}
	co := cluster.Options{
		Config: config, NodeConfig: asNode,
		NodeName: d.cfg.nodeName, Owner: d.owner(),
		Provider: d.name, ClusterID: opts.ClusterID, Limit: d.cfg.podsLimit,
		Log: d.log,
	}
	if co.ClusterID == "" {
		co.ClusterID = d.clusterID(ctx, &co)
		opts.ClusterID = co.ClusterID
	}
	c, err := cluster.New(co)
	if err != nil {
		return nil, err
	}
	opts.Cluster = c
	d.metrics.WatchCluster(c)
	return &kube{Cluster: c, ctx: ctx}, nil
}

// run starts the background; the answer waits for its end, which comes with
// the daemon's context.
func (k *kube) run() (wait func()) {
	if k == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(k.ctx)
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	return func() { cancel(); <-done }
}

// owner tells this adaptor from the one that an update puts in its place.
func (d *daemon) owner() string {
	if uid := d.getenv("POD_UID"); uid != "" {
		return uid
	}
	return fmt.Sprintf("pid-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// clusterID asks the cluster who it is. The answer is kept beside the records,
// for starts while the API server is away.
func (d *daemon) clusterID(ctx context.Context, co *cluster.Options) string {
	file := filepath.Join(d.cfg.podsDir, ".cluster-id")
	known, _ := os.ReadFile(file)
	ctx, cancel := context.WithTimeout(ctx, identityWait)
	defer cancel()
	id, err := cluster.Identity(ctx, co.Config, len(known) == 0)
	if err == nil {
		if err := errors.Join(os.MkdirAll(d.cfg.podsDir, 0o700), os.WriteFile(file, []byte(id), 0o600)); err != nil {
			d.log.Warn("the cluster's identity cannot be kept", "error", err)
		}
		return id
	}
	d.log.Warn("the cluster's identity (UID of namespace kube-system) cannot be read; without one, instances that are not on record here are never deleted", "known-from-before", string(known), "error", err)
	return strings.TrimSpace(string(known))
}
