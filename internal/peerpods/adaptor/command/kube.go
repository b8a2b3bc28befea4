// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor/cluster"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
	providerconfig "github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// identityWait bounds the wait, at start, for each thing that is remembered.
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
		d.log.Info("NODE_NAME is set, but this is not part of a cluster: there is neither KUBECONFIG nor a service account")
		return nil, nil
	}
	if err != nil {
		return nil, program.UsageError(err)
	}
	asNode, err := cluster.NodeConfig(d.cfg.Kubelet)
	if err != nil {
		return nil, program.Usagef("-kubelet-kubeconfig (KUBELET_KUBECONFIG): %w", err)
	}
	if opts.Pool.Size > 0 {
		return nil, program.Usagef("-pool-size: in a cluster a pool is a PodVMPool: its controller would delete VMs that it does not know")
	}
	co := cluster.Options{
		Config: config, NodeConfig: asNode,
		NodeName: d.cfg.NodeName, Owner: d.owner(),
		Namespace: d.cfg.Namespace, Provider: d.name, ClusterID: opts.ClusterID, Limit: d.cfg.PodsLimit,
		GuestSteps: d.cfg.GuestSteps, Log: d.log,
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

// run starts the background work and returns a function that waits for its end,
// which comes with the daemon's context.
func (k *kube) run() (wait func()) {
	if k == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(k.ctx)
	done := make(chan struct{})
	go func() { defer close(done); k.Run(ctx) }()
	return func() { cancel(); <-done }
}

// owner identifies this adaptor, as opposed to the one that replaces it in an
// update.
func (d *daemon) owner() string {
	if uid := d.getenv("POD_UID"); uid != "" {
		return uid
	}
	return fmt.Sprintf("pid-%d-%d", os.Getpid(), time.Now().UnixNano())
}

// clusterID reads the cluster's identity.
func (d *daemon) clusterID(ctx context.Context, co *cluster.Options) string {
	id, err := d.remembered(ctx, ".cluster-id", func(ctx context.Context, insist bool) ([]byte, error) {
		id, err := cluster.Identity(ctx, co.Config, insist)
		return []byte(id), err
	})
	if err != nil {
		d.log.Warn("the cluster's identity (UID of namespace kube-system) cannot be read; without one, instances that are not on record here are never deleted", "known-from-before", string(id), "error", err)
	}
	return strings.TrimSpace(string(id))
}

// remembered asks the API server and saves the reply beside the records. While
// the API server is unreachable it returns the saved reply, if any, and the
// error.
func (d *daemon) remembered(ctx context.Context, name string, ask func(ctx context.Context, insist bool) ([]byte, error)) ([]byte, error) {
	file := filepath.Join(d.cfg.PodsDir, name)
	known, _ := os.ReadFile(file)
	ctx, cancel := context.WithTimeout(ctx, identityWait)
	defer cancel()
	answer, err := ask(ctx, len(known) == 0)
	if err != nil {
		return known, err
	}
	if err := errors.Join(os.MkdirAll(d.cfg.PodsDir, 0o700), os.WriteFile(file, answer, 0o600)); err != nil {
		d.log.Warn("the API server's reply cannot be saved for a start while it is unreachable", "file", file, "error", err)
	}
	return answer, nil
}

// open makes the provider of the flags, the environment and, where settings come
// from there too, the labels of this node.
func (d *daemon) open(ctx context.Context, cloud provider.CloudProvider) (provider.Provider, error) {
	cloud.LoadEnv()
	if binder, ok := cloud.(interface{ LoadFrom(func(string) string) }); ok {
		binder.LoadFrom(d.getenv) // it knows earlier names
	}
	err := providerconfig.FromNode(cloud, func(wanted []string) (map[string]string, error) { return d.nodeLabels(ctx, wanted) })
	if err != nil {
		return nil, err
	}
	return plugin.Open(ctx, cloud)
}

// nodeLabels returns those of wanted that this node has; none outside of a cluster.
func (d *daemon) nodeLabels(ctx context.Context, wanted []string) (map[string]string, error) {
	if d.getenv("NODE_NAME") == "" {
		return nil, nil
	}
	api, err := cluster.Config(d.getenv)
	if errors.Is(err, cluster.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, program.UsageError(err)
	}
	text, err := d.remembered(ctx, ".node-labels", func(ctx context.Context, insist bool) ([]byte, error) {
		labels, err := cluster.NodeLabels(ctx, api, d.cfg.NodeName, insist)
		if err != nil {
			return nil, err
		}
		maps.DeleteFunc(labels, func(name, _ string) bool { return !slices.Contains(wanted, name) })
		return json.Marshal(labels)
	})
	if err != nil && len(text) == 0 {
		return nil, fmt.Errorf("read the labels %s of node %s, which settings come from that are not set: %w", strings.Join(wanted, ", "), d.cfg.NodeName, err)
	}
	if err != nil {
		d.log.Warn("the labels of this node cannot be read", "known-from-before", string(text), "error", err)
	}
	var labels map[string]string
	if err := json.Unmarshal(text, &labels); err != nil {
		return nil, fmt.Errorf("the labels of this node, kept in %s: %w; remove the file", filepath.Join(d.cfg.PodsDir, ".node-labels"), err)
	}
	d.log.Info("settings come from labels of this node", "labels", labels)
	return labels, nil
}
