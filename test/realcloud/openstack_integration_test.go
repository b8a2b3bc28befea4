// SPDX-License-Identifier: Apache-2.0

//go:build integration

package realcloud

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/instancetypes"
	"github.com/outrigger/outrigger/providers/openstack"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// realOpenStack switches the test on: it takes ten minutes and 3 GB of memory.
const realOpenStack = "OUTRIGGER_REAL_OPENSTACK"

// plane is a control plane and what was made in it for the tests.
type plane struct {
	admin, pods                               *api
	project, network, subnet, external, group string
	image, ended                              string
}

// TestOpenStack runs all checks of the contract.
func TestOpenStack(t *testing.T) {
	if os.Getenv(realOpenStack) == "" {
		t.Skip("a real OpenStack control plane: make test-openstack (" + realOpenStack + "=1)")
	}
	testns.RequireRoot(t)
	o := start(t)
	t.Run("NothingAppears", func(t *testing.T) { nothingAppears(t, o) })
	t.Run("Type", func(t *testing.T) { typeIsShown(t, o) })
	t.Run("Conformance", func(t *testing.T) {
		started := time.Now()
		conformance.Run(t, o.subject)
		t.Logf("all checks took %s", time.Since(started).Round(time.Second))
	})
}

func start(t *testing.T) *plane {
	dir, err := os.MkdirTemp("/var/tmp", "outrigger-openstack-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	started := time.Now()
	script(t, dir, "all")
	o := prepare(t)
	script(t, dir, "compute")
	o.admin.until(t, "the hypervisor is there", func() bool {
		hosts := o.admin.get(t, compute+"/os-hypervisors")["hypervisors"].([]any)
		return len(hosts) > 0
	})
	t.Logf("the control plane took %s", time.Since(started).Round(time.Second))
	return o
}

func script(t *testing.T, dir, part string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "./openstack/start.sh", dir, part)
	out, err := cmd.CombinedOutput()
	t.Logf("%s: %s", part, out)
	if err != nil {
		t.Fatal(err)
	}
}

func (o *plane) config(change ...func(*openstack.Config)) openstack.Config {
	c := config.Defaults[openstack.Config]()
	c.AuthURL, c.Region, c.User, c.Password, c.Project = identity, "RegionOne", "pods", "s3cret", "pods"
	c.Image, c.Flavor, c.Flavors, c.Network, c.Subnet = o.image, "m1.tiny", instancetypes.Patterns{"m1.*"}, o.network, o.subnet
	c.Groups, c.Zones, c.KeyName, c.FloatingNetwork = []string{o.group}, []string{"nova"}, "k1", o.external
	for _, do := range change {
		do(&c)
	}
	return c
}

func (o *plane) open(t testing.TB, change ...func(*openstack.Config)) *openstack.Provider {
	t.Helper()
	p, err := openstack.New(o.config(change...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (o *plane) subject(t *testing.T) conformance.Subject {
	with := func(change func(*openstack.Config)) func() provider.Provider {
		return func() provider.Provider { return o.open(t, change) }
	}
	reopen := func() provider.Provider { return o.open(t) }
	return conformance.Subject{
		Provider: reopen(), Reopen: reopen, Leaks: o.left, ReadUserData: o.userData, Parallel: 4,
		Limits: conformance.Limits{Call: 4 * time.Minute, Soon: 30 * time.Second, Settle: 2 * time.Minute},
		NoAccess: map[string]func() provider.Provider{
			"a password that was changed": with(func(c *openstack.Config) { c.Password = "changed" }),
			"another project":             with(func(c *openstack.Config) { c.Project = "gone" }),
			"an application credential that was deleted": with(func(c *openstack.Config) {
				c.User, c.Password, c.Project = "", "", ""
				c.AppCredID, c.AppCredSecret = o.ended, "secret"
			}),
		},
	}
}

// left returns what the tests have left in the project.
func (o *plane) left() ([]string, error) {
	var names []string
	for _, list := range []struct{ url, key, name string }{
		{compute + "/servers?all_tenants=1", "servers", "name"}, {network + "/ports", "ports", "name"}, {network + "/floatingips", "floatingips", "floating_ip_address"},
	} {
		body, err := o.admin.call(http.MethodGet, list.url, nil)
		if err != nil {
			return nil, err
		}
		for _, thing := range body[list.key].([]any) {
			name, _ := thing.(map[string]any)[list.name].(string)
			if list.key == "floatingips" || strings.HasPrefix(name, "podvm-") {
				names = append(names, list.key+" "+name)
			}
		}
	}
	return names, nil
}

// userData is what Nova shows to an administrator.
func (o *plane) userData(_ context.Context, id string) (string, error) {
	body, err := o.admin.call(http.MethodGet, compute+"/servers/detail?all_tenants=1", nil)
	if err != nil {
		return "", err
	}
	for _, s := range body["servers"].([]any) {
		server := s.(map[string]any)
		if server["metadata"].(map[string]any)["outrigger-id"] == id {
			text, _ := server["OS-EXT-SRV-ATTR:user_data"].(string)
			data, err := base64.StdEncoding.DecodeString(text)
			return string(data), err
		}
	}
	return "", fmt.Errorf("no server of instance %s", id)
}

func tags(key string) map[string]string {
	return map[string]string{provider.TagCluster: "real", provider.TagNode: "n", provider.TagKey: key}
}

// nothingAppears after the deletion of an instance whose creation was cancelled
// while Neutron makes its port.
func nothingAppears(t *testing.T, o *plane) {
	p := o.open(t)
	defer p.Teardown()
	for n, after := range []time.Duration{10 * time.Millisecond, 50 * time.Millisecond, 150 * time.Millisecond, 400 * time.Millisecond, time.Second} {
		ctx, cancel := context.WithTimeout(t.Context(), after)
		i, err := p.CreateInstance(ctx, "pod", fmt.Sprint("cancelled-", n), cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: tags(fmt.Sprint("cancelled-", n))})
		cancel()
		if i == nil {
			t.Logf("%s: %v", after, err)
			continue
		}
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
		if left, err := o.left(); err != nil || len(left) > 0 {
			t.Errorf("after %s: %q, %v", after, left, err)
		}
	}
	// Neutron's calls took up to ten seconds where this was found.
	time.Sleep(15 * time.Second)
	if left, err := o.left(); err != nil || len(left) > 0 {
		t.Errorf("it has come: %q, %v", left, err)
	}
}

func typeIsShown(t *testing.T, o *plane) {
	p := o.open(t)
	defer p.Teardown()
	i, err := p.CreateInstance(t.Context(), "pod", "typed", nil, provider.InstanceTypeSpec{Tags: tags("typed")})
	if err != nil {
		t.Fatal(err)
	}
	if shown, err := p.GetInstance(t.Context(), i.ID); err != nil || shown.Type != "m1.tiny" {
		t.Errorf("%+v, %v", shown, err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
}
