// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// identityNamespace exists in each cluster from its first minute to its last,
// so its UID names the cluster.
const identityNamespace = "kube-system"

// Identity answers the UID of namespace kube-system. With insist it tries until
// ctx ends while the API server is away.
func Identity(ctx context.Context, config *rest.Config, insist bool) (string, error) {
	api, err := newAPI(config)
	if err != nil {
		return "", err
	}
	for {
		var namespace struct {
			Metadata metav1.ObjectMeta `json:"metadata"`
		}
		err := api.get(ctx, "", "namespaces", identityNamespace, &namespace)
		if err == nil || !insist || !away(err) || !pause(ctx, time.Second) {
			return string(namespace.Metadata.UID), err
		}
	}
}
