// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

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
	// goodName is the ConfigMap, beside the configuration, that has a copy of the last
	// good one.
	goodName = "cloud-conf-last-good"
)

var managed = types.NamespacedName{Namespace: managedNamespace, Name: managedName}

// Annotations of the copy: the platform that it is for, and the sum of what it has. A
// copy that somebody has changed is none.
const (
	platformAnnotation = "ccm.outrigger.dev/platform"
	sumAnnotation      = "ccm.outrigger.dev/sum"
)

// cloudConfig makes the configuration that the cloud controller manager mounts.
type cloudConfig struct {
	// client reads what is watched, reader anything else.
	client  client.Client
	reader  client.Reader
	version string
	// own is what is mounted. good has a copy of what was written last, in case that is
	// lost while there is nothing good to make it from; another config-sync finds it too.
	own, good types.NamespacedName
}

// sync writes the configuration, or leaves it as it is when there is no good
// one.
func (r *cloudConfig) sync(ctx context.Context) (string, error) {
	var infra configv1.Infrastructure
	if err := r.client.Get(ctx, cluster, &infra); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("failed to get Infrastructure: %w", err)
	}
	var network configv1.Network
	if err := r.client.Get(ctx, cluster, &network); err != nil {
		return "", fmt.Errorf("failed to get cluster Network: %w", err)
	}
	if infra.Status.PlatformStatus == nil {
		return "", failure.Terminal(errors.New("failed to check cloud config sync requirements: platformStatus is required"))
	}
	platform, ok := cloudconfig.PlatformOf(infra.Status.PlatformStatus)
	if !ok {
		return "", nil
	}
	gates, err := openshift.ReadGates(ctx, r.client, r.reader, r.version)
	if err != nil {
		return "", fmt.Errorf("failed to get feature gates: %w", err)
	}
	made, err := r.make(ctx, platform, cloudconfig.Cluster{Infrastructure: &infra, Network: &network, Gates: gates})
	if err != nil {
		return "", errors.Join(err, r.keep(ctx, platform, err))
	}
	return "", r.write(ctx, platform, gates, made)
}

func (r *cloudConfig) make(ctx context.Context, p cloudconfig.Platform, c cloudconfig.Cluster) (content, error) {
	named := c.Infrastructure.Spec.CloudConfig
	made, from, err := r.findSource(ctx, p, named, c.Gates)
	if err != nil {
		return content{}, fmt.Errorf("failed to get cloud-config for sync: %w", err)
	}
	if err := made.rename(named.Key, from); err != nil {
		return content{}, err
	}
	text, err := cloudconfig.Transform(p, made.data[configKey], c)
	if err != nil {
		return content{}, failure.Terminal(fmt.Errorf("failed to transform cloud config: ConfigMap %s: %w", from, err))
	}
	if err := cloudconfig.Validate(p, text); err != nil {
		return content{}, failure.Terminal(fmt.Errorf("cloud config is not valid: ConfigMap %s: %w", from, err))
	}
	made.data[configKey] = text
	return made, nil
}

// findSource returns what administrators or the installer gave, and the name of
// where that is or should be.
func (r *cloudConfig) findSource(ctx context.Context, p cloudconfig.Platform, named configv1.ConfigMapFileReference, gates openshift.Gates) (content, types.NamespacedName, error) {
	user := types.NamespacedName{Namespace: userNamespace, Name: named.Name}
	if p.PrefersManaged() {
		if cm, err := readConfigMap(ctx, r.client, managed); cm != nil || err != nil {
			return contentOf(cm), managed, err
		}
	}
	if named.Name == "" {
		return contentOf(nil), user, nil
	}
	cm, err := readConfigMap(ctx, r.client, user)
	from := contentOf(cm)
	if cm == nil && err == nil && p.Manages(gates) {
		from.data[configKey] = p.Minimal()
	}
	return from, user, err
}

func (r *cloudConfig) write(ctx context.Context, p cloudconfig.Platform, gates openshift.Gates, made content) error {
	if p.Manages(gates) {
		if err := write(ctx, r.client, managed, made, nil); err != nil {
			return fmt.Errorf("failed to sync managed cloud config: %w", err)
		}
	}
	// The copy comes first: after a crash in between, it is never older than what is
	// mounted. Without it there is a configuration anyway.
	kept := write(ctx, r.client, r.good, made, map[string]string{platformAnnotation: string(p), sumAnnotation: made.sum()})
	if kept != nil {
		kept = fmt.Errorf("failed to keep a copy of the cloud config: %w", kept)
	}
	is, err := readConfigMap(ctx, r.client, r.own)
	if err == nil && (is == nil || !contentOf(is).means(p, made)) {
		err = write(ctx, r.client, r.own, made, nil)
	}
	if err != nil {
		err = fmt.Errorf("failed to sync cloud config: %w", err)
	}
	return errors.Join(err, kept)
}

// keep restores the last good configuration, if there is one for the platform, when there
// is no good one now.
func (r *cloudConfig) keep(ctx context.Context, p cloudconfig.Platform, cause error) error {
	if !failure.IsTerminal(cause) {
		return nil
	}
	m, err := readConfigMap(ctx, r.client, r.good)
	good := contentOf(m)
	if m == nil || err != nil || m.Annotations[platformAnnotation] != string(p) || m.Annotations[sumAnnotation] != good.sum() {
		return err
	}
	if err := write(ctx, r.client, r.own, good, nil); err != nil {
		return fmt.Errorf("failed to restore the last good cloud config: %w", err)
	}
	return nil
}

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
