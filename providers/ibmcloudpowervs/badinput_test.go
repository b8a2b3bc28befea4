// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/ibmcloudpowervs"
)

const userData = cloudinit.Raw("#cloud-config\nwrite_files: []\n")

// wantError checks class and words of an error that a user gets to read.
func wantError(t *testing.T, err, class error, words ...string) {
	t.Helper()
	if provider.Class(err) != class {
		t.Errorf("error %v\nis %v, want %v", err, provider.Class(err), class)
	}
	for _, w := range append(words, "") {
		if err == nil || !strings.Contains(err.Error(), w) {
			t.Errorf("error %v\nlacks %q", err, w)
		}
	}
	if err != nil && strings.Contains(err.Error(), sim.APIKey) {
		t.Errorf("error %v\ntells the API key", err)
	}
}

func TestSettingsThatAreMissing(t *testing.T) {
	m := NewManager()
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	m.ParseCmd(flags)
	m.LoadEnv()
	_, err := m.NewProvider()
	wantError(t, err, provider.ErrInvalidArgument, "IBMCLOUD_API_KEY", "POWERVS_ZONE", "POWERVS_SERVICE_INSTANCE_ID", "POWERVS_NETWORK_ID", "POWERVS_IMAGE_ID")
}

// TestEarlierNameOfTheTimeout: manifests of other versions have -build-timeout.
func TestEarlierNameOfTheTimeout(t *testing.T) {
	for value, want := range map[string]time.Duration{"7m": 7 * time.Minute, "-1s": 0} {
		m := NewManager()
		flags := flag.NewFlagSet("", flag.ContinueOnError)
		m.ParseCmd(flags)
		if err := flags.Parse([]string{"-api-key", sim.APIKey, "-zone", sim.Zone, "-service-instance-id", sim.Instance,
			"-network-id", sim.PublicNetwork, "-image-id", sim.Image, "-build-timeout", value}); err != nil {
			t.Fatal(err)
		}
		cfg, err := m.Config()
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(cfg)
		if want == 0 {
			wantError(t, err, provider.ErrInvalidArgument, "-powervs-build-timeout")
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := p.cfg.BuildTimeout; got != want {
			t.Errorf("-build-timeout %s: %v", value, got)
		}
	}
}

func TestSettingsThatAreMalformed(t *testing.T) {
	for env, c := range map[string]struct{ value, want string }{
		"POWERVS_ZONE":                {"Dallas 10", "not a zone such as dal10"},
		"POWERVS_SERVICE_INSTANCE_ID": {"../x", "other characters"},
		"POWERVS_NETWORK_ID":          {"a/b", "other characters"},
		"POWERVS_IMAGE_ID":            {"a?b", "other characters"},
		"POWERVS_SYSTEM_TYPE":         {"s 922", "other characters"},
		"POWERVS_PROCESSOR_TYPE":      {"fast", "dedicated"},
		"POWERVS_MEMORY":              {"0", "not a number above 0"},
		"POWERVS_PROCESSORS":          {"half", "not a number above 0"},
		"POWERVS_BUILD_TIMEOUT":       {"0s", "not more than nothing"},
		"POWERVS_ENDPOINT":            {"http://power.test", "not an https URL"},
		"IBMCLOUD_IAM_ENDPOINT":       {"iam", "not an https URL"},
		"POWERVS_CA_FILE":             {"/nonexistent", "no such file"},
		"TAGS":                        {"outrigger-key=x", "those of the owner"},
	} {
		t.Run(env, func(t *testing.T) {
			for name, value := range map[string]string{
				"IBMCLOUD_API_KEY": sim.APIKey, "POWERVS_ZONE": sim.Zone, "POWERVS_SERVICE_INSTANCE_ID": sim.Instance,
				"POWERVS_NETWORK_ID": sim.PublicNetwork, "POWERVS_IMAGE_ID": sim.Image, env: c.value,
			} {
				t.Setenv(name, value)
			}
			m := NewManager()
			m.ParseCmd(flag.NewFlagSet("", flag.ContinueOnError))
			m.LoadEnv()
			_, err := m.NewProvider()
			wantError(t, err, provider.ErrInvalidArgument, env, c.want)
		})
	}
}

// TestVerifierReportsAll: everything that is wrong, at once.
func TestVerifierReportsAll(t *testing.T) {
	s := newStand(t)
	if err := s.mustOpen(t).ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	s.cfg.Image, s.cfg.Network, s.cfg.SSHKey, s.cfg.SystemType = "img-no", "net-no", "key-no", "s1"
	err := s.mustOpen(t).ConfigVerifier()
	wantError(t, err, provider.ErrNotFound, "POWERVS_IMAGE_ID", "img-no", "POWERVS_NETWORK_ID", "net-no", "POWERVS_SSH_KEY_NAME", "key-no", "POWERVS_SYSTEM_TYPE", "s922")
}

func TestCredentials(t *testing.T) {
	s := newStand(t)
	s.cfg.APIKey = "another-key"
	err := s.mustOpen(t).ConfigVerifier()
	wantError(t, err, provider.ErrUnauthenticated, "IBMCLOUD_API_KEY", "could not be found")

	s = newStand(t)
	s.TokenLife = 0 // over at once: a call gets a token, is refused, gets another
	_, err = s.mustOpen(t).CreateInstance(t.Context(), "pod", "key", userData, spec("key"))
	wantError(t, err, provider.ErrUnauthenticated, "expired")

	s = newStand(t)
	s.cfg.ServiceInstance = "another-workspace"
	err = s.mustOpen(t).ConfigVerifier()
	wantError(t, err, provider.ErrPermissionDenied, "CRN")
}

// TestTokenIsRenewed: a token that the cloud has forgotten is not a failure.
func TestTokenIsRenewed(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	if err := p.ConfigVerifier(); err != nil {
		t.Fatal(err)
	}
	s.ForgetTokens()
	if _, err := p.ListInstances(t.Context(), cloudsim.OwnerTags("key")); err != nil {
		t.Errorf("after the token was forgotten: %v", err)
	}
	if n := s.World.Calls()["iam:token"]; n != 2 {
		t.Errorf("%d tokens were asked for, want 2", n)
	}
}

func TestRightsThatAreMissing(t *testing.T) {
	for _, action := range []string{"powervs:pvm-instances.create", "powervs:pvm-instances.list", "powervs:pvm-instances.delete"} {
		t.Run(action, func(t *testing.T) {
			s := newStand(t)
			p := s.mustOpen(t)
			made, err := p.CreateInstance(t.Context(), "pod", "before", userData, spec("before"))
			if err != nil {
				t.Fatal(err)
			}
			s.Deny(action)
			_, createErr := p.CreateInstance(t.Context(), "pod", "key", userData, spec("key"))
			deleteErr := p.DeleteInstance(t.Context(), made.ID)
			wantError(t, errors.Join(createErr, deleteErr), provider.ErrPermissionDenied, action)
		})
	}
}

func TestSpecThatTheCloudCannotHave(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*provider.InstanceTypeSpec)
		want   string
	}{
		"type":     {func(s *provider.InstanceTypeSpec) { s.InstanceType = "m6a.large" }, "s922-2x4"},
		"system":   {func(s *provider.InstanceTypeSpec) { s.InstanceType = "s1-1x2" }, "s1"},
		"zero":     {func(s *provider.InstanceTypeSpec) { s.InstanceType = "s922-0x2" }, "above 0"},
		"arch":     {func(s *provider.InstanceTypeSpec) { s.Arch = "amd64" }, "ppc64le"},
		"gpu":      {func(s *provider.InstanceTypeSpec) { s.GPUs = 1 }, "no GPUs"},
		"volume":   {func(s *provider.InstanceTypeSpec) { s.Volumes = []provider.CloudVolume{{DiskID: "v"}} }, "volumes"},
		"nic":      {func(s *provider.InstanceTypeSpec) { s.MultiNic = true }, "second interface"},
		"memory":   {func(s *provider.InstanceTypeSpec) { s.Memory = 2000 << 10 }, "from 2 to 960"},
		"image":    {func(s *provider.InstanceTypeSpec) { s.Image = "img-no" }, "img-no"},
		"no image": {func(s *provider.InstanceTypeSpec) { s.Image = "../img" }, "want an id"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			want := spec("key")
			c.change(&want)
			_, err := s.mustOpen(t).CreateInstance(t.Context(), "pod", "key", userData, want)
			wantError(t, err, provider.ErrInvalidArgument, c.want)
			if own := s.World.Own(); len(own) > 0 {
				t.Errorf("left behind: %v", own)
			}
		})
	}
}

