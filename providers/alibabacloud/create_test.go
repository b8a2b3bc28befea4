// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
)

func TestInstanceTellsWhereItIs(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	made := mustCreate(t, p, "where", provider.InstanceTypeSpec{})
	got, err := p.GetInstance(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Zone != "cn-beijing-i" || got.Region != sim.Region || got.Type != "ecs.g8i.xlarge" || got.Key != "where" || got.Created.IsZero() {
		t.Errorf("%+v", got)
	}
	if got.Tags[tagAttempt] != "" || !provider.HasTags(got.Tags, cloudsim.OwnerTags("where")) {
		t.Errorf("tags %v", got.Tags)
	}
}

// TestSecondInterface: it is made with the instance, has the owner's tags and
// an address of its own, and is not where nodes reach the VM.
func TestSecondInterface(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	i := mustCreate(t, p, "second", provider.InstanceTypeSpec{MultiNic: true})
	kinds := map[string]int{}
	for _, r := range c.Own() {
		kinds[r.Kind]++
		if !provider.HasTags(r.Tags, cloudsim.OwnerTags("second")) {
			t.Errorf("%s has tags %v", r, r.Tags)
		}
	}
	if kinds[cloudsim.KindNIC] != 2 || kinds[cloudsim.KindAddress] != 1 || len(i.IPs) != 1 || !strings.HasPrefix(i.IPs[0].String(), "10.0.") {
		t.Errorf("resources %v, addresses %v", kinds, i.IPs)
	}
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
	_, err := create(t, p, "second", provider.InstanceTypeSpec{MultiNic: true, InstanceType: "ecs.e-c1m1.large"})
	if !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("a type that takes one interface: %v", err)
	}
}

func TestFallback(t *testing.T) {
	for _, test := range []struct {
		order   string
		soldOut []string
		want    string // type and zone; empty for no capacity
	}{
		{"price", nil, "ecs.g8i.xlarge cn-beijing-i"}, // the cheapest that fits
		{"price", []string{"ecs.g8i.xlarge@cn-beijing-i"}, "ecs.g8i.xlarge cn-beijing-k"},
		{"price", []string{"ecs.g8i.xlarge"}, "ecs.r8i.xlarge cn-beijing-k"},                    // 1.40
		{"price", []string{"ecs.g8i.xlarge", "ecs.r8i.xlarge"}, "ecs.c8i.2xlarge cn-beijing-i"}, // 1.80
		{"zone", []string{"ecs.g8i.xlarge@cn-beijing-i"}, "ecs.c8i.2xlarge cn-beijing-i"},
		{"none", []string{"ecs.g8i.xlarge@cn-beijing-i"}, ""},
		{"price", []string{"ecs.g8i.xlarge", "ecs.r8i.xlarge", "ecs.c8i.2xlarge", "ecs.g8i.2xlarge"}, ""},
	} {
		t.Run(test.order+" "+strings.Join(test.soldOut, " "), func(t *testing.T) {
			for _, remembers := range []bool{false, true} {
				c := newCloud(t, sim.Options{RemembersFailures: remembers})
				c.SellOut(test.soldOut...)
				cfg := settings(c)
				cfg.VSwitchIDs = append(cfg.VSwitchIDs, sim.OtherVSwitch)
				cfg.InstanceTypes, cfg.Fallback = []string{"ecs.[gcr]8i.*"}, test.order
				p := newProvider(t, cfg)
				i, err := create(t, p, "fallback", provider.InstanceTypeSpec{VCPUs: 4, Memory: 16 << 10})
				if test.want == "" {
					if !errors.Is(err, provider.ErrCapacity) || i != nil {
						t.Errorf("%v, %v", i, err)
					}
					wantNothing(t, c)
					continue
				}
				if err != nil || i.Type+" "+i.Zone != test.want {
					t.Errorf("%+v, %v", i, err)
				}
			}
		})
	}
}

