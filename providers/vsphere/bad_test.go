// SPDX-License-Identifier: Apache-2.0

//go:build !race

package vsphere

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/vsphere"
)

// TestBadSettings is about what no vCenter is needed for.
func TestBadSettings(t *testing.T) {
	good := func() Config {
		c := config.Defaults[Config]()
		c.URL, c.User, c.Password = "vcenter.example", "user", "secret"
		return c
	}
	if _, err := New(good()); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"no URL":           {func(c *Config) { c.URL = "" }, "-vcenter-url (GOVC_URL)"},
		"URL":              {func(c *Config) { c.URL = "https://a b" }, "-vcenter-url (GOVC_URL)"},
		"URL with user":    {func(c *Config) { c.URL = "https://u:p@vcenter.example" }, "GOVC_PASSWORD"},
		"plain URL":        {func(c *Config) { c.URL = "http://vcenter.example" }, "use https://"},
		"URL without host": {func(c *Config) { c.URL = "https:///sdk" }, "-vcenter-url (GOVC_URL)"},
		"no user":          {func(c *Config) { c.User = "" }, "-user-name (GOVC_USERNAME)"},
		"no password":      {func(c *Config) { c.Password = "" }, "GOVC_PASSWORD"},
		"thumbprint":       {func(c *Config) { c.Thumbprint = "AB:CD" }, "-thumbprint (GOVC_THUMBPRINT)"},
		"thumbprint and CA": {func(c *Config) {
			c.Thumbprint, c.CAFile = strings.Repeat("ab", 32), "/dev/null"
		}, "-thumbprint (GOVC_THUMBPRINT)"},
		"no such CA":  {func(c *Config) { c.CAFile = "/nonexistent" }, "-vsphere-ca-file (GOVC_TLS_CA_CERTS)"},
		"no template": {func(c *Config) { c.Template = "" }, "-template (GOVC_TEMPLATE)"},
		"host and two pools": {func(c *Config) {
			c.Host, c.Pools = "h", []string{"a", "b"}
		}, "-host (GOVC_HOST)"},
		"CPUs":   {func(c *Config) { c.CPUs = 0 }, "-cpu (VSPHERE_CPU)"},
		"memory": {func(c *Config) { c.Memory = 1 }, "-memory (VSPHERE_MEMORY)"},
		"wait":   {func(c *Config) { c.AddressWait = 0 }, "-vsphere-address-wait (VSPHERE_ADDRESS_WAIT)"},
	} {
		t.Run(name, func(t *testing.T) {
			c := good()
			row.change(&c)
			_, err := New(c)
			if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want an invalid argument that names %q", err, row.want)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Error("the password is in the error")
			}
		})
	}
}

