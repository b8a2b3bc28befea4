// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	sim "github.com/outrigger/outrigger/test/cloudsim/openstack"
)

// TestNothingAppearsAfterDeletion: OpenStack's services go on when their client
// is gone. A deletion returns when nothing can appear any more.
func TestNothingAppearsAfterDeletion(t *testing.T) {
	const delay = 100 * time.Millisecond
	for _, action := range []string{"create_port", "os_compute_api:servers:create", "create_floatingip"} {
		for name, fault := range map[string]cloudsim.Fault{"client gone": cloudsim.GoesOn(action, delay), "connection lost": cloudsim.Lost(action, delay)} {
			t.Run(action+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := sim.Start(t)
				p := mustOpen(t, simConfig(c, everything))
				p.lateness = 0
				if fault.Drop {
					p.lateness = 10 * delay
				}
				// The first creation logs in and reads the flavors.
				if i, err := create(t.Context(), p, "other"); err != nil || p.DeleteInstance(t.Context(), i.ID) != nil {
					t.Fatal(err)
				}
				calls := c.World.Calls()[action]
				c.World.Script(fault)
				ctx, cancel := context.WithCancel(t.Context())
				made := make(chan string, 1)
				go func() {
					i, err := create(ctx, p, "key")
					if err == nil || !provider.Retryable(err) || i == nil {
						t.Errorf("%v, %v: want a retryable error and what can be deleted", i, err)
					}
					made <- instanceID("key")
				}()
				eventually(t, func() bool { return c.World.Calls()[action] > calls })
				cancel()
				if err := p.DeleteInstance(t.Context(), <-made); err != nil {
					t.Fatal(err)
				}
				wantNothing(t, c)
				// Longer than the service goes on: nothing has come.
				time.Sleep(2 * delay)
				wantNothing(t, c)
			})
		}
	}
}

// TestServerAcceptedWhileItsPortGoes: another process's creation is accepted between
// the look for a server and the end of its port.
func TestServerAcceptedWhileItsPortGoes(t *testing.T) {
	const create1, delete1 = "os_compute_api:servers:create", "delete_port"
	c := sim.Start(t)
	maker, other := mustOpen(t, simConfig(c)), mustOpen(t, simConfig(c))
	c.World.Script(cloudsim.Slow(create1, 100*time.Millisecond), cloudsim.Slow(delete1, 400*time.Millisecond))
	made := make(chan struct{})
	go func() { defer close(made); create(t.Context(), maker, "key") }()
	eventually(t, func() bool { return c.World.Calls()[create1] > 0 })
	if err := other.DeleteInstance(t.Context(), instanceID("key")); err != nil {
		t.Fatal(err)
	}
	<-made
	wantNothing(t, c)
}

// TestKilledInACreation: what a service makes for a process that is no more is listed
// when it appears, for whoever looks for instances that nobody has on record.
func TestKilledInACreation(t *testing.T) {
	for _, action := range []string{"create_port", "os_compute_api:servers:create", "create_floatingip"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			c, hold := sim.Start(t), cloudsim.NewHold()
			c.World.Script(cloudsim.Held(action, hold))
			killed := mustOpen(t, simConfig(c, everything))
			done := make(chan struct{})
			go func() { defer close(done); create(t.Context(), killed, "key") }()
			eventually(t, func() bool { return c.World.Calls()[action] > 0 })
			killed.Teardown()
			<-done
			p := mustOpen(t, simConfig(c, everything))
			if err := p.DeleteInstance(t.Context(), instanceID("key")); err != nil {
				t.Fatal(err)
			}
			hold.Release()
			list, err := p.ListInstances(t.Context(), cloudsim.OwnerTags("key"))
			if err != nil {
				t.Fatal(err)
			}
			left, _ := c.Leaks()
			if len(left) > 0 && len(list) != 1 || len(left) == 0 && action == "create_port" {
				t.Errorf("%v is there, and the list is %v", left, list)
			}
			for _, i := range list {
				if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
					t.Error(err)
				}
			}
			wantNothing(t, c)
		})
	}
}

func eventually(t *testing.T, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it never came")
		}
	}
}

// TestMicroversions: what Nova offers is used, and what it does not is refused
// where it is needed.
func TestMicroversions(t *testing.T) {
	for _, row := range []struct {
		newest    int
		typed     string // of the instance
		hasVolume bool
	}{{1, "", false}, {46, "", false}, {47, "m1.small", false}, {66, "m1.small", false}, {67, "m1.small", true}, {93, "m1.small", true}} {
		t.Run(fmt.Sprintf("2.%d", row.newest), func(t *testing.T) {
			c := sim.Start(t)
			c.NewestMinor = row.newest
			p := mustOpen(t, simConfig(c))
			i, err := create(t.Context(), p, "key")
			if err != nil {
				t.Fatal(err)
			}
			if shown, err := p.GetInstance(t.Context(), i.ID); err != nil || shown.Type != row.typed {
				t.Errorf("%+v, %v: want type %q", shown, err, row.typed)
			}
			if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
				t.Error(err)
			}
			p = mustOpen(t, simConfig(c, everything))
			i, err = create(t.Context(), p, "typed")
			verified := p.ConfigVerifier()
			if !row.hasVolume {
				for _, err := range []error{err, verified} {
					if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "OPENSTACK_ROOT_VOLUME_TYPE") || !strings.Contains(err.Error(), "2.67") {
						t.Errorf("a type of the volume: %v", err)
					}
				}
			} else if err != nil || verified != nil || p.DeleteInstance(t.Context(), i.ID) != nil {
				t.Error(err, verified)
			}
			wantNothing(t, c)
		})
	}
}

