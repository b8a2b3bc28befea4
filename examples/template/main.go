// SPDX-License-Identifier: Apache-2.0

// Command template is a provider to copy: put your cloud's calls where it reads and writes files.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/provider/kit/files"
	"github.com/outrigger/outrigger/provider/kit/userdata"
	"github.com/outrigger/outrigger/provider/serve"
)

func main() { serve.Main("template", config.New("template", open)) } // process plugin and socket

func InitCloud() { provider.AddCloudProvider("template", config.New("template", open)) } // Go plugin

// Config makes flags, variables, validation and help. A credential is a config.Secret.
type Config struct {
	Dir   string                 `flag:"template-dir" env:"TEMPLATE_DIR" required:"true" usage:"existing folder for the instances"`
	Type  string                 `flag:"template-type" env:"TEMPLATE_TYPE" default:"small" usage:"instance type of a pod that asks for none"`
	Types instancetypes.Patterns `flag:"template-types" env:"TEMPLATE_TYPES" default:"*" usage:"names or patterns of other types that pods may have"`
}

var types = []provider.InstanceType{{Name: "small", VCPUs: 2, Memory: 4096, Arch: runtime.GOARCH}, {Name: "large", VCPUs: 8, Memory: 32768, Arch: runtime.GOARCH}}

type cloud struct{ Config } // keeps nothing in memory: another process finds what this one has made

type instance struct { // is one file, and has its key and its tags from the first moment
	provider.Instance
	UserData string
}

func open(c Config) (provider.Provider, error) { // validates and connects; makes nothing that costs money
	if !filepath.IsAbs(c.Dir) {
		return nil, config.Wrong[Config]("template-dir", "%q is not an absolute path", c.Dir)
	}
	return &cloud{c}, nil
}

func (c *cloud) CreateInstance(ctx context.Context, podName, sandboxID string, cloudConfig cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	if cmp.Or(spec.Image, "podvm") != "podvm" || spec.MultiNic || spec.Zone != "" || len(spec.Volumes) > 0 {
		return nil, fmt.Errorf("%w: image %q, zone %q: there is no image but podvm, no zone, no second interface, no volume", provider.ErrInvalidArgument, spec.Image, spec.Zone)
	}
	kind, err := instancetypes.Options{Types: types, Default: c.Type, Allow: c.Types}.Select(spec)
	userData, failed := userdata.Generate(cloudConfig)
	if err := cmp.Or(err, failed); err != nil { // refuse before anything is made
		return nil, err
	}
	sum := sha256.Sum256([]byte(sandboxID))
	made := instance{UserData: userData, Instance: provider.Instance{
		ID: sandboxID, Key: sandboxID, Name: provider.InstanceName(podName, sandboxID), Tags: maps.Clone(spec.Tags), Created: time.Now().UTC(),
		Type: kind.Name, State: provider.StateRunning, IPs: []netip.Addr{netip.AddrFrom16([16]byte(append([]byte{0x20, 1, 0xd, 0xb8}, sum[:12]...)))},
	}}
	err = files.Create(ctx, c.path(sandboxID), made) // all or nothing: a failure leaves no half instance
	if errors.Is(err, fs.ErrExist) {
		made, err = files.Read[instance](ctx, c.path(sandboxID)) // an earlier call with this key made it, or a faster one
	}
	if err != nil {
		return nil, files.Classify("create instance", err)
	}
	return &made.Instance, nil
}

func (c *cloud) DeleteInstance(_ context.Context, id string) error {
	if err := os.Remove(c.path(id)); !errors.Is(err, fs.ErrNotExist) { // gone is what was asked for
		return files.Classify("delete instance "+id, err)
	}
	return nil
}

func (c *cloud) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	entries, err := os.ReadDir(c.Dir)
	for _, entry := range entries {
		i, err := files.Read[instance](ctx, filepath.Join(c.Dir, entry.Name()))
		switch { // what is being written is not an instance yet, what is gone none any more
		case filepath.Ext(entry.Name()) != ".json", errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, files.Classify("list instances", err)
		case provider.HasTags(i.Tags, match):
			list = append(list, i.Instance)
		}
	}
	return list, files.Classify("list instances", err)
}

func (c *cloud) ConfigVerifier() error { // asks the cloud, and makes nothing
	return files.Classify("read and write -template-dir (TEMPLATE_DIR)", syscall.Access(c.Dir, 0o7))
}
func (c *cloud) Teardown() error { return nil } // would close connections; instances stay

// path is the same for the same id, and in the folder whatever the id.
func (c *cloud) path(id string) string {
	return filepath.Join(c.Dir, fmt.Sprintf("%x.json", sha256.Sum256([]byte(id))))
}
