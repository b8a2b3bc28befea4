// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/trustbundle"
)

// caKey is the key of certificates in ConfigMaps.
const caKey = "ca-bundle.crt"

func (r *ccmReconciler) bundle(ctx context.Context, c *ccmv1alpha1.CloudControllerManager) (*bundle.Bundle, error) {
	if c.Spec.Bundle == nil {
		b, err := r.o.Bundles.Named(c.Spec.Provider)
		if err != nil {
			return nil, failure.Terminal(fmt.Errorf("spec.provider: %w", err))
		}
		return b, nil
	}
	cm, err := r.configMap(ctx, "spec.bundle.configMap", c.Spec.Bundle.ConfigMap)
	if err != nil {
		return nil, err
	}
	b, err := bundle.LoadConfigMap(cm)
	if err != nil {
		return nil, failure.Terminal(fmt.Errorf("spec.bundle: %w", err))
	}
	if b.Provider != c.Spec.Provider {
		return nil, failure.Terminal(fmt.Errorf("spec.provider %q: the bundle in ConfigMap %s is for %q", c.Spec.Provider, cm.Name, b.Provider))
	}
	return b, nil
}

// absent is a ConfigMap that a field names and that is not there.
type absent struct {
	field string
	key   client.ObjectKey
}

func (a absent) Error() string { return fmt.Sprintf("%s: there is no ConfigMap %s", a.field, a.key) }

func (r *ccmReconciler) configMap(ctx context.Context, field, name string) (*corev1.ConfigMap, error) {
	var cm corev1.ConfigMap
	key := client.ObjectKey{Namespace: r.o.OperatorNamespace, Name: name}
	err := r.client.Get(ctx, key, &cm)
	if apierrors.IsNotFound(err) {
		return nil, failure.Terminal(absent{field, key})
	}
	if err != nil {
		return nil, fmt.Errorf("%s: ConfigMap %s: %w", field, key, err)
	}
	return &cm, nil
}

// objects returns the objects of the bundle and those that its pods mount, and what
// had to be left out of the latter.
func (r *ccmReconciler) objects(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, b *bundle.Bundle, what ccmv1alpha1.Rollout) ([]client.Object, []string, error) {
	config, err := r.cloudConfig(ctx, c, b)
	if err != nil {
		return nil, nil, err
	}
	own := []client.Object{config}
	var left []string
	if !r.apis.openShift { // there config-sync makes it
		var authorities *corev1.ConfigMap
		if authorities, left, err = r.authorities(ctx, c); err != nil {
			return nil, nil, err
		}
		own = append(own, authorities)
	}
	objects, err := b.Resources(r.values(c, what))
	if err != nil {
		return nil, nil, failure.Terminal(err)
	}
	return append(own, objects...), left, nil
}

func (r *ccmReconciler) values(c *ccmv1alpha1.CloudControllerManager, what ccmv1alpha1.Rollout) bundle.Values {
	v := bundle.Values{
		Flavor: bundle.Kubernetes, Namespace: r.o.Namespace, Images: what.Images,
		InfrastructureName: c.Spec.InfrastructureName, SingleReplica: c.Spec.Topology == ccmv1alpha1.SingleReplica,
		TLSMinVersion: r.o.TLS.MinVersion, TLSCipherSuites: r.o.TLS.CipherSuites,
	}
	if i := c.Spec.Identity; i != nil {
		v.Identity = &bundle.Identity{
			Annotations: i.Annotations, PodLabels: i.PodLabels, Audience: i.Audience, Seconds: ptr.Deref(i.ExpirationSeconds, 0), Environment: i.Environment,
		}
	}
	if p := c.Spec.Proxy; p != nil {
		v.Proxy = &bundle.Proxy{HTTP: p.HTTPProxy, HTTPS: p.HTTPSProxy, None: p.NoProxy}
	}
	var gates []string
	for _, name := range slices.Sorted(maps.Keys(c.Spec.FeatureGates)) {
		gates = append(gates, fmt.Sprintf("%s=%t", name, c.Spec.FeatureGates[name]))
	}
	v.FeatureGates = strings.Join(gates, ",")
	return v
}

