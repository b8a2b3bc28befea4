// SPDX-License-Identifier: Apache-2.0

//go:build integration

package libvirt

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kdomanski/iso9660"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/libvirtd"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) {
	if name := os.Getenv(otherProcess); name != "" {
		os.Exit(runOther(name))
	}
	testns.Main(m)
}

const userData = cloudinit.Raw("#cloud-config\nwrite_files: []\n")

// testConfig is for guests that need not boot: their firmware finds nothing to
// boot on the disk and idles.
func testConfig(d *libvirtd.Daemon, change ...func(*Config)) Config {
	c := DefaultConfig()
	c.URI, c.Pool, c.Network, c.Volume = d.URI, libvirtd.Pool, libvirtd.Network, libvirtd.Volume
	c.Firmware, c.DomainType = firmwareBIOS, typeQEMU
	c.CPUs, c.Memory, c.RootDisk = 1, 96, 0
	for _, f := range change {
		f(&c)
	}
	return c
}

// connect returns a provider that is closed with the test.
func connect(t testing.TB, c Config) *Provider {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Teardown(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// start starts a daemon on which nothing may be left in the end.
func start(t testing.TB, o libvirtd.Options) *libvirtd.Daemon {
	t.Helper()
	d := libvirtd.Start(t, o)
	t.Cleanup(func() { d.WantNothing(t) })
	return d
}

func spec(key string) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{Tags: map[string]string{provider.TagCluster: "test", provider.TagKey: key}}
}

func tryCreate(ctx context.Context, p *Provider, key string) (*provider.Instance, error) {
	return p.CreateInstance(ctx, "pod", key, userData, spec(key))
}

func create(t testing.TB, p *Provider, key string) *provider.Instance {
	t.Helper()
	i, err := tryCreate(t.Context(), p, key)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func remove(t testing.TB, p *Provider, id string) {
	t.Helper()
	if err := p.DeleteInstance(context.WithoutCancel(t.Context()), id); err != nil {
		t.Errorf("delete %s: %v", id, err)
	}
}

// wantError checks class and words of an error that a user gets to read.
func wantError(t testing.TB, err, class error, words ...string) {
	t.Helper()
	if provider.Class(err) != class {
		t.Errorf("error %v\nis %v, want %v", err, provider.Class(err), class)
	}
	for _, w := range words {
		if err != nil && !strings.Contains(err.Error(), w) {
			t.Errorf("error %q does not mention %q", err, w)
		}
	}
}

// seedOf reads user-data from an instance's seed volume.
func seedOf(d *libvirtd.Daemon, id string) (string, error) {
	files, err := filepath.Glob(d.Path("pool/*" + id + "*.iso"))
	if err != nil || len(files) != 1 {
		return "", fmt.Errorf("seeds of %s: %q, %v", id, files, err)
	}
	f, err := os.Open(files[0])
	if err != nil {
		return "", err
	}
	defer f.Close()
	image, err := iso9660.OpenImage(f)
	if err != nil {
		return "", err
	}
	root, err := image.RootDir()
	if err != nil {
		return "", err
	}
	children, err := root.GetChildren()
	if err != nil {
		return "", err
	}
	for _, c := range children {
		if strings.EqualFold(c.Name(), "user-data") {
			data, err := io.ReadAll(c.Reader())
			return string(data), err
		}
	}
	return "", fmt.Errorf("no user-data in %s", files[0])
}
