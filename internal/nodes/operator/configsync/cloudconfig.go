// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// cloudConfig makes the configuration that the cloud controller manager mounts.
type cloudConfig struct {
	// client reads what is watched, reader anything else.
	client  client.Client
	reader  client.Reader
	target  target
	managed target
	version string
	// good is a copy of what was written last, in case that is lost while there is
	// nothing good to make it from; another config-sync finds it too.
	good lastGood
}

// sync writes the configuration, or leaves it as it is when there is no good
// one.
func (r *cloudConfig) sync(ctx context.Context) (string, error) {
	var infra openshift.Infrastructure
	if err := r.client.Get(ctx, cluster, &infra); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("failed to get Infrastructure: %w", err)
	}
	var network openshift.Network
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
	return "", r.write(ctx, platform, platform.Manages(gates), made)
}

// make returns the configuration as it is to be mounted.
func (r *cloudConfig) make(ctx context.Context, p cloudconfig.Platform, c cloudconfig.Cluster) (content, error) {
	named := c.Infrastructure.Spec.CloudConfig
	made, from, err := findSource(ctx, r.client, p, named, c.Gates)
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

func (r *cloudConfig) write(ctx context.Context, p cloudconfig.Platform, managed bool, made content) error {
	if managed {
		if err := r.managed.write(ctx, made); err != nil {
			return fmt.Errorf("failed to sync managed cloud config: %w", err)
		}
	}
	// The copy comes first: after a crash in between, it is never older than what is
	// mounted. Without it there is a configuration anyway.
	kept := r.good.write(ctx, p, made)
	mounted := r.target
	mounted.asGood = func(is *corev1.ConfigMap, c content) bool { return contentOf(is).means(p, c) }
	if err := mounted.write(ctx, made); err != nil {
		return errors.Join(fmt.Errorf("failed to sync cloud config: %w", err), kept)
	}
	return kept
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

// keep restores the last good configuration when there is no good one now.
func (r *cloudConfig) keep(ctx context.Context, p cloudconfig.Platform, cause error) error {
	if !failure.IsTerminal(cause) {
		return nil
	}
	good, err := r.good.read(ctx, p)
	if good == nil || err != nil {
		return err
	}
	if err := r.target.write(ctx, *good); err != nil {
		return fmt.Errorf("failed to restore the last good cloud config: %w", err)
	}
	return nil
}