// cloudConfig returns the configuration that the manager mounts. A configuration that
// its platform would refuse is an error, and the current one stays.
func (r *ccmReconciler) cloudConfig(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, b *bundle.Bundle) (*corev1.ConfigMap, error) {
	out := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.o.Namespace, Name: bundle.CloudConfig},
		Data:       map[string]string{bundle.CloudConfigKey: ""},
	}
	ref := c.Spec.CloudConfig
	if ref != nil {
		from, err := r.configMap(ctx, "spec.cloudConfig.name", ref.Name)
		if err != nil {
			return nil, err
		}
		text, has := from.Data[ref.Key]
		if !has {
			return nil, failure.Terminal(fmt.Errorf("spec.cloudConfig.key: ConfigMap %s/%s has no key %q", from.Namespace, from.Name, ref.Key))
		}
		out.Data[bundle.CloudConfigKey] = text
	}
	if p := b.Format(); !cloudconfig.Known(p) {
		return out, nil
	} else if err := cloudconfig.Validate(p, out.Data[bundle.CloudConfigKey]); err != nil {
		return nil, failure.Terminal(fmt.Errorf("spec.cloudConfig: it is not valid for %s, what is deployed stays as it is: %w", b.Platform, err))
	}
	return out, nil
}

func (r *ccmReconciler) authorities(ctx context.Context, c *ccmv1alpha1.CloudControllerManager) (*corev1.ConfigMap, []string, error) {
	path := trustbundle.SystemFile(r.o.SystemBundle)
	system, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("--trusted-ca-bundle: %w", err)
	}
	var sources []trustbundle.Source
	if ref := c.Spec.TrustedCA; ref != nil {
		from, err := r.configMap(ctx, "spec.trustedCA.name", ref.Name)
		if err != nil {
			return nil, nil, err
		}
		sources = append(sources, trustbundle.Source{Name: "ConfigMap " + client.ObjectKeyFromObject(from).String() + ", key " + caKey, Text: from.Data[caKey]})
	}
	merged, left, err := trustbundle.Merge(sources, string(system), r.now())
	if err != nil {
		return nil, nil, fmt.Errorf("--trusted-ca-bundle %s: %w", path, err)
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: r.o.Namespace, Name: bundle.TrustedCA},
		Data:       map[string]string{caKey: merged},
	}, left, nil
}

// servers tracks the version of the API servers. Behind one address there may
// be several, of which some are upgraded already.
type servers struct {
	// version asks one of them, any.
	version func(context.Context) (string, error)
	// settle is how long no older one must have answered.
	settle time.Duration
	now    func() time.Time

	// newer is since when only newer ones have answered than the known one.
	newer time.Time
}

// lowest returns the version that all API servers have reached, given the one
// that was known before, and when to ask again; 0 is not a need.
func (s *servers) lowest(ctx context.Context, known string) (string, time.Duration, error) {
	version, err := s.version(ctx)
	if err != nil {
		return "", 0, fmt.Errorf("ask the API server for its version: %w", err)
	}
	now, err := parseMinor(version)
	if err != nil {
		return "", 0, err
	}
	was, err := parseMinor(known)
	if err != nil || now <= was {
		s.newer = time.Time{}
		return version, 0, nil
	}
	if s.newer.IsZero() {
		s.newer = s.now()
	}
	if left := s.newer.Add(s.settle).Sub(s.now()); left > 0 {
		return known, min(left, max(s.settle/10, time.Second)), nil
	}
	s.newer = time.Time{}
	return version, 0, nil
}

// askOne asks on a connection of its own each time: one that is kept would
// always lead to the same API server.
func askOne(config *rest.Config) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		own := rest.CopyConfig(config)
		own.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
		own.Timeout = 10 * time.Second
		c, err := rest.HTTPClientFor(own)
		if err != nil {
			return "", err
		}
		defer utilnet.CloseIdleConnectionsFor(c.Transport)
		d, err := discovery.NewDiscoveryClientForConfigAndClient(own, c)
		if err != nil {
			return "", err
		}
		v, err := d.ServerVersion()
		if err != nil {
			return "", err
		}
		return v.GitVersion, nil
	}
}