func TestUserDataThatIsTooLarge(t *testing.T) {
	s := newStand(t)
	large := cloudinit.Raw(strings.Repeat("a", 63<<10))
	_, err := s.mustOpen(t).CreateInstance(t.Context(), "pod", "key", large, spec("key"))
	wantError(t, err, provider.ErrInvalidArgument, "user-data", "64512")
	if calls := s.World.Calls(); len(calls) > 0 {
		t.Errorf("calls %v before the size was looked at", calls)
	}
}

// TestFailedBuild: half a VM is removed, and the error says what the cloud said.
func TestFailedBuild(t *testing.T) {
	for message, class := range map[string]error{
		"no valid host was found": provider.ErrCapacity, "quota of cores": provider.ErrQuota, "the storage is broken": provider.ErrUnavailable,
	} {
		t.Run(message, func(t *testing.T) {
			s := newStand(t)
			s.World.Script(cloudsim.Fault{Action: sim.LateFailure, Code: "late", Message: message})
			_, err := s.mustOpen(t).CreateInstance(t.Context(), "pod", "key", userData, spec("key"))
			wantError(t, err, class, message)
			s.awaitNothing(t)
		})
	}
}

func (s *stand) awaitNothing(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(s.World.Own()) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", s.World.Own())
		}
		s.Tick()
	}
}

