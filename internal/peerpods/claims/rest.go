// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
)

// REST is an [API] over plain HTTP: no caches, no discovery, little memory.
type REST struct {
	client rest.Interface
	params runtime.ParameterCodec
}

var _ API = (*REST)(nil)

// NewREST connects nothing yet.
func NewREST(config *rest.Config) (*REST, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.GroupVersion = &v1alpha1.GroupVersion
	config.APIPath = "/apis"
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return &REST{client, runtime.NewParameterCodec(scheme)}, nil
}

// Get implements [API].
func (r *REST) Get(ctx context.Context, namespace, name string) (*v1alpha1.PeerPod, error) {
	return into(ctx, r.client.Get().Namespace(namespace).Resource(v1alpha1.Resource).Name(name))
}

// Create implements [API].
func (r *REST) Create(ctx context.Context, pp *v1alpha1.PeerPod) (*v1alpha1.PeerPod, error) {
	return into(ctx, r.client.Post().Namespace(pp.Namespace).Resource(v1alpha1.Resource).Body(pp))
}

// Patch implements [API].
func (r *REST) Patch(ctx context.Context, namespace, name, subresource string, patch []byte) (*v1alpha1.PeerPod, error) {
	request := r.client.Patch(types.MergePatchType).Namespace(namespace).Resource(v1alpha1.Resource).Name(name).Body(patch)
	if subresource != "" {
		request = request.SubResource(subresource)
	}
	return into(ctx, request)
}

// Delete implements [API].
func (r *REST) Delete(ctx context.Context, namespace, name string, uid types.UID) error {
	return r.client.Delete().Namespace(namespace).Resource(v1alpha1.Resource).Name(name).
		Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}).Do(ctx).Error()
}

// OfNode lists the PeerPods of one node in all namespaces.
func (r *REST) OfNode(ctx context.Context, node string) ([]v1alpha1.PeerPod, error) {
	options := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	var list v1alpha1.PeerPodList
	err := r.client.Get().Resource(v1alpha1.Resource).VersionedParams(&options, r.params).Do(ctx).Into(&list)
	return list.Items, err
}

// Pools lists the PodVMPools.
func (r *REST) Pools(ctx context.Context) ([]v1alpha1.PodVMPool, error) {
	var list v1alpha1.PodVMPoolList
	err := r.client.Get().Resource(v1alpha1.PoolResource).Do(ctx).Into(&list)
	return list.Items, err
}

// OfPool lists the PeerPods of the VMs of one pool that no pod has taken.
func (r *REST) OfPool(ctx context.Context, namespace, pool string) ([]v1alpha1.PeerPod, error) {
	options := metav1.ListOptions{LabelSelector: LabelPool + "=" + pool, FieldSelector: fields.OneTermEqualSelector("spec.nodeName", "").String()}
	var list v1alpha1.PeerPodList
	err := r.client.Get().Namespace(namespace).Resource(v1alpha1.Resource).VersionedParams(&options, r.params).Do(ctx).Into(&list)
	return list.Items, err
}

func into(ctx context.Context, request *rest.Request) (*v1alpha1.PeerPod, error) {
	pp := &v1alpha1.PeerPod{}
	return pp, request.Do(ctx).Into(pp)
}

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
