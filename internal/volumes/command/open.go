// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudapi "k8s.io/cloud-provider/api"
	"k8s.io/mount-utils"
	"k8s.io/utils/exec"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/providerid"
	"github.com/outrigger/outrigger/internal/variables"
	"github.com/outrigger/outrigger/internal/volumes"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/poll"
	"github.com/outrigger/outrigger/provider/plugin"
)

// openProvider opens the provider by the variables of the process; closeAll releases it.
func openProvider(ctx context.Context, asked string, getenv func(string) string, log *slog.Logger) (p provider.Provider, closeAll func() error, err error) {
	loaded, err := plugin.Load(ctx, plugin.Options{Name: asked, Getenv: getenv, Log: log})
	if errors.Is(err, plugin.ErrUnsupported) {
		return nil, nil, program.Usagef("-cloud-provider (CLOUD_PROVIDER) %s: %w", asked, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("-cloud-provider (CLOUD_PROVIDER) %s: %w", asked, err)
	}
	if _, ok := loaded.Cloud.(config.Configurable); ok {
		p, err = variables.Open(ctx, loaded.Cloud, nil, getenv)
	} else {
		p, err = variables.OpenByEnvironment(ctx, loaded.Cloud)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("provider %s: %w", asked, err), loaded.Close())
	}
	return p, func() error { return errors.Join(provider.Teardown(context.Background(), p), loaded.Close()) }, nil
}

// clusterID returns what the owner tags of instances have as well: CLUSTER_ID or, without it, the
// UID of the oldest namespace.
func (s *settings) clusterID(ctx context.Context, api client.Reader) (string, error) {
	if s.Cluster != "" {
		return s.Cluster, nil
	}
	var namespace corev1.Namespace
	if err := api.Get(ctx, client.ObjectKey{Name: metav1.NamespaceSystem}, &namespace); err != nil {
		return "", fmt.Errorf("read namespace %s, whose UID is the cluster's identity unless -cluster-id (CLUSTER_ID) gives one: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}

// node returns what the Node object says of this node, and the folders of it.
func (s *settings) node(ctx context.Context, api client.Reader, log *slog.Logger) (*volumes.NodeOptions, error) {
	if s.Wrap != "" { // the wrapped driver knows the node
		return &volumes.NodeOptions{Records: directvolume.Root, Mounts: mount.NewSafeFormatAndMount(mount.New(""), exec.New())}, nil
	}
	node, err := s.initialized(ctx, api, log)
	if err != nil {
		return nil, fmt.Errorf("-node-name (NODE_NAME) %s: read the Node, which has providerID and zone: %w", s.NodeName, err)
	}
	o := &volumes.NodeOptions{
		ID: node.Name, Zone: node.Labels[corev1.LabelTopologyZone], MaxVolumes: int64(s.MaxVolumes),
		Records: directvolume.Root, Mounts: mount.NewSafeFormatAndMount(mount.New(""), exec.New()), Sys: "/sys", Dev: "/dev",
	}
	if ref, ours := providerid.Parse(s.provider(), node.Spec.ProviderID); ours {
		o.ID = ref.ID
	}
	return o, nil
}

// initialized returns the Node when the cloud controller manager, if there is one, has given it its
// providerID: what the driver registers stays until it is started again.
func (s *settings) initialized(ctx context.Context, api client.Reader, log *slog.Logger) (*corev1.Node, error) {
	for waiting := false; ; waiting = true {
		node := &corev1.Node{}
		if err := api.Get(ctx, client.ObjectKey{Name: s.NodeName}, node); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == cloudapi.TaintExternalCloudProvider }) {
			return node, nil
		}
		if !waiting {
			log.Info("waiting until a cloud controller manager initializes the Node", "node", s.NodeName, "taint", cloudapi.TaintExternalCloudProvider)
		}
		if err := poll.Sleep(ctx, time.Second); err != nil {
			return nil, err
		}
	}
}

// meters are the program's own metrics.
type meters struct{ took *prometheus.HistogramVec }

func newMeters(registry prometheus.Registerer) *meters {
	m := &meters{prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "outrigger_csi_request_seconds", Help: "Duration of requests to the driver, by method and code of the reply.",
		Buckets: prometheus.ExponentialBuckets(0.005, 4, 9),
	}, []string{"method", "code"})}
	var there prometheus.AlreadyRegisteredError
	if errors.As(registry.Register(m.took), &there) { // a second run in one process
		m.took = there.ExistingCollector.(*prometheus.HistogramVec)
	}
	return m
}

func (m *meters) observe(r volumes.Request) {
	m.took.WithLabelValues(r.Method, r.Code.String()).Observe(r.Took.Seconds())
}
