// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/kubeapi"
)

// requestTimeout bounds one request, so that an unreachable cluster is an error
// and not a long wait.
const requestTimeout = 30 * time.Second

// cluster is an API server.
type cluster struct {
	*kubeapi.Client
	config *rest.Config
}

func newCluster(config *rest.Config) (*cluster, error) {
	config = rest.CopyConfig(config)
	config.Timeout = requestTimeout
	config.WarningHandler = rest.NoWarnings{} // of deprecated kinds, which migrate finds
	client, err := kubeapi.New(config)
	if err != nil {
		return nil, fmt.Errorf("reach the cluster: %w", err)
	}
	return &cluster{client, config}, nil
}

// create makes an object. One that is there is left as it is.
func (c *cluster) create(ctx context.Context, at string, object any) error {
	if err := c.Create(ctx, at, object, nil); !apierrors.IsAlreadyExists(err) {
		return err
	}
	return nil
}

// remove begins the removal of an object; one that is gone is a success.
func (c *cluster) remove(ctx context.Context, at string) error {
	if err := c.Delete(ctx, at); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// list returns all pages of a collection.
func list[T any](ctx context.Context, c *cluster, at string, params map[string]string) ([]T, error) {
	return kubeapi.List[T](ctx, c.Client, at, params)
}

// core returns the path of a collection or object of the core group; an empty
// namespace is all of them.
func core(namespace string, parts ...string) string { return api(kubeapi.Core, namespace, parts...) }

// api is core for any group.
var api = kubeapi.Path

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
		return nil, unknownKind("PeerPods", err)
	}
	if err != nil {
		return nil, fmt.Errorf("list PeerPods: %w", err)
	}
	return items, nil
}

func unknownKind(kind string, err error) error {
	return fmt.Errorf("the cluster knows no %s: install Outrigger, or see `kubectl outrigger check`: %w", kind, err)
}

// configMap returns what is in a ConfigMap.
func (c *cluster) configMap(ctx context.Context, namespace, name string) (map[string]string, error) {
	var object struct {
		Data map[string]string `json:"data"`
	}
	err := c.Get(ctx, core(namespace, "configmaps", name), &object)
	return object.Data, err
}

// secret returns what is in a Secret, decoded.
func (c *cluster) secret(ctx context.Context, namespace, name string) (map[string]string, error) {
	var object struct {
		Data map[string][]byte `json:"data"`
	}
	if err := c.Get(ctx, core(namespace, "secrets", name), &object); err != nil {
		return nil, err
	}
	keys := make(map[string]string, len(object.Data))
	for name, value := range object.Data {
		keys[name] = string(value)
	}
	return keys, nil
}

const (
	probeContainer = "probe"
	// maxSaid bounds what is kept of a command's output, in bytes.
	maxSaid = 16 << 10
)

// execTarget is where a command runs, and how much of its output is kept, in bytes.
type execTarget struct {
	namespace, pod, container string
	most                      int
}

// exec runs a command in a pod, and returns what it has written. The error of one that fails is its error output.
type exec func(ctx context.Context, in execTarget, command []string) (string, error)

func (a *App) execIn(c *cluster) exec {
	if a.exec != nil {
		return a.exec
	}
	return c.exec
}

func (c *cluster) exec(ctx context.Context, in execTarget, command []string) (string, error) {
	at, err := c.URL(core(in.namespace, "pods", in.pod, "exec"), url.Values{"container": {in.container}, "stdout": {"true"}, "stderr": {"true"}, "command": command})
	if err != nil {
		return "", err
	}
	executor, err := remotecommand.NewWebSocketExecutor(c.config, http.MethodGet, at)
	if err != nil {
		return "", fmt.Errorf("run a command in pod %s: %w", in.pod, err)
	}
	out, errs := limited{most: in.most}, limited{most: maxSaid}
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &out, Stderr: &errs})
	if text := strings.TrimSpace(errs.String()); err != nil && text != "" {
		return "", errors.New(text)
	}
	return out.String(), err
}

// limited keeps the beginning of what is written.
type limited struct {
	bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	l.Buffer.Write(p[:min(len(p), l.most-l.Len())])
	return len(p), nil
}
