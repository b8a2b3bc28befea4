// SPDX-License-Identifier: Apache-2.0

package provider_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

func TestInstanceName(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef"
	for _, tc := range []struct{ pod, id, want string }{
		{"web", id, "podvm-web-01234567"},
		{"Web.Front_1", id, "podvm-web-front-1-01234567"},
		{"web", "ABCDEF0123", "podvm-web-abcdef01"},
		{"web", "abc", "podvm-web-abc"},
		{strings.Repeat("a", 253), id, "podvm-" + strings.Repeat("a", 48) + "-01234567"},
		{strings.Repeat("a", 47) + ".b", id, "podvm-" + strings.Repeat("a", 47) + "-01234567"},
		{"grün🚀", id, "podvm-gr-n-01234567"},
		{"", id, "podvm--01234567"},
		{"web", "", "podvm-web"},
		{"", "", "podvm"},
	} {
		if got := provider.InstanceName(tc.pod, tc.id); got != tc.want {
			t.Errorf("InstanceName(%.20q, %q) = %q, want %q", tc.pod, tc.id, got, tc.want)
		}
	}
}

func FuzzInstanceName(f *testing.F) {
	f.Add("web", "0123456789")
	f.Add(strings.Repeat("-", 80), "-")
	f.Add("\xff", "é")
	label := regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	f.Fuzz(func(t *testing.T, pod, id string) {
		if got := provider.InstanceName(pod, id); !label.MatchString(got) {
			t.Errorf("InstanceName(%q, %q) = %q, which is not a DNS label", pod, id, got)
		}
	})
}

func TestClass(t *testing.T) {
	for _, tc := range []struct {
		err, class error
		retryable  bool
	}{
		{nil, nil, false},
		{provider.ErrInvalidArgument, provider.ErrInvalidArgument, false},
		{provider.ErrNotFound, provider.ErrNotFound, false},
		{provider.ErrAlreadyExists, provider.ErrAlreadyExists, false},
		{provider.ErrInUse, provider.ErrInUse, true},
		{provider.ErrCapacity, provider.ErrCapacity, true},
		{provider.ErrQuota, provider.ErrQuota, true},
		{provider.ErrUnauthenticated, provider.ErrUnauthenticated, false},
		{provider.ErrPermissionDenied, provider.ErrPermissionDenied, false},
		{provider.ErrUnavailable, provider.ErrUnavailable, true},
		{provider.ErrUnimplemented, provider.ErrUnimplemented, false},
		{provider.ErrUnknown, provider.ErrUnknown, true},
		{errors.New("no class"), provider.ErrUnknown, true},
		{context.DeadlineExceeded, provider.ErrUnknown, true},
	} {
		for how, err := range map[string]error{
			"plain":   tc.err,
			"wrapped": wrap("create: %w", tc.err),
			"twice":   wrap("node: %w", wrap("create: %w: connection reset", tc.err)),
			"joined":  errors.Join(tc.err, nil),
		} {
			if got := provider.Class(err); got != tc.class {
				t.Errorf("%s %v: class %v, want %v", how, tc.err, got, tc.class)
			}
			if got := provider.Retryable(err); got != tc.retryable {
				t.Errorf("%s %v: retryable %v", how, tc.err, got)
			}
		}
	}
}

func wrap(format string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf(format, err)
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"ibmcloudpowervs": "ibmcloud-powervs", "ibmcloud-powervs": "ibmcloud-powervs", "ibmcloud": "ibmcloud", "": "",
	} {
		if got := provider.Canonical(name); got != want {
			t.Errorf("%q is %q, want %q", name, got, want)
		}
	}
}

func TestRegistry(t *testing.T) {
	first, second := fake.NewManager(), fake.NewManager()
	provider.AddCloudProvider("test-b", first)
	provider.AddCloudProvider("test-a", first)
	provider.AddCloudProvider("test-b", second)
	if provider.Get("test-b") != provider.CloudProvider(second) {
		t.Error("the later provider of a name does not replace the earlier")
	}
	if got := provider.Get("test-none"); got != nil {
		t.Errorf("an unknown name gives %v", got)
	}
	names := slices.DeleteFunc(provider.List(), func(name string) bool { return !strings.HasPrefix(name, "test-") })
	if !slices.Equal(names, []string{"test-a", "test-b"}) {
		t.Errorf("List has %v", names)
	}
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := fmt.Sprintf("race-%d", i)
			provider.AddCloudProvider(name, fake.NewManager())
			if provider.Get(name) == nil || !slices.Contains(provider.List(), name) {
				t.Errorf("%s is not there", name)
			}
		})
	}
	wg.Wait()
}