func TestPublicAddressOfTheInstance(t *testing.T) {
	c := newCloud(t, sim.Options{})
	cfg := settings(c)
	cfg.UsePublicIP, cfg.Bandwidth = true, 20
	p := newProvider(t, cfg)
	i := mustCreate(t, p, "public", provider.InstanceTypeSpec{})
	if request := c.Requests()[0]; request.Get("InternetMaxBandwidthOut") != "20" || request.Get("InternetChargeType") != "PayByTraffic" {
		t.Errorf("request %v", request)
	}
	if len(i.IPs) != 1 || !strings.HasPrefix(i.IPs[0].String(), "198.51.") {
		t.Errorf("addresses %v", i.IPs)
	}
	if n := c.Calls()["vpc:AllocateEipAddress"]; n != 0 {
		t.Errorf("%d elastic addresses", n)
	}
}

func TestSpotAndOthers(t *testing.T) {
	c := newCloud(t, sim.Options{})
	cfg := settings(c)
	cfg.Spot, cfg.SpotLimit, cfg.DisableCVM, cfg.HTTPTokens, cfg.DiskCategory = spotLimited, "0.97", true, "optional", "cloud_auto"
	p := newProvider(t, cfg)
	mustCreate(t, p, "spot", provider.InstanceTypeSpec{})
	got := c.Requests()[0]
	for name, want := range map[string]string{
		"SpotStrategy": spotLimited, "SpotPriceLimit": "0.97", "HttpTokens": "optional", "SystemDisk.Category": "cloud_auto",
		"SecurityOptions.ConfidentialComputingMode": "",
	} {
		if got.Get(name) != want {
			t.Errorf("%s is %q", name, got.Get(name))
		}
	}
}

// TestImageOfOnePod: the image of a pod is not the next one's.
func TestImageOfOnePod(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	_, err := create(t, p, "image-a", provider.InstanceTypeSpec{Image: "m-another"})
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "m-another") {
		t.Errorf("an image that is not there: %v", err)
	}
	mustCreate(t, p, "image-b", provider.InstanceTypeSpec{})
}

// TestOrphan: an address that has outlived its instance is listed under its id
// and deleted by it.
func TestOrphan(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	i := mustCreate(t, p, "orphan", provider.InstanceTypeSpec{MultiNic: true})
	c.Script(cloudsim.Refused("vpc:ReleaseEipAddress", 403, "Forbidden.RAM"))
	err := p.DeleteInstance(t.Context(), i.ID)
	if !errors.Is(err, provider.ErrPermissionDenied) || !strings.Contains(err.Error(), "vpc:ReleaseEipAddress") {
		t.Errorf("delete: %v", err)
	}
	again := newProvider(t, settings(c))
	match := map[string]string{provider.TagCluster: cloudsim.OwnerTags("")[provider.TagCluster]}
	var list []provider.Instance
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if list, err = again.ListInstances(t.Context(), match); err != nil {
			t.Fatal(err)
		}
		if len(c.Own()) == 1 && len(list) == 1 {
			break
		}
	}
	if len(list) != 1 || list[0].ID != i.ID || list[0].Key != "orphan" || list[0].Created.IsZero() {
		t.Fatalf("list %+v", list)
	}
	if err := again.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// TestForeign: instances without our tags are never touched, and another
