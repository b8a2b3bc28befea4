// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

var (
	_ reconciler.ClusterBackend = (*Backend)(nil)
	_ reconciler.MachineBackend = (*Backend)(nil)
	_ reconciler.Warner         = (*Backend)(nil)
)

// LoadBalancerAvailableCondition says whether the load balancer runs.
const LoadBalancerAvailableCondition = "LoadBalancerAvailable"

// Reasons of waits.
const (
	ReasonPullingImage     = "PullingImage"
	ReasonRunning          = "Running"
	ReasonDisabled         = "Disabled"
	ReasonNoNetwork        = "WaitingForNetwork"
	ReasonContainerRemoved = "ContainerRemoved"
)

// How often the engine is polled: while something is going on, while something
// is wrong, and while all is well. What has an event, or ends in this process,
// is seen at once.
const (
	soon    = time.Second
	healing = 5 * time.Second
	later   = time.Minute
)

// EnsureCluster implements reconciler.ClusterBackend.
func (b *Backend) EnsureCluster(ctx context.Context, scope *reconciler.ClusterScope) (reconciler.ClusterState, error) {
	infra, ok := scope.Infra.(*infrav1.DockerCluster)
	if !ok {
		return reconciler.ClusterState{}, fmt.Errorf("%w: %T is not a DockerCluster", provider.ErrInvalidArgument, scope.Infra)
	}
	there := infra.Status.Initialization.Provisioned != nil && *infra.Status.Initialization.Provisioned
	wanted, err := familiesOf(scope.Cluster)
	if err != nil && !there {
		return reconciler.ClusterState{}, err
	}
	id := clusterIdentity(scope.Key, infra)
	n, err := b.ensureNetwork(ctx, id, infra.Spec.Subnet, wanted)
	if err == nil && !there { // one that is there keeps what it was made with
		err = n.suits(wanted)
	}
	state := reconciler.ClusterState{FailureDomains: infra.Spec.FailureDomains, RequeueAfter: later}
	if err == nil {
		state, err = b.ensureEndpoint(ctx, id, n, infra.Spec, portOf(scope.Cluster))
	}
	err = classify(err)
	if there && reasonIs(err, balancerDown...) {
		var p *problem
		errors.As(err, &p)
		state.Reason, state.Message, state.RequeueAfter = p.reason, err.Error(), healing
		state.Conditions = []metav1.Condition{isFalse(LoadBalancerAvailableCondition, state.Reason, state.Message)}
		return state, nil
	}
	return state, err
}

// balancerDown are the reasons that mean that an existing load balancer is
// gone, so that the cluster is not healthy. With an unreachable engine nothing
// is known.
var balancerDown = []string{ReasonBalancerFails, ReasonPortTaken, ReasonAddressTaken, ReasonNameTaken, ReasonImageMissing, ReasonDiskFull}

func clusterIdentity(key string, o metav1.Object) identity {
	return identity{key: key, cluster: key, namespace: o.GetNamespace(), name: o.GetName()}
}

func portOf(cluster *clusterv1.Cluster) int {
	if cluster == nil || cluster.Spec.ClusterNetwork.APIServerPort == 0 {
		return defaultPort
	}
	return int(cluster.Spec.ClusterNetwork.APIServerPort)
}

// ensureEndpoint makes what the control plane is reached by, in a cluster's network.
func (b *Backend) ensureEndpoint(ctx context.Context, id identity, n *clusterNetwork, spec infrav1.DockerClusterSpec, port int) (reconciler.ClusterState, error) {
	state := reconciler.ClusterState{FailureDomains: spec.FailureDomains, RequeueAfter: later}
	state.Endpoint = spec.ControlPlaneEndpoint
	if spec.DisableLoadBalancer {
		if state.Provisioned = true; state.Endpoint.Host == "" { // the first machine of the control plane will have it
			state.Endpoint = clusterv1.APIEndpoint{Host: n.at(n.reserved()).first(n.families).String(), Port: int32(port)}
		}
		state.Conditions = []metav1.Condition{isTrue(LoadBalancerAvailableCondition, ReasonDisabled)}
		return state, nil
	}
	l := b.wanted(id, n, spec, port)
	var err error
	if l.template, err = b.templateOf(ctx, id.namespace, spec.LoadBalancer.CustomHAProxyConfigTemplateRef.Name); err != nil {
		return state, err
	}
	done, err := b.ensureBalancer(ctx, &l)
	switch {
	case err != nil:
		return state, err
	case !done:
		state.Reason, state.Message, state.RequeueAfter = ReasonPullingImage, "the engine pulls "+l.image, later
		state.Conditions = []metav1.Condition{isFalse(LoadBalancerAvailableCondition, state.Reason, state.Message)}
		return state, nil
	}
	if state.Provisioned = true; state.Endpoint.Host == "" {
		state.Endpoint = b.endpoint(l)
	}
	state.Conditions = []metav1.Condition{isTrue(LoadBalancerAvailableCondition, ReasonRunning)}
	return state, nil
}

// DeleteCluster implements reconciler.ClusterBackend. It also removes what is left
// of machines whose objects were removed by force: nothing else would.
func (b *Backend) DeleteCluster(ctx context.Context, scope *reconciler.ClusterScope) (gone bool, err error) {
	gone, err = b.deleteCluster(ctx, scope.Key)
	return gone, classify(err)
}

func (b *Backend) deleteCluster(ctx context.Context, key string) (gone bool, err error) {
	containers, err := b.containers(ctx, labelCluster, key)
	if err != nil {
		return false, err
	}
	for _, c := range containers {
		if err := b.remove(ctx, c.ID); err != nil {
			return false, err
		}
	}
	volumes, err := b.removeVolumes(ctx, labelCluster, key)
	if err != nil {
		return false, err
	}
	networks, err := b.networks(ctx, key)
	if err != nil {
		return false, err
	}
	for _, n := range networks {
		if err := b.removeNetwork(ctx, n); err != nil {
			return false, err
		}
	}
	if len(containers)+volumes+len(networks) == 0 {
		return true, nil
	}
	// Removals count once nothing is found.
	if containers, err = b.containers(ctx, labelCluster, key); err != nil {
		return false, err
	}
	networks, err = b.networks(ctx, key)
	return len(containers)+len(networks) == 0, err
}

func isTrue(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
}

func isFalse(kind, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}
