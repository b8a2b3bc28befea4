// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// apiServer is one in memory. The controller has its client, nodes speak HTTP with it.
type apiServer struct {
	client.WithWatch
	// refuses is set while it accepts no writes.
	refuses atomic.Bool
	uids    atomic.Int64
	// writes counts those that there were.
	writes atomic.Int64
	// deleting makes a deletion with a precondition one step.
	deleting sync.Mutex
}

func newAPIServer() *apiServer {
	a := &apiServer{}
	a.WithWatch = fakeclient.NewClientBuilder().WithScheme(Scheme()).WithStatusSubresource(&v1alpha1.PeerPod{}, &v1alpha1.PodVMPool{}).
		WithIndex(&v1alpha1.PeerPod{}, indexPod, func(o client.Object) []string { return []string{string(claims.PodUID(o.(*v1alpha1.PeerPod)))} }).
		WithIndex(&v1alpha1.PeerPod{}, indexNode, func(o client.Object) []string { return []string{o.(*v1alpha1.PeerPod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
				o.SetCreationTimestamp(metav1.Now())
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", a.uids.Add(1))))
				defer a.writes.Add(1)
				return c.Create(ctx, o, options...)
			},
			Delete: a.remove,
			Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
				defer a.writes.Add(1)
				return c.Update(ctx, o, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				defer a.writes.Add(1)
				return c.Patch(ctx, o, patch, options...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				defer a.writes.Add(1)
				return c.SubResource(sub).Patch(ctx, o, patch, options...)
			},
		}).Build()
	return a
}

// remove adds what the library's does not look at: the UID.
func (a *apiServer) remove(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
	a.deleting.Lock()
	defer a.deleting.Unlock()
	defer a.writes.Add(1)
	of := (&client.DeleteOptions{}).ApplyOptions(options)
	if p := of.Preconditions; p != nil && p.UID != nil {
		now := o.DeepCopyObject().(client.Object)
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), now); err != nil {
			return err
		}
		if now.GetUID() != *p.UID {
			return apierrors.NewConflict(schema.GroupResource{Resource: "objects"}, o.GetName(), errors.New("it has another UID"))
		}
	}
	return c.Delete(ctx, o, options...)
}

// writable is an error while no writes are accepted.
func (a *apiServer) writable() error {
	if a.refuses.Load() {
		return apierrors.NewServiceUnavailable("the storage has no leader")
	}
	return nil
}

// collect is what the garbage collector does when a pod is gone.
func (a *apiServer) collect(ctx context.Context, owner types.UID) error {
	var all v1alpha1.PeerPodList
	if err := a.List(ctx, &all); err != nil {
		return err
	}
	for i := range all.Items {
		pp := &all.Items[i]
		if len(pp.OwnerReferences) > 0 && pp.OwnerReferences[0].UID == owner && pp.DeletionTimestamp == nil {
			if err := a.Delete(ctx, pp); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
	}
	return nil
}

// RoundTrip implements http.RoundTripper for the requests of nodes.
func (a *apiServer) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	code := http.StatusOK
	answer, err := a.answer(r, body)
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		of := status.Status()
		of.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
		answer, code = of, int(of.Code)
	} else if err != nil {
		return nil, err
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, nil
}

// target is what the path of a request names.
type target struct{ namespace, resource, name, subresource string }

func targetOf(path string) (t target) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	parts = parts[slices.Index(parts, "v1")+slices.Index(parts, v1alpha1.GroupVersion.Version)+2:] // one of them is -1
	if parts[0] == "namespaces" && len(parts) > 2 {
		t.namespace, parts = parts[1], parts[2:]
	}
	for i, to := range []*string{&t.resource, &t.name, &t.subresource} {
		if i < len(parts) {
			*to = parts[i]
		}
	}
	return t
}

func (a *apiServer) answer(r *http.Request, body []byte) (any, error) {
	ctx, t := r.Context(), targetOf(r.URL.Path)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := a.writable(); err != nil && r.Method != http.MethodGet {
		return nil, err
	}
	if t.resource == "events" {
		return json.RawMessage(body), nil
	}
	if r.Method == http.MethodGet && t.name == "" {
		return a.list(ctx, t, r.URL.Query())
	}
	object := map[string]client.Object{v1alpha1.Resource: &v1alpha1.PeerPod{}, "pods": &corev1.Pod{}, "secrets": &corev1.Secret{}, "nodes": &corev1.Node{}}[t.resource]
	if object == nil {
		return nil, fmt.Errorf("no node is to ask for %s", r.URL.Path)
	}
	object.SetNamespace(t.namespace)
	object.SetName(t.name)
	var err error
	switch r.Method {
	case http.MethodGet:
		err = a.Get(ctx, client.ObjectKeyFromObject(object), object)
	case http.MethodPost:
		err = errors.Join(json.Unmarshal(body, object), a.Create(ctx, object))
	case http.MethodDelete:
		var options metav1.DeleteOptions
		err = errors.Join(json.Unmarshal(body, &options), a.Delete(ctx, object, &client.DeleteOptions{Preconditions: options.Preconditions}))
	case http.MethodPatch:
		err = a.patch(ctx, object, t.subresource, client.RawPatch(types.MergePatchType, body))
	}
	if kind, bad := apiutil.GVKForObject(object, a.Scheme()); bad == nil {
		object.GetObjectKind().SetGroupVersionKind(kind)
	}
	return object, err
}

func (a *apiServer) patch(ctx context.Context, o client.Object, subresource string, p client.Patch) error {
	if subresource == "" {
		return a.Patch(ctx, o, p)
	}
	return a.SubResource(subresource).Patch(ctx, o, p)
}

func (a *apiServer) list(ctx context.Context, t target, query url.Values) (any, error) {
	byLabel, bad := labels.Parse(query.Get("labelSelector"))
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err = errors.Join(bad, err); err != nil {
		return nil, err
	}
	var list client.ObjectList = &v1alpha1.PeerPodList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PeerPodList"}}
	if t.resource == v1alpha1.PoolResource {
		list = &v1alpha1.PodVMPoolList{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PodVMPoolList"}}
	}
	options := []client.ListOption{client.InNamespace(t.namespace), client.MatchingLabelsSelector{Selector: byLabel}}
	if !byField.Empty() {
		options = append(options, client.MatchingFieldsSelector{Selector: byField})
	}
	return list, a.List(ctx, list, options...)
}