// TestNoAddressInTime: a VM without address is of no use and costs money.
func TestNoAddressInTime(t *testing.T) {
	s := newStand(t)
	s.Step = time.Hour
	s.cfg.BuildTimeout = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { // the caller waits until the cloud has refused to remove the VM
		for ctx.Err() == nil && s.World.Calls()["powervs:pvm-instances.delete"] == 0 {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	made, err := s.mustOpen(t).CreateInstance(ctx, "pod", "key", userData, spec("key"))
	wantError(t, err, provider.ErrUnavailable, "POWERVS_BUILD_TIMEOUT")
	// The cloud removes nothing that is being built, so the caller has to.
	if made == nil || made.ID == "" {
		t.Error("the VM that cannot be removed yet is not answered")
	}
}

func TestEndpointOutOfReach(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	listener.Close()
	s := newStand(t)
	s.cfg.Endpoint = "https://" + address
	_, err = s.mustOpen(t).ListInstances(t.Context(), cloudsim.OwnerTags("key"))
	wantError(t, err, provider.ErrUnavailable, address)
}

func TestCertificateOfSomebody(t *testing.T) {
	s := newStand(t)
	s.cfg.CAFile = ""
	err := s.mustOpen(t).ConfigVerifier()
	wantError(t, err, provider.ErrUnavailable, "POWERVS_CA_FILE")
	s.cfg.CAFile = t.TempDir() + "/empty.pem"
	if err := os.WriteFile(s.cfg.CAFile, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = New(s.cfg)
	wantError(t, err, provider.ErrInvalidArgument, "POWERVS_CA_FILE", "no certificate")
}

// TestDeleteDuringCreate: the deletion waits for the end of the build.
func TestDeleteDuringCreate(t *testing.T) {
	s := newStand(t)
	s.Step = 20 * time.Millisecond
	p := s.mustOpen(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	_, _ = p.CreateInstance(ctx, "pod", "key", userData, spec("key")) // given up
	list, err := p.ListInstances(t.Context(), cloudsim.OwnerTags("key"))
	for deadline := time.Now().Add(time.Minute); err == nil && len(list) == 0 && len(s.World.Own()) > 0 && time.Now().Before(deadline); {
		list, err = p.ListInstances(t.Context(), cloudsim.OwnerTags("key"))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
	}
	s.awaitNothing(t)
}

// TestDeleteAtTheEndOfABuild: the cloud refuses since the VM is being built, and
// when one looks why it is no longer.
func TestDeleteAtTheEndOfABuild(t *testing.T) {
	s := newStand(t)
	p := s.mustOpen(t)
	made := func(key string) string {
		i, err := p.CreateInstance(t.Context(), "pod", key, userData, spec(key))
		if err != nil {
			t.Fatal(err)
		}
		return i.ID
	}
	once, always := made("once"), made("always")
	refused := cloudsim.Refused("powervs:pvm-instances.delete", http.StatusBadRequest, "is in state BUILD")
	s.World.Script(refused)
	if err := p.DeleteInstance(t.Context(), once); err != nil {
		t.Errorf("refused once: %v", err)
	}
	s.World.Script(refused.Repeated(2))
	wantError(t, p.DeleteInstance(t.Context(), always), provider.ErrInvalidArgument, "is in state BUILD")
	if err := p.DeleteInstance(t.Context(), always); err != nil {
		t.Error(err)
	}
	s.awaitNothing(t)
}

func TestForeignInstancesStay(t *testing.T) {
	s := newStand(t)
	s.AddForeign("database-1", []string{"team:db"})
	foreign := s.World.Resources()[0].ID
	err := s.mustOpen(t).DeleteInstance(t.Context(), foreign)
	wantError(t, err, provider.ErrPermissionDenied, "somebody else's")
	if _, err := s.mustOpen(t).GetInstance(t.Context(), foreign); provider.Class(err) != provider.ErrNotFound {
		t.Errorf("a foreign instance is shown: %v", err)
	}
	if v := s.World.Violations(); len(v) > 0 {
		t.Error(v)
	}
}
