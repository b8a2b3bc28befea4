// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
)

// content is what a ConfigMap has.
type content struct {
	data   map[string]string
	binary map[string][]byte
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
	text, ok := c.data[key]
	if !ok && key != "" {
		return failure.Terminal(fmt.Errorf("failed to prepare source cloud config: key %s specified in infra resource does not exist in source configmap %s", key, from))
	}
	delete(c.data, key)
	c.data[configKey] = text
	return nil
}

// means reports whether two contents say the same to the controller manager.
func (c content) means(p cloudconfig.Platform, other content) bool {
	if !cloudconfig.Same(p, c.data[configKey], other.data[configKey]) {
		return false
	}
	data := maps.Clone(c.data)
	data[configKey] = other.data[configKey]
	return maps.Equal(data, other.data) && maps.EqualFunc(c.binary, other.binary, bytes.Equal)
}

func (c content) sum() string {
	binary := c.binary
	if binary == nil {
		binary = map[string][]byte{}
	}
	text, _ := json.Marshal(struct { // texts always can
		Data   map[string]string
		Binary map[string][]byte
	}{c.data, binary})
	return fmt.Sprintf("%x", sha256.Sum256(text))
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

// write makes a ConfigMap of ours have this content and no other. Labels and
// annotations that others have set stay. Nothing is written when it is so.
func write(ctx context.Context, c client.Client, name types.NamespacedName, want content, annotations map[string]string) error {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	_, err := controllerutil.CreateOrUpdate(ctx, c, m, func() error {
		m.Data, m.BinaryData = want.data, want.binary
		if m.Annotations == nil {
			m.Annotations = map[string]string{}
		}
		maps.Copy(m.Annotations, annotations)
		return nil
	})
	if err != nil {
		return fmt.Errorf("failed to write ConfigMap %s: %w", name, err)
	}
	return nil
}
