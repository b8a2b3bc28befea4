// SPDX-License-Identifier: Apache-2.0

//go:build integration

package guide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// kubelet plays those of all Nodes. It says that the Nodes are Ready, and runs
// the one container of each pod that is scheduled: the image's files are its
// root, the pod's volumes are mounted there, and its arguments are the pod's.
// Ports alone are others, since the network is this machine's.
type kubelet struct {
	testing.TB
	api    *cluster.ControlPlane
	client kubernetes.Interface
	dir    string
	images map[string]image // by name
	pods   map[types.UID]*pod
}

func startKubelet(t testing.TB, api *cluster.ControlPlane) {
	client, err := kubernetes.NewForConfig(api.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	k := &kubelet{TB: t, api: api, client: client, dir: stand.Dir(t), images: map[string]image{}, pods: map[types.UID]*pod{}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := k.look(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				t.Logf("the test's kubelet tries again: %v", err) // the guide waits without result if that goes on
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		for _, p := range k.pods {
			p.stop()
		}
	})
}

func (k *kubelet) look(ctx context.Context) error {
	nodes, err := k.client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range nodes.Items {
		if err := k.register(ctx, &nodes.Items[i]); err != nil {
			return err
		}
	}
	pods, err := k.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName!="})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if err := k.keep(ctx, &pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// register returns what a kubelet says of its Node.
func (k *kubelet) register(ctx context.Context, n *corev1.Node) error {
	if len(n.Status.Allocatable) > 0 {
		return nil
	}
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("10")}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady"})
	_, err := k.client.CoreV1().Nodes().UpdateStatus(ctx, n, metav1.UpdateOptions{})
	return err
}

// keep brings a pod one step further.
func (k *kubelet) keep(ctx context.Context, is *corev1.Pod) error {
	p := k.pods[is.UID]
	if p == nil && is.DeletionTimestamp == nil {
		p = &pod{kubelet: k, Pod: is, dir: filepath.Join(k.dir, string(is.UID)), port: cluster.HoldPort(k), metrics: cluster.HoldPort(k)}
		k.pods[is.UID] = p
	}
	switch {
	case is.DeletionTimestamp != nil:
		if p != nil {
			p.stop()
		}
		return k.client.CoreV1().Pods(is.Namespace).Delete(ctx, is.Name, *metav1.NewDeleteOptions(0))
	case p.process != nil && p.over():
		p.process = nil
		return p.tell(ctx, is, false, p.lastWords())
	case p.process == nil && time.Since(p.started) > time.Second:
		if err := p.start(ctx); err != nil {
			var missing errMissing
			if errors.As(err, &missing) {
				return nil // as a kubelet waits for it
			}
			return fmt.Errorf("pod %s: %w", is.Name, err)
		}
	case p.process != nil && !p.ready && p.answers():
		p.ready = true
		return p.tell(ctx, is, true, "")
	}
	return nil
}

// image is one that was pulled.
type image struct {
	dir        string // of its files
	entrypoint []string
}

func (k *kubelet) pull(ctx context.Context, ref string) (image, error) {
	if i, has := k.images[ref]; has {
		return i, nil
	}
	at, err := name.ParseReference(ref)
	if err != nil {
		return image{}, err
	}
	pulled, err := remote.Image(at, remote.WithContext(ctx))
	if err != nil {
		return image{}, err
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		return image{}, err
	}
	i := image{dir: filepath.Join(k.dir, fmt.Sprintf("image%d", len(k.images))), entrypoint: config.Config.Entrypoint}
	if err := os.MkdirAll(i.dir, 0o755); err != nil {
		return image{}, err
	}
	files := mutate.Extract(pulled)
	defer files.Close()
	tar := exec.CommandContext(ctx, "tar", "--extract", "--directory", i.dir)
	tar.Stdin = files
	if out, err := tar.CombinedOutput(); err != nil {
		return image{}, fmt.Errorf("%w: %s", err, out)
	}
	k.images[ref] = i
	return i, nil
}

// token is a service account's, as pods have one.
func (k *kubelet) token(namespace, account string, audience string) (string, error) {
	args := []string{"create", "token", account, "--namespace=" + namespace, "--duration=1h"}
	if audience != "" {
		args = append(args, "--audience="+audience)
	}
	out, err := k.api.TryKubectl(args...)
	return strings.TrimSpace(out), err
}
