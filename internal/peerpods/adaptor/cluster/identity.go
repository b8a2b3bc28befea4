// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// identityNamespace exists in each cluster from its first minute to its last,
// so its UID names the cluster.
const identityNamespace = "kube-system"

// Identity returns the UID of namespace kube-system. With insist it tries until
// ctx ends while the API server is unreachable.
func Identity(ctx context.Context, config *rest.Config, insist bool) (string, error) {
	p, err := metadata(ctx, config, "namespaces", identityNamespace, insist)
	return string(p.UID), err
}

// NodeLabels returns the labels of a node; see [Identity] for insist.
func NodeLabels(ctx context.Context, config *rest.Config, name string, insist bool) (map[string]string, error) {
	p, err := metadata(ctx, config, "nodes", name, insist)
	return p.Labels, err
}

func metadata(ctx context.Context, config *rest.Config, resource, name string, insist bool) (metav1.ObjectMeta, error) {
	api, err := kubeapi.New(config)
	if err != nil {
		return metav1.ObjectMeta{}, err
	}
	for {
		var object metav1.PartialObjectMetadata
		err := api.Get(ctx, kubeapi.Path(kubeapi.Core, "", resource, name), &object)
		if err == nil || !insist || !unreachable(err) || poll.Sleep(ctx, time.Second) != nil {
			return object.ObjectMeta, err
		}
	}
}