// TestBadWorld: the verifier finds it, and creations have its class.
func TestBadWorld(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*Config)
		world  func(*sim.Site)
		class  error
		want   []string
	}{
		"password": {func(c *Config) { c.Password = "wrong" }, nil, provider.ErrUnauthenticated, []string{"GOVC_PASSWORD", sim.User}},
		"expired":  {nil, func(s *sim.Site) { s.World.Script(cloudsim.Refused("Login", 500, "PasswordExpired").Repeated(-1)) }, provider.ErrUnauthenticated, []string{"GOVC_PASSWORD"}},
		"no access": {nil, func(s *sim.Site) {
			s.World.Script(cloudsim.Refused("FindByInventoryPath", 500, "NoPermission").Repeated(-1), cloudsim.Refused("RetrievePropertiesEx", 500, "NoPermission").Repeated(-1))
		}, provider.ErrPermissionDenied, []string{"DeployTemplate"}},
		"all absent": {func(c *Config) {
			c.Folder, c.Template, c.Datastore, c.Network, c.Pools, c.Host = "f0", "t0", "d0", "n0", []string{"p0"}, "h0"
		}, nil, provider.ErrInvalidArgument, []string{"-deploy-folder (GOVC_FOLDER)", "f0", "-template (GOVC_TEMPLATE)", "t0", "-data-store (GOVC_DATASTORE)", "d0", "-network (GOVC_NETWORK)", "n0", "-resource-pool (GOVC_RESOURCE_POOL)", "p0", "-host (GOVC_HOST)", "h0"}},
		"datacenter":  {func(c *Config) { c.Datacenter = "elsewhere" }, nil, provider.ErrInvalidArgument, []string{"-data-center (GOVC_DATACENTER)", "elsewhere"}},
		"snapshot":    {func(c *Config) { c.Snapshot = "s0" }, nil, provider.ErrNotFound, []string{"-vsphere-snapshot (GOVC_SNAPSHOT)", "s0"}},
		"CA":          {func(c *Config) { c.CAFile = "" }, nil, provider.ErrUnauthenticated, []string{"certificate"}},
		"thumbprint":  {func(c *Config) { c.CAFile, c.Thumbprint = "", strings.Repeat("ab", 20) }, nil, provider.ErrUnauthenticated, []string{"-thumbprint (GOVC_THUMBPRINT)"}},
		"closed port": {func(c *Config) { c.URL = "https://127.0.0.1:1" }, nil, provider.ErrUnavailable, []string{"127.0.0.1:1"}},
		"throttled":   {nil, func(s *sim.Site) { s.World.Script(cloudsim.Refused("*", 503, "http").Repeated(-1)) }, provider.ErrUnavailable, []string{"503"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := sim.Start(t)
			var changes []func(*Config)
			if row.change != nil {
				changes = append(changes, row.change)
			}
			if row.world != nil {
				row.world(s)
			}
			p := mustOpen(t, simConfig(s, changes...))
			_, createErr := create(t.Context(), p, "key")
			verifyErr := p.ConfigVerifier()
			for _, err := range []error{verifyErr, createErr} {
				if !errors.Is(err, row.class) || !strings.Contains(err.Error(), row.want[0]) {
					t.Fatalf("%v, want %v that names %s", err, row.class, row.want[0])
				}
				if strings.Contains(err.Error(), sim.Password) {
					t.Error("the password is in the error")
				}
			}
			for _, want := range row.want {
				if !strings.Contains(verifyErr.Error(), want) {
					t.Errorf("%v does not name %q", verifyErr, want)
				}
			}
			if left, _ := s.Leaks(); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// TestMissingPrivilege takes each privilege away in turn.
func TestMissingPrivilege(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s, func(c *Config) { c.Network, c.Datastore = sim.Network, sim.Datastore }))
	if err := p.ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	for _, need := range Privileges {
		s.Deny(need.ID)
		err := p.ConfigVerifier()
		if !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), need.ID+" on "+need.On) {
			t.Errorf("without %s: %v", need.ID, err)
		}
	}
}

func thumbprint(cert []byte, form string) string {
	if form == "SHA-1" {
		sum := sha1.Sum(cert)
		return hex.EncodeToString(sum[:])
	}
	sum := sha256.Sum256(cert)
	return strings.ToUpper(hex.EncodeToString(sum[:]))
}

func TestThumbprint(t *testing.T) {
	s := sim.Start(t)
	for _, form := range []string{"SHA-256", "SHA-1"} {
		p := mustOpen(t, simConfig(s, func(c *Config) {
			c.CAFile, c.Thumbprint = "", thumbprint(s.Server.Certificate().Raw, form)
		}))
		if err := p.ConfigVerifier(); err != nil {
			t.Errorf("%s: %v", form, err)
		}
	}
}

func TestCapacityFallsBackToTheNextPool(t *testing.T) {
	for name, fault := range map[string]cloudsim.Fault{
		"clone":    cloudsim.Refused("CloneVM_Task", 500, "task:InsufficientStorageSpace"),
		"power on": cloudsim.Refused("PowerOnVM_Task", 500, "task:InsufficientCpuResourcesFault"),
	} {
		t.Run(name, func(t *testing.T) {
			s := sim.Start(t)
			p := mustOpen(t, simConfig(s, func(c *Config) { c.Pools = []string{sim.Cluster, sim.Host} }))
			s.World.Script(fault)
			if _, err := create(t.Context(), p, "key"); err != nil {
				t.Errorf("the second pool was not tried: %v", err)
			}
			s.World.Script(fault.Repeated(2))
			if _, err := create(t.Context(), p, "other"); !errors.Is(err, provider.ErrCapacity) || !strings.Contains(err.Error(), sim.Cluster) || !strings.Contains(err.Error(), sim.Host) {
				t.Errorf("both are full: %v", err)
			}
			if left, _ := s.Leaks(); len(left) != 1 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

func TestUserDataTooLarge(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	random := make([]byte, 64<<10)
	rand.Read(random)
	_, err := p.CreateInstance(t.Context(), "pod", "key", cloudinit.Raw(hex.EncodeToString(random)), provider.InstanceTypeSpec{})
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "user-data") {
		t.Errorf("%v, want an invalid argument", err)
	}
	if calls := s.World.Calls(); len(calls) > 0 {
		t.Errorf("vCenter was called: %v", calls)
	}
}

func TestNoAddress(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s, func(c *Config) { c.AddressWait = time.Nanosecond }))
	i, err := create(t.Context(), p, "key")
	if !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "VSPHERE_ADDRESS_WAIT") || i == nil {
		t.Fatalf("%v, %v", i, err)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
}

// TestSilentServer: every method ends with its context though nobody answers.
func TestSilentServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	c := config.Defaults[Config]()
	c.URL, c.User, c.Password = "https://"+listener.Addr().String(), "u", "p"
	p := mustOpen(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := create(ctx, p, "key"); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	if err := p.DeleteInstance(ctx, instanceID("key")); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("delete: %v", err)
	}
}

