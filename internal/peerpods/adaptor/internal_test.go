// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

func TestFurthestStepOfARecord(t *testing.T) {
	for name, want := range map[string]string{
		stepRecordIntent:   stepClaim,
		stepCreateInstance: stepCreateInstance,
		stepTunnel:         stepReady,
		stepReady:          stepReady,
	} {
		if got := furthest(name); got != want {
			t.Errorf("furthest(%s) = %s, want %s", name, got, want)
		}
	}
}

func TestFailuresHaveReasons(t *testing.T) {
	for _, c := range []struct {
		step string
		err  error
		want string
	}{
		{stepConnect, errEnded, "InstanceEnded"},
		{stepConnect, errors.New("no answer"), "AgentUnreachable"},
		{stepConnect, provider.ErrUnavailable, ""},
		{stepTunnel, errors.New("no link"), "NetworkFailed"},
		{stepTunnel, fmt.Errorf("write: %w", unix.ENOSPC), "DiskFull"},
		{stepInspectNetwork, errors.New("no namespace"), "NetworkFailed"},
		{stepCreateInstance, errors.New("anything"), ""},
		{stepCreateInstance, provider.ErrQuota, ""},
	} {
		if got := (&StepError{Step: c.step, Err: c.err}).Reason(); got != c.want {
			t.Errorf("%s, %v: %q, want %q", c.step, c.err, got, c.want)
		}
	}
}

func TestPodNames(t *testing.T) {
	for _, c := range []struct{ name, namespace, wantName, wantNamespace string }{
		{"web-0", "shop", "web-0", "shop"},
		{"k8s_web-0_shop_5f2f_0", "shop", "web-0", "shop"},
		{"k8s_web-0_shop_5f2f_0", "", "web-0", "shop"},
		{"k8s_web-0", "shop", "k8s_web-0", "shop"},
	} {
		req, err := parseAnnotations(map[string]string{annotationPodName: c.name, annotationPodNamespace: c.namespace})
		if err != nil {
			t.Error(err)
			continue
		}
		if req.Name != c.wantName || req.Namespace != c.wantNamespace {
			t.Errorf("%q, %q gave %q, %q", c.name, c.namespace, req.Name, req.Namespace)
		}
	}
}

func TestInstanceAnnotations(t *testing.T) {
	req, err := parseAnnotations(map[string]string{
		annotationPodName: "p", annotationPodNamespace: "n", annotationMachineType: " m ", annotationImage: "i",
		annotationVCPUs: "2", annotationMemory: "3", annotationGPUs: "4", annotationGPUModel: " nvidia-l4 ",
	})
	if err != nil {
		t.Fatal(err)
	}
	want := provider.InstanceTypeSpec{InstanceType: "m", Image: "i", VCPUs: 2, Memory: 3, GPUs: 4, GPU: "nvidia-l4", Arch: runtime.GOARCH}
	if diff := cmp.Diff(want, req.Spec); diff != "" {
		t.Error(diff)
	}
}

// A pod author who chooses the VM's image is root on the nodes' network without
// an escape, so an image is one that the operator has named.
func TestPodsNameAllowedImagesOnly(t *testing.T) {
	for _, c := range []struct {
		allowed, image string
		want           bool
	}{
		{"", "", true},
		{"", "podvm", false},
		{"podvm", "podvm", true},
		{"podvm", "podvm-2", false},
		{"podvm", "PODVM", false},
		{"other,podvm-*", "podvm-2", true},
		{"podvm-*", "podvm", false},
		{"/subscriptions/s/images/*", "/subscriptions/s/images/a", true},
		{"/subscriptions/s/images/*", "/subscriptions/s/images/../evil", false},
		{"/subscriptions/s/images/*", "/subscriptions/t/images/a", false},
		{"*", "anything/at/all", true},
	} {
		opts := Options{PodImages: strings.FieldsFunc(c.allowed, func(r rune) bool { return r == ',' })}
		err := opts.allowImage(c.image)
		if (err == nil) != c.want || err != nil && provider.Class(err) != provider.ErrInvalidArgument {
			t.Errorf("image %q with %q: %v", c.image, c.allowed, err)
		}
	}
}

// addressed is a provider that knows where VMs see the node.
type addressed struct {
	provider.Provider
	addr netip.Addr
}

func (a addressed) NodeAddress(context.Context) (netip.Addr, error) { return a.addr, nil }

