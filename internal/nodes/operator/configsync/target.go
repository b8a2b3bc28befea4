// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"fmt"
	"maps"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// target is a ConfigMap of ours.
type target struct {
	client      client.Client
	name        types.NamespacedName
	annotations map[string]string
	// asGood reports whether the content that is there need not be replaced; nil:
	// it must be the same.
	asGood func(is *corev1.ConfigMap, c content) bool
}

// write makes the ConfigMap have this content and no other. Labels and
// annotations that others have set stay. Nothing is written when it is so.
func (t target) write(ctx context.Context, c content) error {
	is, err := readConfigMap(ctx, t.client, t.name)
	if err != nil {
		return err
	}
	if is == nil {
		m := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.name.Namespace, Name: t.name.Name, Annotations: t.annotations},
			Data:       c.data, BinaryData: c.binary,
		}
		if err := t.client.Create(ctx, m); err != nil {
			return fmt.Errorf("failed to create ConfigMap %s: %w", t.name, err)
		}
		return nil
	}
	if t.has(is, c) || t.asGood != nil && t.asGood(is, c) {
		return nil
	}
	m := is.DeepCopy()
	m.Data, m.BinaryData = c.data, c.binary
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	maps.Copy(m.Annotations, t.annotations)
	if err := t.client.Update(ctx, m); err != nil {
		return fmt.Errorf("failed to update ConfigMap %s: %w", t.name, err)
	}
	return nil
}

func (t target) has(m *corev1.ConfigMap, c content) bool {
	for k, v := range t.annotations {
		if m.Annotations[k] != v {
			return false
		}
	}
	return maps.Equal(m.Data, c.data) && (len(m.BinaryData) == 0 && len(c.binary) == 0 || reflect.DeepEqual(m.BinaryData, c.binary))
}
