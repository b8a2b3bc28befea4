// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/upstream"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
)

// cloudTimeout bounds one call to a cloud.
const cloudTimeout = 2 * time.Minute

// onNodes reports whether the instances are processes of the nodes: asked from
// here the provider would list what runs on this machine.
func (s *settings) onNodes(name string) bool {
	text := s.get("LIBVIRT_URI")
	uri, err := url.Parse(text)
	return name == "qemu" || name == "libvirt" && text != "" && err == nil && uri.Host == ""
}

// onNodesError is the error for such a provider; the text is for people, the
// class for code.
type onNodesError string

func (e onNodesError) Error() string {
	return "the VMs of provider " + string(e) + " are processes of their nodes"
}

func (e onNodesError) Unwrap() error { return provider.ErrUnimplemented }

// settings are the keys that the daemons have in the cluster.
type settings struct {
	config, secret map[string]string
}

// settings reads ConfigMap and Secret. Their absence is an error that says so.
func (a *App) settings(ctx context.Context, c *cluster) (*settings, error) {
	var s settings
	var err error
	if s.config, err = c.configMap(ctx, a.system, configMapName); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", a.system, configMapName, err)
	}
	if s.secret, err = c.secret(ctx, a.system, secretName); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read Secret %s/%s, which has the provider's credentials: %w", a.system, secretName, err)
	}
	return &s, nil
}

// get returns one key; the Secret wins, as it does in the adaptor.
func (s *settings) get(key string) string { return cmp.Or(s.secret[key], s.config[key]) }

// provider returns the name of the provider that the cluster uses.
func (s *settings) provider() string { return provider.Canonical(s.get("CLOUD_PROVIDER")) }

// external returns the plugin on the nodes with the provider; empty if the provider is
// built in there.
func (s *settings) external() string {
	switch s.get(plugin.EnableVariable) {
	case "", "0", "false", "no", "off":
		return ""
	}
	return s.get(plugin.PathVariable)
}

// values returns the settings of a provider's schema.
func (s *settings) values(schema config.Schema) config.Values {
	values, get := config.Values{}, upstream.Getenv(schema.Provider, s.get)
	for _, field := range schema.Fields {
		if text := get(field.Env); field.Env != "" && text != "" {
			values[field.Name] = text
		}
	}
	return values
}

// load finds the provider here. Plugins are only those that the environment of
// this process names: the ConfigMap names files of the nodes, and whoever may
// write it must not choose what runs on the machine of an administrator.
func (a *App) load(ctx context.Context, s *settings, name string) (*plugin.Loaded, error) {
	local := cmp.Or(a.Getenv(plugin.PathVariable), a.Getenv(plugin.FolderVariable))
	if path := s.external(); path != "" && local == "" {
		return nil, fmt.Errorf("%w: the cluster has provider %s as a plugin at %s of its nodes: name one on this machine by %s or %s",
			provider.ErrNotFound, name, path, plugin.FolderVariable, plugin.PathVariable)
	}
	loaded, err := plugin.Load(ctx, plugin.Options{Name: name, Getenv: a.Getenv, Log: a.log()})
	if err != nil {
		return nil, fmt.Errorf("load provider %s on this machine: %w", name, err)
	}
	return loaded, nil
}

// cloud is a provider that is called from here.
type cloud struct {
	provider provider.Provider
	loaded   *plugin.Loaded
}

func (c *cloud) close() error {
	return errors.Join(provider.Teardown(context.Background(), c.provider), c.loaded.Close())
}

// open configures a provider as the cluster does. The error says why the cloud
// cannot be seen from here.
func (a *App) open(ctx context.Context, s *settings, name string) (*cloud, error) {
	if s.onNodes(name) {
		return nil, onNodesError(name)
	}
	loaded, err := a.load(ctx, s, name)
	if err != nil {
		return nil, err
	}
	manager, ok := loaded.Cloud.(config.Configurable)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%w: provider %s publishes no schema and can only be configured in its daemon", provider.ErrUnimplemented, name), loaded.Close())
	}
	manager = manager.Fresh()
	manager.Set(s.values(manager.Schema()))
	p, err := plugin.Open(ctx, manager)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configure provider %s with %s and %s: %w", name, configMapName, secretName, err), loaded.Close())
	}
	return &cloud{p, loaded}, nil
}

// schema returns the settings that a provider has, as far as it is known here.
func (a *App) schema(ctx context.Context, s *settings) (config.Schema, error) {
	loaded, err := a.load(ctx, s, s.provider())
	if err != nil {
		// A plugin of a name that is built in here has the same settings.
		cloud, ok := provider.Get(s.provider()).(config.Configurable)
		if !ok {
			return config.Schema{}, err
		}
		return cloud.Schema(), nil
	}
	manager, ok := loaded.Cloud.(config.Configurable)
	if !ok {
		return config.Schema{}, errors.Join(fmt.Errorf("provider %s publishes no schema", s.provider()), loaded.Close())
	}
	return manager.Schema(), loaded.Close()
}

// instances lists those of this cluster.
func (c *cloud) instances(ctx context.Context, clusterID string) ([]provider.Instance, error) {
	lister, ok := provider.As[provider.Lister](c.provider)
	if !ok {
		return nil, fmt.Errorf("%w: the provider cannot list its instances", provider.ErrUnimplemented)
	}
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	match := map[string]string{provider.TagCluster: clusterID}
	instances, err := lister.ListInstances(ctx, match)
	if err != nil {
		return nil, fmt.Errorf("list the instances of cluster %s: %w", clusterID, err)
	}
	// The list is distrusted: what does not carry our tag is not ours.
	return slices.DeleteFunc(instances, func(i provider.Instance) bool { return !provider.HasTags(i.Tags, match) }), nil
}

// disks lists those that were made for volumes of this cluster; none if the provider has no disks.
func (c *cloud) disks(ctx context.Context, clusterID string) ([]provider.Disk, error) {
	controller, ok := provider.As[provider.DiskController](c.provider)
	if !ok {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	match := map[string]string{provider.TagCluster: clusterID}
	disks, err := controller.ListDisks(ctx, match)
	if err != nil {
		return nil, fmt.Errorf("list the disks of cluster %s: %w", clusterID, err)
	}
	return slices.DeleteFunc(disks, func(d provider.Disk) bool { return !provider.HasTags(d.Tags, match) }), nil
}

// names of the providers that the cluster uses or has used.
func (s *settings) names(of ...string) []string {
	all := map[string]bool{s.provider(): true}
	for _, name := range of {
		all[name] = true
	}
	delete(all, "")
	return slices.Sorted(maps.Keys(all))
}