func TestInsecureRegistriesOfTheGuest(t *testing.T) {
	network := &podnetwork.Config{WorkerNodeIP: netip.MustParsePrefix("192.0.2.9/24")}
	for _, c := range []struct {
		list, node, want string
		network          *podnetwork.Config
	}{
		{"", "192.0.2.1", "", network},
		{"r.example.com:5000 @node", "192.0.2.1", "192.0.2.1\nr.example.com:5000\n", network},
		{"@node", "2001:db8::1", "[2001:db8::1]\n", nil},
		{"@node", "", "192.0.2.9\n", network},
		{"@node", "", "", nil},
		{"[2001:db8::2]:5000", "", "[2001:db8::2]:5000\n", nil},
	} {
		s := &Service{opts: Options{InsecureRegistries: strings.Fields(c.list), PodsDir: "/pods", TLS: TLS{Disabled: true}}}
		if err := s.opts.Check(); err != nil {
			t.Errorf("%q: %v", c.list, err)
		}
		node, _ := netip.ParseAddr(c.node)
		s.opts.Provider = addressed{addr: node}
		config, err := s.userData(t.Context(), &Record{Network: c.network}, nil)
		got := ""
		for _, f := range config.WriteFiles {
			if f.Path == "/run/peerpod/insecure-registries" {
				got = f.Content
			}
		}
		if err != nil || got != c.want {
			t.Errorf("%q at %q: %q, %v; want %q", c.list, c.node, got, err, c.want)
		}
	}
}

// ownCA returns the files of one whose VMs have their keys from a broker.
func ownCA(t *testing.T) *OwnCA {
	t.Helper()
	bundle, err := podtls.NewBundle(OwnCAServerName, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return &OwnCA{file("ca", bundle.CAPEM), file("cert", bundle.ClientCertPEM), file("key", bundle.ClientKeyPEM), "kbs:///default/vm/1"}
}

// TestUserDataHasNoSecret: with the VM's key at a broker, and credentials for registries there, all that a cloud reads is public. What would have
// to be a secret in user-data is an error.
func TestUserDataHasNoSecret(t *testing.T) {
	const broker, auths = "[kbc]\nname = \"cc_kbc\"\nurl = \"https://broker\"\n", "[image]\nauthenticated_registry_credentials_uri = \"kbs:///default/auth/1\"\n"
	secret := RegistryAuth{Registry: "r.example.com", Auth: "aHVudGVyMg=="}
	for name, c := range map[string]struct {
		data map[string]string
		auth []RegistryAuth
		want string
	}{
		"all at the broker": {map[string]string{"cdh.toml": broker + auths}, []RegistryAuth{secret}, ""},
		"broker of aa.toml": {map[string]string{"aa.toml": "[token_configs.kbs]\nurl = \"https://broker\"\n"}, nil, ""},
		"pull secrets":      {map[string]string{"cdh.toml": broker}, []RegistryAuth{secret}, "authenticated_registry_credentials_uri"},
		"bad TOML":          {map[string]string{"cdh.toml": "[kbc]\nurl = hunter2"}, nil, "cdh.toml: bad TOML"},
		"no broker":         {map[string]string{"policy.rego": "package agent_policy"}, nil, "names none"},
	} {
		data, err := cloudinit.NewInitData("sha256", "0.1.0", c.data)
		if err != nil {
			t.Fatal(err)
		}
		initdata, err := data.Encode()
		if err != nil {
			t.Fatal(err)
		}
		ca := ownCA(t)
		s := &Service{opts: Options{TLS: TLS{OwnCA: ca}, Initdata: initdata}}
		config, err := s.userData(t.Context(), &Record{PodName: "web"}, nil, c.auth...)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, provider.ErrInvalidArgument) || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		own, readErr := ca.read()
		if err != nil || readErr != nil {
			t.Fatal(err, readErr)
		}
		forwarder, err := (&apf.Config{PodName: "web", TLSServerIdentity: ca.ServerIdentity, TLSClientCA: own.CA}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		want := []cloudinit.WriteFile{{Path: apf.DefaultPath, Content: string(forwarder)}, {Path: "/run/peerpod/initdata", Content: initdata}}
		if diff := cmp.Diff(want, config.WriteFiles); diff != "" {
			t.Errorf("%s: user-data -want +got\n%s", name, diff)
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "0": 0, "3": 3, "0.5": 1, "2.0": 2, " 1280 ": 1280, "2047.25": 2048} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", text, got, err, want)
		}
	}
}

func TestCodesOfClasses(t *testing.T) {
	for err, want := range map[error]codes.Code{
		provider.ErrQuota:       codes.ResourceExhausted,
		provider.ErrUnavailable: codes.Unavailable,
		unix.ENOSPC:             codes.ResourceExhausted,
		errStopped:              codes.Aborted,
		errGone:                 codes.Canceled,
	} {
		if got := code(&StepError{Step: stepCreateInstance, Err: fmt.Errorf("more: %w", err)}); got != want {
			t.Errorf("code(%v) = %s, want %s", err, got, want)
		}
	}
	full := &StepError{Step: stepRecordIntent, Err: unix.ENOSPC}
	if !strings.Contains(full.Error(), "free space") {
		t.Errorf("a full disk says %q", full)
	}
}