// cluster's are not taken for ours.
func TestForeign(t *testing.T) {
	c := newCloud(t, sim.Options{})
	bare := c.AddForeign(map[string]string{"Name": "a database"})
	c.AddForeign(cloudsim.ForeignTags("foreign"))
	p := newProvider(t, settings(c))
	if err := p.DeleteInstance(t.Context(), bare); !errors.Is(err, provider.ErrPermissionDenied) {
		t.Errorf("delete: %v", err)
	}
	if _, err := p.GetInstance(t.Context(), bare); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	if err := p.PowerOff(t.Context(), bare); !errors.Is(err, provider.ErrNotFound) {
		t.Errorf("power off: %v", err)
	}
	i := mustCreate(t, p, "foreign", provider.InstanceTypeSpec{})
	if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// TestLongTags: values that the cloud would refuse are cut, and still differ.
func TestLongTags(t *testing.T) {
	long := strings.Repeat("n", 150)
	if a, b := truncateTag(long+"a"), truncateTag(long+"b"); a == b || len(a) > maxTag || truncateTag(a) != a {
		t.Errorf("%q and %q", a, b)
	}
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	tags := map[string]string{provider.TagCluster: "long", provider.TagPod: long}
	i, err := p.CreateInstance(t.Context(), long, "long-tags", cloudinit.Raw(""), provider.InstanceTypeSpec{Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.ListInstances(t.Context(), tags)
	if err != nil || len(list) != 1 || list[0].ID != i.ID || len(i.Name) > 63 {
		t.Errorf("list %v, %v, name %s", list, err, i.Name)
	}
}

// TestHalfASuccess: what a creation has made is gone when a later step fails
// for good.
func TestHalfASuccess(t *testing.T) {
	for _, fault := range []cloudsim.Fault{
		cloudsim.Refused("vpc:AllocateEipAddress", 400, "QuotaExceeded.Eip"),
		cloudsim.Refused("vpc:AssociateEipAddress", 403, "Forbidden.RAM"),
		cloudsim.Refused("ecs:TagResources", 403, "Forbidden.RAM"),
	} {
		t.Run(fault.Action, func(t *testing.T) {
			c := newCloud(t, sim.Options{})
			p := newProvider(t, settings(c))
			c.Script(fault)
			i, err := create(t, p, "half", provider.InstanceTypeSpec{MultiNic: true})
			if err == nil || i != nil {
				t.Errorf("%v, %v", i, err)
			}
			wantNothing(t, c)
			mustCreate(t, p, "half", provider.InstanceTypeSpec{MultiNic: true})
		})
	}
}

// TestDeletedWhileMade: a deletion during a creation ends it.
func TestDeletedWhileMade(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p, other := newProvider(t, settings(c)), newProvider(t, settings(c))
	// It is not finished before it is deleted.
	c.Script(cloudsim.Refused("vpc:AssociateEipAddress", 403, "IncorrectInstanceStatus").Repeated(-1))
	done := make(chan error, 1)
	go func() {
		_, err := create(t, p, "deleted", provider.InstanceTypeSpec{MultiNic: true})
		done <- err
	}()
	match := map[string]string{provider.TagKey: "deleted"}
	for len(c.Own()) == 0 {
		time.Sleep(time.Millisecond)
	}
	list, err := other.ListInstances(t.Context(), match)
	if err != nil || len(list) != 1 {
		t.Fatalf("list %v, %v", list, err)
	}
	if err := other.DeleteInstance(t.Context(), list[0].ID); err != nil {
		t.Error(err)
	}
	c.ClearFaults()
	if err := <-done; !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("create: %v", err)
	}
	wantNothing(t, c)
}

// TestDeletedBeforeItsInterfaceHasTags: the interface goes with the instance while it gets its tags.
func TestDeletedBeforeItsInterfaceHasTags(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	c.Script(cloudsim.Refused("ecs:TagResources", 404, "InvalidResourceId.NotFound"))
	if _, err := create(t, p, "deleted", provider.InstanceTypeSpec{MultiNic: true}); !errors.Is(err, errGone) {
		t.Errorf("create: %v", err)
	}
	wantNothing(t, c)
}

// TestThrottled: the cloud's limit of calls is waited for, and the context ends
// the waiting.
func TestThrottled(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	c.Script(cloudsim.Refused("*", 400, "Throttling.User").Repeated(attempts - 1))
	i := mustCreate(t, p, "throttled", provider.InstanceTypeSpec{})
	c.Script(cloudsim.Refused("*", 400, "Throttling.User").Repeated(-1))
	if _, err := p.GetInstance(t.Context(), i.ID); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("get: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.DeleteInstance(ctx, i.ID); !provider.Retryable(err) {
		t.Errorf("delete: %v", err)
	}
}

func TestCatalogue(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	rows, err := p.InstanceTypes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(rows, func(r provider.InstanceType) bool { return r.Name == "ecs.gn7i.xlarge" })
	if at < 0 {
		t.Fatalf("rows %v", rows)
	}
	if r := rows[at]; r.GPU != "nvidia-a10" || r.GPUs != 1 || r.VCPUs != 8 || r.Memory != 30<<10 || r.Arch != "amd64" || !slices.Equal(r.Zones, []string{"cn-beijing-i"}) {
		t.Errorf("%+v", r)
	}
	// The cheapest that is big enough, which is not the smallest of its family.
	cfg := settings(c)
	cfg.InstanceTypes, cfg.DisableCVM = []string{"*"}, true
	p = newProvider(t, cfg)
	for _, test := range []struct {
		spec provider.InstanceTypeSpec
		want string
	}{
		{provider.InstanceTypeSpec{VCPUs: 1, Memory: 1024, Arch: "amd64"}, "ecs.e-c1m1.large"},
		{provider.InstanceTypeSpec{VCPUs: 1, Memory: 1024, Arch: "arm64"}, "ecs.g8y.large"},
		{provider.InstanceTypeSpec{GPUs: 1, GPU: "A10"}, "ecs.gn7i.xlarge"},
		{provider.InstanceTypeSpec{InstanceType: "ecs.g8i.2xlarge"}, "ecs.g8i.2xlarge"},
		{provider.InstanceTypeSpec{}, "ecs.g8i.xlarge"},
	} {
		list, err := p.targets(t.Context(), test.spec)
		if err != nil || list[0].Type.Name != test.want {
			t.Errorf("%+v: %v, %v", test.spec, list, err)
		}
	}
}

// TestTenThousand lists as many instances as a large cluster may have.
func TestTenThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds; run without -short")
	}
	c := newCloud(t, sim.Options{})
	tags := cloudsim.OwnerTags("many")
	const n = 10_000
	for range n {
		c.AddForeign(tags)
	}
	p := newProvider(t, settings(c))
	begin := time.Now()
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: tags[provider.TagCluster]})
	if err != nil || len(list) != n {
		t.Errorf("%d, %v", len(list), err)
	}
	t.Logf("%d instances in %v, %d calls", len(list), time.Since(begin), c.Calls()["ecs:DescribeInstances"])
}

