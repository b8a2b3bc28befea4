// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// keptPrefix begins the name of the ConfigMap that has what was rolled out last for
// a CloudControllerManager, before its name.
const keptPrefix = "ccm-operator-last-good-of-"

// Keys of it: the objects, and the sum of the rollout that they are of.
const (
	keptObjects = "objects.json.gz"
	keptSum     = "sum"
)

// keep records what was rolled out, unless it is recorded already.
func (r *ccmReconciler) keep(ctx context.Context, d *Deployer, name, sum string, objects []client.Object) error {
	kept, err := r.readKept(ctx, name)
	if err != nil || kept.Data[keptSum] == sum {
		return err
	}
	text, err := d.Encode(objects)
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write(text)
	if err := errors.Join(err, z.Close()); err != nil {
		return err
	}
	next := kept.DeepCopy()
	next.Data, next.BinaryData = map[string]string{keptSum: sum}, map[string][]byte{keptObjects: packed.Bytes()}
	if kept.ResourceVersion == "" {
		err = r.client.Create(ctx, next)
	} else {
		err = r.client.Update(ctx, next)
	}
	if err != nil {
		return fmt.Errorf("keep what was rolled out, for when a rollout stalls: ConfigMap %s: %w", client.ObjectKeyFromObject(kept), err)
	}
	return nil
}

// readKept returns an empty ConfigMap if there is none.
func (r *ccmReconciler) readKept(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	key := client.ObjectKey{Namespace: r.o.Namespace, Name: keptPrefix + name}
	cm := &corev1.ConfigMap{}
	err := r.client.Get(ctx, key, cm)
	cm.Namespace, cm.Name = key.Namespace, key.Name
	return cm, client.IgnoreNotFound(err)
}

// former returns the objects that were rolled out last. If they were not kept, it
// renders them again with the images that they had.
func (r *ccmReconciler) former(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, b *bundle.Bundle) ([]client.Object, []string, error) {
	kept, err := r.readKept(ctx, c.Name)
	if err != nil {
		return nil, nil, err
	}
	good := c.Status.LastGood
	if good.Sum == "" || kept.Data[keptSum] != good.Sum {
		return r.objects(ctx, c, b, ccmv1alpha1.Rollout{Images: good.Images})
	}
	objects, err := unpack(kept.BinaryData[keptObjects])
	if err != nil {
		return nil, nil, fmt.Errorf("what was rolled out last cannot be read, ConfigMap %s, key %s: %w: delete the ConfigMap, and its images alone go back", client.ObjectKeyFromObject(kept), keptObjects, err)
	}
	return objects, nil, nil
}

func unpack(packed []byte) ([]client.Object, error) {
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, err
	}
	return apply.Decode(text)
}

func (r *ccmReconciler) forgetKept(ctx context.Context, name string) error {
	return client.IgnoreNotFound(r.client.Delete(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.o.Namespace, Name: keptPrefix + name}}))
}
