// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
)

// requestTimeout bounds one request, so that an unreachable cluster is an error
// and not a long wait.
const requestTimeout = 30 * time.Second

// pageSize is how many objects one answer has.
const pageSize = 500

// cluster speaks plain HTTP and JSON: of most objects a few fields are read,
// and typed clients would double the program.
type cluster struct {
	client rest.Interface
	config *rest.Config
}

func newCluster(config *rest.Config) (*cluster, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for the server's errors
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = 50, 100
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return &cluster{client, config}, nil
}

// raw returns what is at a path of the API.
func (c *cluster) raw(ctx context.Context, at string, params map[string]string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := c.client.Get().AbsPath(at)
	for name, value := range params {
		request = request.Param(name, value)
	}
	return bodyOf(request.Do(ctx))
}

// bodyOf returns the body of a reply. Only [rest.Result.Error] holds the server's
// message about a failure; Raw alone has only the code.
func bodyOf(r rest.Result) ([]byte, error) {
	if err := r.Error(); err != nil {
		return nil, err
	}
	return r.Raw()
}

func (c *cluster) get(ctx context.Context, at string, into any) error {
	body, err := c.raw(ctx, at, nil)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// send makes a request with an object as its body, if there is one.
func (c *cluster) send(ctx context.Context, verb, at string, object any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := c.client.Verb(verb).AbsPath(at)
	if object != nil {
		body, err := json.Marshal(object)
		if err != nil {
			return nil, err
		}
		request = request.SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body)
	}
	return bodyOf(request.Do(ctx))
}

// ask creates a review, which the API server answers and does not keep.
func (c *cluster) ask(ctx context.Context, at string, review any) error {
	got, err := c.send(ctx, http.MethodPost, at, review)
	if err != nil {
		return err
	}
	return json.Unmarshal(got, review)
}

// create makes an object. One that is there is left as it is.
func (c *cluster) create(ctx context.Context, at string, object any) error {
	_, err := c.send(ctx, http.MethodPost, at, object)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// remove begins the removal of an object; one that is gone is a success.
func (c *cluster) remove(ctx context.Context, at string) error {
	if _, err := c.send(ctx, http.MethodDelete, at, nil); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// list returns all pages of a collection.
func list[T any](ctx context.Context, c *cluster, at string, params map[string]string) ([]T, error) {
	all, query := []T{}, map[string]string{"limit": fmt.Sprint(pageSize)}
	for name, value := range params {
		query[name] = value
	}
	for {
		body, err := c.raw(ctx, at, query)
		if err != nil {
			return nil, err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, nil
		}
		query["continue"] = page.Metadata.Continue
	}
}

// core returns the path of a collection or object of the core group; an empty
// namespace is all of them.
func core(namespace string, parts ...string) string { return api("/api/v1", namespace, parts...) }

func api(group, namespace string, parts ...string) string {
	if namespace != "" {
		group = path.Join(group, "namespaces", namespace)
	}
	return path.Join(append([]string{group}, parts...)...)
}

// Groups besides core.
const (
	apps          = "/apis/apps/v1"
	admission     = "/apis/admissionregistration.k8s.io/v1"
	definitions   = "/apis/apiextensions.k8s.io/v1"
	nodeGroup     = "/apis/node.k8s.io/v1"
	authorization = "/apis/authorization.k8s.io/v1"
)

var peerPodGroup = "/apis/" + v1alpha1.GroupVersion.String()

// peerPods lists them; without the definition the error says what to do.
func (c *cluster) peerPods(ctx context.Context, namespace string) ([]v1alpha1.PeerPod, error) {
	items, err := list[v1alpha1.PeerPod](ctx, c, api(peerPodGroup, namespace, v1alpha1.Resource), nil)
	if apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("the cluster knows no PeerPods: install Outrigger, or see `kubectl outrigger check`: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("list PeerPods: %w", err)
	}
	return items, nil
}

// configMap returns what is in a ConfigMap.
func (c *cluster) configMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	var object struct {
		Data map[string]string `json:"data"`
	}
	err := c.get(ctx, core(namespace, "configmaps", name), &object)
	return object.Data, err
}

// secret returns what is in a Secret, decoded.
func (c *cluster) secret(ctx context.Context, namespace, name string) (map[string]string, error) {
	var object struct {
		Data map[string][]byte `json:"data"`
	}
	if err := c.get(ctx, core(namespace, "secrets", name), &object); err != nil {
		return nil, err
	}
	keys := make(map[string]string, len(object.Data))
	for name, value := range object.Data {
		keys[name] = string(value)
	}
	return keys, nil
}
