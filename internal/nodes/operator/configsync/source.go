// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// Where configurations are.
const (
	userNamespace    = "openshift-config"
	managedNamespace = "openshift-config-managed"
	managedName      = "kube-cloud-config"
	targetName       = "cloud-conf"
	configKey        = "cloud.conf"
)

// content is what a ConfigMap has.
type content struct {
	data   map[string]string
	binary map[string][]byte
}

// findSource returns what administrators or the installer gave, and the name of
// where that is or should be.
func findSource(ctx context.Context, c client.Reader, p cloudconfig.Platform, named openshift.ConfigMapFileReference, gates openshift.Gates) (content, types.NamespacedName, error) {
	user := types.NamespacedName{Namespace: userNamespace, Name: named.Name}
	if p.PrefersManaged() {
		managed := types.NamespacedName{Namespace: managedNamespace, Name: managedName}
		if cm, err := readConfigMap(ctx, c, managed); cm != nil || err != nil {
			return contentOf(cm), managed, err
		}
	}
	if named.Name == "" {
		return contentOf(nil), user, nil
	}
	cm, err := readConfigMap(ctx, c, user)
	from := contentOf(cm)
	if cm == nil && err == nil && p.Manages(gates) {
		from.data[configKey] = p.Minimal()
	}
	return from, user, err
}

// readConfigMap returns nil for one that is not there.
func readConfigMap(ctx context.Context, c client.Reader, name types.NamespacedName) (*corev1.ConfigMap, error) {
	var m corev1.ConfigMap
	switch err := c.Get(ctx, name, &m); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("failed to get ConfigMap %s: %w", name, err)
	}
	return &m, nil
}

func contentOf(m *corev1.ConfigMap) content {
	c := content{data: map[string]string{}}
	if m != nil {
		maps.Copy(c.data, m.Data)
		c.binary = m.BinaryData
	}
	return c
}

// rename puts the configuration under the key under which it is looked for.
func (c content) rename(key string, from types.NamespacedName) error {
	if _, ok := c.data[configKey]; ok {
		return nil
	}
	if key == "" {
		c.data[configKey] = ""
		return nil
	}
	text, ok := c.data[key]
	if !ok {
		return failure.Terminal(fmt.Errorf("failed to prepare source cloud config: key %s specified in infra resource does not exist in source configmap %s", key, from))
	}
	delete(c.data, key)
	c.data[configKey] = text
	return nil
}
