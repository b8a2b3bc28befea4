// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
)

// claimsAPI is the claims.API over the manager's clients. It reads past the
// cache, so that what follows a conflict is decided from the newest object.
type claimsAPI struct {
	writer client.Client
	reader client.Reader
}

func (a claimsAPI) Get(ctx context.Context, namespace, name string) (*v1alpha1.PeerPod, error) {
	pp := &v1alpha1.PeerPod{}
	return pp, a.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, pp)
}

func (a claimsAPI) Create(ctx context.Context, pp *v1alpha1.PeerPod) (*v1alpha1.PeerPod, error) {
	return pp, a.writer.Create(ctx, pp)
}

func (a claimsAPI) Patch(ctx context.Context, namespace, name, subresource string, patch []byte) (*v1alpha1.PeerPod, error) {
	pp := &v1alpha1.PeerPod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	raw := client.RawPatch(types.MergePatchType, patch)
	if subresource == "" {
		return pp, a.writer.Patch(ctx, pp, raw)
	}
	return pp, a.writer.SubResource(subresource).Patch(ctx, pp, raw)
}

func (a claimsAPI) Delete(ctx context.Context, namespace, name string, uid types.UID) error {
	pp := &v1alpha1.PeerPod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	return a.writer.Delete(ctx, pp, client.Preconditions{UID: &uid})
}
