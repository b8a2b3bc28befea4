// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
)

// REST is an [API] over plain HTTP: no caches, no discovery, little memory.
type REST struct{ client *kubeapi.Client }

var _ API = (*REST)(nil)

// NewREST connects nothing yet.
func NewREST(config *rest.Config) (*REST, error) {
	client, err := kubeapi.New(config)
	return &REST{client}, err
}

// path is that of a collection of this group, of an object or of a subresource.
func path(namespace string, parts ...string) string {
	return kubeapi.Path("/apis/"+v1alpha1.GroupVersion.String(), namespace, parts...)
}

// Get implements [API].
func (r *REST) Get(ctx context.Context, namespace, name string) (*v1alpha1.PeerPod, error) {
	pp := &v1alpha1.PeerPod{}
	return pp, r.client.Get(ctx, path(namespace, v1alpha1.Resource, name), pp)
}

// Create implements [API].
func (r *REST) Create(ctx context.Context, pp *v1alpha1.PeerPod) (*v1alpha1.PeerPod, error) {
	made := &v1alpha1.PeerPod{}
	return made, r.client.Create(ctx, path(pp.Namespace, v1alpha1.Resource), pp, made)
}

// Patch implements [API].
func (r *REST) Patch(ctx context.Context, namespace, name, subresource string, patch []byte) (*v1alpha1.PeerPod, error) {
	parts := []string{v1alpha1.Resource, name}
	if subresource != "" {
		parts = append(parts, subresource)
	}
	now := &v1alpha1.PeerPod{}
	return now, r.client.PatchInto(ctx, path(namespace, parts...), json.RawMessage(patch), now)
}

// Delete implements [API].
func (r *REST) Delete(ctx context.Context, namespace, name string, uid types.UID) error {
	return r.client.DeleteIf(ctx, path(namespace, v1alpha1.Resource, name), metav1.Preconditions{UID: &uid})
}

// OfNode lists the PeerPods of one node in all namespaces.
func (r *REST) OfNode(ctx context.Context, node string) ([]v1alpha1.PeerPod, error) {
	return kubeapi.List[v1alpha1.PeerPod](ctx, r.client, path("", v1alpha1.Resource), map[string]string{"fieldSelector": ofNode(node)})
}

// Pools lists the PodVMPools.
func (r *REST) Pools(ctx context.Context) ([]v1alpha1.PodVMPool, error) {
	return kubeapi.List[v1alpha1.PodVMPool](ctx, r.client, path("", v1alpha1.PoolResource), nil)
}

// OfPool lists the PeerPods of the VMs of one pool that no pod has taken.
func (r *REST) OfPool(ctx context.Context, namespace, pool string) ([]v1alpha1.PeerPod, error) {
	return kubeapi.List[v1alpha1.PeerPod](ctx, r.client, path(namespace, v1alpha1.Resource), map[string]string{
		"labelSelector": LabelPool + "=" + pool, "fieldSelector": ofNode(""),
	})
}

func ofNode(name string) string { return fields.OneTermEqualSelector("spec.nodeName", name).String() }

// ClusterID returns the identity that a cluster has when nobody gave it one:
// the UID of its oldest namespace, which lives as long as the cluster.
func ClusterID(ctx context.Context, config *rest.Config) (string, error) {
	api, err := kubeapi.New(config)
	if err != nil {
		return "", err
	}
	var namespace metav1.PartialObjectMetadata
	if err := api.Get(ctx, kubeapi.Path(kubeapi.Core, "", "namespaces", metav1.NamespaceSystem), &namespace); err != nil {
		return "", fmt.Errorf("read namespace %s, whose UID is the cluster's identity unless CLUSTER_ID gives one: %w", metav1.NamespaceSystem, err)
	}
	return string(namespace.UID), nil
}