// TestListBeginsAgain where the last port of a page is gone: Neutron answers as
// if that port had been asked for.
func TestListBeginsAgain(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	for n := range c.PageSize + 2 {
		if _, err := create(t.Context(), p, fmt.Sprint("key", n)); err != nil {
			t.Fatal(err)
		}
	}
	c.World.Script(cloudsim.Refused("get_port", http.StatusNotFound, "PortNotFound").Skipping(1))
	list, err := p.ListInstances(t.Context(), map[string]string{provider.TagCluster: cloudsim.OwnerTags("key0")[provider.TagCluster]})
	if err != nil || len(list) != c.PageSize+2 {
		t.Errorf("%d instances, %v", len(list), err)
	}
	for _, i := range list {
		if err := p.DeleteInstance(t.Context(), i.ID); err != nil {
			t.Error(err)
		}
	}
	wantNothing(t, c)
}

// TestTags: what Nova refuses is refused before anything is made.
func TestTags(t *testing.T) {
	c := sim.Start(t)
	p := mustOpen(t, simConfig(c))
	many := map[string]string{}
	for n := range 127 {
		many[fmt.Sprint("k", n)] = "v"
	}
	for name, more := range map[string]map[string]string{
		"slash": {"a/b": "v"}, "empty": {"": "v"}, "letters": {"gr\u00fcn": "v"}, "long key": {strings.Repeat("k", 256): "v"}, "long value": {"k": strings.Repeat("v", 256)}, "many": many,
	} {
		tags := cloudsim.OwnerTags("key")
		maps.Copy(tags, more)
		calls := c.World.Calls()["create_port"]
		if _, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{Tags: tags}); !errors.Is(err, provider.ErrInvalidArgument) || c.World.Calls()["create_port"] != calls {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := New(simConfig(c, func(c *Config) { c.Tags = more })); !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "-tags (TAGS)") {
			t.Errorf("%s at start: %v", name, err)
		}
	}
	good := cloudsim.OwnerTags("key")
	good["Team: a-b_c.d"] = "v"
	i, err := p.CreateInstance(t.Context(), "pod", "key", nil, provider.InstanceTypeSpec{Tags: good})
	if err != nil || p.DeleteInstance(t.Context(), i.ID) != nil {
		t.Error(err)
	}
	wantNothing(t, c)
}

// TestFloatingNetworkIsExternal: one that is not gives no floating IPs, which
// the verifier sees before the first pod.
func TestFloatingNetworkIsExternal(t *testing.T) {
	c := sim.Start(t)
	err := mustOpen(t, simConfig(c, func(c *Config) { c.FloatingNetwork = sim.Network })).ConfigVerifier()
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), "OPENSTACK_FLOATING_NETWORK_ID") {
		t.Error(err)
	}
}

// TestFaultClasses are faults as Nova words them (nova/exception.py).
func TestFaultClasses(t *testing.T) {
	for text, class := range map[string]error{
		"No valid host was found. There are not enough hosts available.":                                                                              provider.ErrCapacity,
		"Exceeded maximum number of retries. Exhausted all hosts available for retrying build failures for instance 1.":                               provider.ErrCapacity,
		"Build of instance 1 aborted: Insufficient compute resources: Free memory 0.00 MB < requested 512 MB.":                                        provider.ErrCapacity,
		"Build of instance 1 aborted: Failed to allocate the network(s), not rescheduling.":                                                           provider.ErrUnavailable,
		"Build of instance 1 aborted: Failed to allocate the network(s) with error No fixed IP addresses available for network: n, not rescheduling.": provider.ErrCapacity,
		"Binding failed for port 1, please check neutron logs for more information.":                                                                  provider.ErrUnavailable,
		"Virtual Interface creation failed":                                                                                      provider.ErrUnavailable,
		"Build of instance 1 aborted: Image 2 is unacceptable: Image is not raw format":                                          provider.ErrInvalidArgument,
		"Build of instance 1 aborted: Flavor's disk is too small for requested image. Flavor disk is 1 bytes, image is 2 bytes.": provider.ErrInvalidArgument,
		"Image 2 is not active.":      provider.ErrInvalidArgument,
		"Image 2 could not be found.": provider.ErrInvalidArgument,
		"Build of instance 1 aborted: Volume 3 did not finish being created even after we waited 181 seconds or 61 attempts. And its status is error.": provider.ErrUnavailable,
		"Build of instance 1 aborted: VolumeLimitExceeded: Maximum number of volumes allowed (10) exceeded for quota 'volumes'.":                       provider.ErrQuota,
		"Block Device Mapping is Invalid.": provider.ErrUnavailable,
		"something else":                   provider.ErrUnknown,
	} {
		if got := faultClass(text); got != class {
			t.Errorf("%q is %v, want %v", text, got, class)
		}
	}
}

func TestUnanswered(t *testing.T) {
	for status, want := range map[int]bool{400: false, 409: false, 500: false, 502: true, 503: false, 504: true} {
		if got := unanswered(gophercloud.ErrUnexpectedResponseCode{Actual: status}); got != want {
			t.Errorf("status %d: %v", status, got)
		}
	}
}
