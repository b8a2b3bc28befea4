// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger/outrigger/provider"
)

// store keeps the state in a ConfigMap.
type store struct {
	maps typed.ConfigMapInterface
	name string
}

// namespaceFile says which namespace a pod is in.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func newStore(cfg Config) (*store, error) {
	rc, err := restConfig(cfg.Kubeconfig)
	if err != nil {
		return nil, err
	}
	ns := cfg.Namespace
	if ns == "" {
		data, err := os.ReadFile(namespaceFile)
		if err != nil {
			return nil, bad("pool-namespace", "it is not set, and this is not a pod, which would have one")
		}
		ns = strings.TrimSpace(string(data))
	}
	rc.QPS = -1 // the API server has limits of its own
	rc.ContentType = "application/json"
	client, err := kubernetes.NewForConfig(rc)
	if err != nil {
		return nil, bad("byom-kubeconfig", "%v", err)
	}
	return &store{client.CoreV1().ConfigMaps(ns), cfg.ConfigMap}, nil
}

func restConfig(file string) (*rest.Config, error) {
	if file == "" {
		rc, err := rest.InClusterConfig()
		if err != nil {
			return nil, bad("byom-kubeconfig", "it is not set, and this is not a pod of a cluster: %v", err)
		}
		return rc, nil
	}
	rc, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return nil, bad("byom-kubeconfig", "%v", err)
	}
	return rc, nil
}

// change makes a change to the state by compare-and-swap: decide is called
// again with the newer state after a conflict. It must not have effects. When
// it says that nothing changes nothing is written.
func (s *store) change(ctx context.Context, decide func(state) (changed bool, err error)) error {
	for {
		cm, err := s.get(ctx)
		if err != nil {
			return err
		}
		st, err := parseState(cm.Data[stateKey])
		if err != nil {
			return err
		}
		changed, err := decide(st)
		if err != nil || !changed {
			return err
		}
		text, err := st.text()
		if err != nil {
			return err
		}
		cm.Data = map[string]string{stateKey: text}
		_, err = s.maps.Update(ctx, cm, metav1.UpdateOptions{})
		if err == nil || !apierrors.IsConflict(err) {
			return s.classifyKube("update", err)
		}
	}
}

// read returns the state, of a pool that nobody has used yet too.
func (s *store) read(ctx context.Context) (state, error) {
	cm, err := s.maps.Get(ctx, s.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return state{}, nil
	}
	if err != nil {
		return nil, s.classifyKube("read", err)
	}
	return parseState(cm.Data[stateKey])
}

// get makes the ConfigMap where there is none.
func (s *store) get(ctx context.Context) (*corev1.ConfigMap, error) {
	for {
		cm, err := s.maps.Get(ctx, s.name, metav1.GetOptions{})
		if err == nil || !apierrors.IsNotFound(err) {
			return cm, s.classifyKube("read", err)
		}
		cm, err = s.maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: s.name}}, metav1.CreateOptions{})
		if err == nil || !apierrors.IsAlreadyExists(err) {
			return cm, s.classifyKube("create", err)
		}
	}
}

// classifyKube gives an error of the API server its class.
func (s *store) classifyKube(verb string, err error) error {
	if err == nil {
		return nil
	}
	class := provider.ErrUnavailable
	var netErr net.Error
	switch {
	case errors.As(err, &netErr):
	case apierrors.IsUnauthorized(err):
		class = provider.ErrUnauthenticated
	case apierrors.IsForbidden(err):
		class = provider.ErrPermissionDenied
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		class = provider.ErrInvalidArgument // no such namespace, no such name
	case apierrors.IsRequestEntityTooLargeError(err):
		class = provider.ErrQuota
	}
	return fmt.Errorf("%w: %s the pool's state, ConfigMap -pool-configmap-name (POOL_CONFIGMAP_NAME) %s: %w", class, verb, s.name, err)
}
