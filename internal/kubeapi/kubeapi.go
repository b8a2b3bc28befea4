// SPDX-License-Identifier: Apache-2.0

// Package kubeapi asks an API server in plain HTTP and JSON: of most objects a few fields are
// read, and typed clients would double a program.
package kubeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/redact"
)

// Core is the path of the core group.
const Core = "/api/v1"

// Path returns the path of a collection, an object or a subresource of a group, whose own path
// is such as [Core]. An empty namespace is all of them, or none. Some names come from users: one
// that would lead to another object makes a path that [Client] refuses.
func Path(group, namespace string, parts ...string) string {
	if namespace != "" {
		parts = append([]string{"namespaces", namespace}, parts...)
	}
	for _, part := range parts {
		group += "/" + url.PathEscape(part)
	}
	return group
}

// check returns an error for a path with a part that is not a name.
func check(at string) error {
	for part := range strings.SplitSeq(strings.TrimPrefix(at, "/"), "/") {
		if wrong := rest.IsValidPathSegmentName(part); part == "" || len(wrong) > 0 {
			return fmt.Errorf("%q is not the path of an object: a part is empty or not a name", redact.Line(at))
		}
	}
	return nil
}

// Client asks one API server.
type Client struct{ rest rest.Interface }

// Bounded returns a configuration with a limit of requests, if it has none: 50 a second. The
// library's default of 5 is meant for command lines that make one; the API server has limits of
// its own as well.
func Bounded(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	if config.QPS == 0 {
		config.QPS, config.Burst = 50, 100
	}
	return config
}

// New returns a client with the limits of [Bounded]. It connects nothing yet.
func New(config *rest.Config) (*Client, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for the server's errors
	config = Bounded(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	return &Client{client}, err
}

// Raw returns what is at a path.
func (c *Client) Raw(ctx context.Context, at string, params map[string]string) ([]byte, error) {
	return do(ctx, c.get(params), at)
}

// Get reads an object.
func (c *Client) Get(ctx context.Context, at string, into any) error {
	body, err := c.Raw(ctx, at, nil)
	return decode(body, err, into)
}

// Create makes an object in a collection, or has a review answered. What comes of it is written
// to into, unless that is nil.
func (c *Client) Create(ctx context.Context, at string, object, into any) error {
	return c.send(ctx, c.rest.Post().SetHeader("Content-Type", runtime.ContentTypeJSON), at, object, into)
}

// Delete begins the removal of an object.
func (c *Client) Delete(ctx context.Context, at string) error {
	_, err := do(ctx, c.rest.Delete(), at)
	return err
}

// DeleteIf is like Delete, of an object that the conditions are true of; else the error is a conflict.
func (c *Client) DeleteIf(ctx context.Context, at string, conditions metav1.Preconditions) error {
	return c.send(ctx, c.rest.Delete().SetHeader("Content-Type", runtime.ContentTypeJSON), at, metav1.DeleteOptions{Preconditions: &conditions}, nil)
}

// Watch returns the events of a collection, as JSON: each change after params' resourceVersion; without one, first each
// object that there is.
func (c *Client) Watch(ctx context.Context, at string, params map[string]string) (io.ReadCloser, error) {
	if err := check(at); err != nil {
		return nil, err
	}
	return c.get(params).AbsPath(at).Param("watch", "true").Stream(ctx)
}

func (c *Client) get(params map[string]string) *rest.Request {
	request := c.rest.Get()
	for name, value := range params {
		request = request.Param(name, value)
	}
	return request
}

// URL returns that of a path, for protocols of their own such as that of exec.
func (c *Client) URL(at string, query url.Values) (string, error) {
	if err := check(at); err != nil {
		return "", err
	}
	u := c.rest.Get().AbsPath(at).URL()
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// Patch sends a merge patch (RFC 7386), or of operations a JSON patch (RFC 6902).
func (c *Client) Patch(ctx context.Context, at string, patch any) error {
	return c.PatchInto(ctx, at, patch, nil)
}

// PatchInto is like Patch, and writes the object as it is then to into, unless that is nil.
func (c *Client) PatchInto(ctx context.Context, at string, patch, into any) error {
	kind := types.MergePatchType
	if _, list := patch.([]Operation); list {
		kind = types.JSONPatchType
	}
	return c.send(ctx, c.rest.Patch(kind), at, patch, into)
}

func (c *Client) send(ctx context.Context, request *rest.Request, at string, object, into any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	got, err := do(ctx, request.Body(body), at)
	return decode(got, err, into)
}

// do returns the body of a reply. Only [rest.Result.Error] holds the server's message about a
// failure; Raw alone has only the code.
func do(ctx context.Context, request *rest.Request, at string) ([]byte, error) {
	if err := check(at); err != nil {
		return nil, err
	}
	result := request.AbsPath(at).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

func decode(body []byte, err error, into any) error {
	if err != nil || into == nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// pageSize is how many objects one answer has.
const pageSize = 500

// List returns all pages of a collection.
func List[T any](ctx context.Context, c *Client, at string, params map[string]string) ([]T, error) {
	all, _, err := ListVersion[T](ctx, c, at, params)
	return all, err
}

// ListVersion is like List, and returns the resourceVersion from which a watch goes on.
func ListVersion[T any](ctx context.Context, c *Client, at string, params map[string]string) ([]T, string, error) {
	all, query := []T{}, map[string]string{"limit": fmt.Sprint(pageSize)}
	for name, value := range params {
		query[name] = value
	}
	for {
		body, err := c.Raw(ctx, at, query)
		if err != nil {
			return nil, "", err
		}
		var page struct {
			Metadata metav1.ListMeta `json:"metadata"`
			Items    []T             `json:"items"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, "", fmt.Errorf("%s: %w", at, err)
		}
		all = append(all, page.Items...)
		if page.Metadata.Continue == "" {
			return all, page.Metadata.ResourceVersion, nil
		}
		query["continue"] = page.Metadata.Continue
	}
}

// Operation is one of a JSON patch, which leaves alone what a program does not know of.
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Pointer writes the parts of a JSON pointer (RFC 6901).
func Pointer(parts ...string) string {
	var p strings.Builder
	for _, part := range parts {
		p.WriteByte('/')
		p.WriteString(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return p.String()
}