// TestCallersTimeLeavesRoomForTheReason: work ends before the caller does, who else
// would read of a deadline and not the VM's console.
func TestCallersTimeLeavesRoomForTheReason(t *testing.T) {
	for given, margin := range map[time.Duration]time.Duration{time.Hour: consoleTimeout, 5 * time.Second: time.Second} {
		outer, cancel := context.WithTimeout(t.Context(), given)
		defer cancel()
		ctx, cancel := inTime(outer)
		defer cancel()
		callers, _ := outer.Deadline()
		own, _ := ctx.Deadline()
		if left := callers.Sub(own).Round(100 * time.Millisecond); left != margin {
			t.Errorf("%s of %s are left to say why, want %s", left, given, margin)
		}
	}
	past, cancel := context.WithDeadline(t.Context(), time.Unix(1, 0))
	defer cancel()
	ctx, cancel := inTime(past)
	defer cancel()
	if ctx.Err() == nil {
		t.Error("a deadline that has passed leaves time")
	}
	if without, _ := inTime(t.Context()); without != t.Context() {
		t.Error("a call without a deadline got one")
	}
}

// TestInstancesAreLookedAt guards the adaptor against providers in Go, whose answers no
// wire has looked at.
func TestInstancesAreLookedAt(t *testing.T) {
	ip := []netip.Addr{netip.MustParseAddr("198.18.0.2")}
	for what, c := range map[string]struct {
		instance provider.Instance
		says     string
	}{
		"right":    {provider.Instance{ID: "i", Name: "n", IPs: ip}, ""},
		"loopback": {provider.Instance{ID: "i", IPs: []netip.Addr{ip[0], netip.MustParseAddr("127.0.0.1")}}, "127.0.0.1 is an address of this machine"},
		"id":       {provider.Instance{ID: strings.Repeat("i", 8<<20), IPs: ip}, "8388608 bytes"},
		"name":     {provider.Instance{ID: "i", Name: strings.Repeat("n", 8<<20), IPs: ip}, "8388608 bytes"},
		"address":  {provider.Instance{ID: "i"}, "no address"},
	} {
		err := checkUsable(&c.instance, "")
		if c.says == "" && err != nil || c.says != "" && (!errors.Is(err, provider.ErrUnknown) || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestConsoleText(t *testing.T) {
	long := strings.Repeat("line\n", 50) + "the end\r\n"
	got := strings.Split(consoleText([]byte(long)), "\n")
	if len(got) != consoleLines || got[consoleLines-1] != "the end" {
		t.Errorf("%d lines, last %q", len(got), got[len(got)-1])
	}
	if got := consoleText(nil); !strings.Contains(got, "nothing") {
		t.Errorf("an empty console says %q", got)
	}
}

func FuzzAnnotations(f *testing.F) {
	f.Add("pod", "ns", "2", "0.5", "")
	f.Add("k8s_a_b_c_0", "", "1e9", "-1", "H4sI")
	f.Add("", "x", "99999999999999999999", "NaN", "algorithm='sha256'\nversion='1'")
	f.Fuzz(func(t *testing.T, name, namespace, vcpus, memory, initdata string) {
		req, err := parseAnnotations(map[string]string{
			annotationPodName: name, annotationPodNamespace: namespace,
			annotationVCPUs: vcpus, annotationMemory: memory, annotationInitdata: initdata,
		})
		if err != nil {
			if provider.Class(err) != provider.ErrInvalidArgument {
				t.Errorf("class of %v", err)
			}
			return
		}
		if req.Spec.VCPUs < 0 || req.Spec.Memory < 0 || req.Name == "" || req.Namespace == "" {
			t.Errorf("accepted %+v", req)
		}
		if (req.Initdata == "") != (strings.TrimSpace(initdata) == "") {
			t.Errorf("initdata %q became %q", initdata, req.Initdata)
		}
	})
}

func FuzzJournal(f *testing.F) {
	rec := Record{Format: recordFormat, ID: "a1", State: StateReady, Step: stepReady, Created: time.Unix(0, 0).UTC(), InstanceID: "i"}
	good, err := json.Marshal(&rec)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-2])
	f.Add([]byte("null"))
	f.Add([]byte(`{"network":{"podip":"10.0.0.1/24"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		rec, err := parseRecord("a1", data)
		if err != nil {
			return
		}
		again, err := json.Marshal(rec)
		if err != nil {
			t.Fatal(err)
		}
		second, err := parseRecord("a1", again)
		if err != nil {
			t.Fatalf("own output: %v", err)
		}
		third, err := json.Marshal(second)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(again), string(third)); diff != "" {
			t.Errorf("a record changes by being kept:\n%s", diff)
		}
	})
}