// TestOtherSettings: an instance that was made before a setting changed is not
// waited for until it has what it never gets.
func TestOtherSettings(t *testing.T) {
	c := newCloud(t, sim.Options{})
	cfg := settings(c)
	i := mustCreate(t, newProvider(t, cfg), "other", provider.InstanceTypeSpec{})
	cfg.UsePublicIP = true
	again, err := create(t, newProvider(t, cfg), "other", provider.InstanceTypeSpec{})
	if !errors.Is(err, provider.ErrAlreadyExists) || again == nil || again.ID != i.ID {
		t.Errorf("%+v, %v", again, err)
	}
}

// TestForgottenToken: when the cloud remembers a client token no longer, the
// instance that it made first stays, and the second goes.
func TestForgottenToken(t *testing.T) {
	c := newCloud(t, sim.Options{})
	p := newProvider(t, settings(c))
	first := mustCreate(t, p, "forgotten", provider.InstanceTypeSpec{})
	c.ForgetTokens()
	for _, p := range []*Provider{p, newProvider(t, settings(c))} {
		if again := mustCreate(t, p, "forgotten", provider.InstanceTypeSpec{}); again.ID != first.ID {
			t.Errorf("%s and %s", first.ID, again.ID)
		}
	}
	if n := len(c.Requests()); n != 2 { // the third call found its token used
		t.Errorf("%d instances were made", n)
	}
	instances := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		instances = 0
		for _, r := range c.Own() {
			if r.Kind == cloudsim.KindInstance {
				instances++
			}
		}
		if instances == 1 {
			break
		}
	}
	if instances != 1 {
		t.Errorf("%d instances", instances)
	}
}
