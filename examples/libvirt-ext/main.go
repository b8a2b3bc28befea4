// SPDX-License-Identifier: Apache-2.0

// Command libvirt-ext is an external provider: libvirt, and each new instance's
// user-data in the log. One source gives a program (process plugin) and a
// shared object (Go plugin).
//
// User-data holds the keys with which the adaptor reaches a pod. Whoever reads
// this provider's log can speak for them, so it is for a test machine only.
package main

import (
	"context"
	"log/slog"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/kit/userdata"
	"github.com/outrigger/outrigger/provider/serve"
	"github.com/outrigger/outrigger/providers/libvirt"
)

const name = "libvirt-ext"

// main is the process plugin.
func main() { serve.Main(name, newManager()) }

// init is how a Go plugin of the hash scheme makes itself known.
func init() { provider.AddCloudProvider(name, newManager()) }

// InitCloud is what the directory scheme calls.
func InitCloud() { provider.AddCloudProvider(name, newManager()) }

// newManager returns a manager with the settings of libvirt.
func newManager() config.Configurable { return config.New(name, open) }

func open(c libvirt.Config) (provider.Provider, error) {
	p, err := libvirt.New(c)
	if err != nil {
		return nil, err
	}
	return &logged{p}, nil
}

// logged is libvirt with one more line in the log. It embeds the provider and
// not the interface, so it has all of libvirt's optional capabilities.
type logged struct{ *libvirt.Provider }

// CreateInstance generates the user-data before libvirt does, and hands on
// exactly those bytes.
func (l *logged) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	userData, err := userdata.Generate(cloudConfig)
	if err != nil {
		return nil, err
	}
	instance, err := l.Provider.CreateInstance(ctx, podName, sandboxID, cloudinit.Raw(userData), spec)
	if err == nil {
		slog.InfoContext(ctx, "made an instance", "provider", name, "sandbox", sandboxID, "instance", instance.ID, "userdata", userData)
	}
	return instance, err
}