// TestSessionIsRenewed also when vCenter has forgotten all sessions.
func TestSessionIsRenewed(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	if _, err := create(t.Context(), p, "key"); err != nil {
		t.Fatal(err)
	}
	s.World.Script(cloudsim.Refused("RetrievePropertiesEx", 500, "NotAuthenticated"))
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagKey: "key"})
	if err != nil || len(list) != 1 {
		t.Errorf("%v, %v", list, err)
	}
	if n := s.World.Calls()["Login"]; n != 2 {
		t.Errorf("%d log-ins, want 2", n)
	}
}

// TestPrivilegesAreTheSeen keeps the documentation's role to the methods that
// a whole life calls.
func TestPrivilegesAreTheSeen(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s, func(c *Config) { c.Network, c.Datastore = sim.Network, sim.Datastore }))
	live(t, p)
	var free = []string{"ContinueRetrievePropertiesEx", "CreateFilter", "CreatePropertyCollector", "DestroyPropertyCollector", "FindByInventoryPath", "FindChild",
		"HasPrivilegeOnEntities", "Login", "Logout", "RetrievePropertiesEx", "RetrieveServiceContent", "WaitForUpdatesEx"}
	need := map[string]bool{}
	var text strings.Builder
	text.WriteString("| on | privilege | for |\n|---|---|---|\n")
	for _, row := range Privileges {
		need[row.Method] = true
		text.WriteString("| " + row.On + " | `" + row.ID + "` | " + row.Method + " |\n")
	}
	calls := s.World.Calls()
	for method := range calls {
		if !need[method] && !slices.Contains(free, method) {
			t.Errorf("%s is called, and nobody says which privilege it needs", method)
		}
	}
	for method := range need {
		if calls[method] == 0 {
			t.Errorf("a privilege is for %s, which is never called", method)
		}
	}
	cloudsim.CheckDoc(t, filepath.Join("..", "..", "docs", "providers", "vsphere.md"), "privileges", text.String())
}

// live is a whole life of an instance.
func live(t *testing.T, p *Provider) {
	t.Helper()
	i, err := create(t.Context(), p, "key")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return p.ConfigVerifier() },
		func() error { return p.PowerOff(t.Context(), i.ID) },
		func() error { return p.PowerOn(t.Context(), i.ID) },
		func() error { return cloudsim.DiskLife(t.Context(), p, 1<<30, i.ID) },
		func() error { _, err := p.ListInstances(t.Context(), cloudsim.OwnerTags("key")); return err },
		func() error { return p.DeleteInstance(t.Context(), i.ID) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCalls is the table of calls in the documentation.
func TestCalls(t *testing.T) {
	s := sim.Start(t)
	p := mustOpen(t, simConfig(s))
	live(t, p) // the session is open and the names are known
	s.World.ResetCalls()
	i, err := create(t.Context(), p, "other")
	if err != nil {
		t.Fatal(err)
	}
	created := total(s)
	s.World.ResetCalls()
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Fatal(err)
	}
	deleted := total(s)
	t.Logf("calls per create %d, per delete %d", created, deleted)
	// A task or address may take one answer more to a WaitForUpdatesEx.
	if created > 17 || deleted > 19 {
		t.Errorf("%d calls per create and %d per delete: the documentation says less", created, deleted)
	}
}

func total(s *sim.Site) (n int) {
	for _, calls := range s.World.Calls() {
		n += calls
	}
	return n
}
