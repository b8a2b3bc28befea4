// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"testing"

	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/internal/providerid"
	"github.com/outrigger/outrigger/provider"
)

func TestProviderIDsAreWritten(t *testing.T) {
	if tagRole != outrigger.TagRole {
		t.Errorf("machines of Cluster API carry %q, not %q", outrigger.TagRole, tagRole)
	}
	machine := map[string]string{outrigger.TagRole: "worker"}
	for _, test := range []struct {
		name     string
		format   Format
		instance provider.Instance
		want     string
	}{
		{"libvirt", FormatAuto, provider.Instance{ID: "a"}, "libvirt://a"},
		{"libvirt", FormatAuto, provider.Instance{ID: "a", Tags: machine}, "outrigger://libvirt/a"},
		{"libvirt", FormatProvider, provider.Instance{ID: "a", Tags: machine}, "libvirt://a"},
		{"libvirt", FormatOutrigger, provider.Instance{ID: "a"}, "outrigger://libvirt/a"},
		{"alibabacloud", FormatAuto, provider.Instance{ID: "i-1", Region: "cn-hangzhou"}, "alicloud://cn-hangzhou.i-1"},
		{"alibabacloud", FormatAuto, provider.Instance{ID: "i-1"}, "alibabacloud://i-1"},
		{"alibabacloud", FormatAuto, provider.Instance{ID: "i-1", Region: "cn-hangzhou", Tags: machine}, "outrigger://alibabacloud/i-1"},
	} {
		o := Options{Name: test.name, Format: test.format}
		got := o.providerID(&test.instance)
		if got != test.want {
			t.Errorf("%+v: %q, want %q", test, got, test.want)
		}
		if ref, ours := providerid.Parse(test.name, got); !ours || ref.ID != test.instance.ID {
			t.Errorf("%q is read as %+v, %v", got, ref, ours)
		}
	}
}
