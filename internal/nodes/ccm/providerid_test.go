// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"testing"

	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/provider"
)

func TestProviderIDsAreRead(t *testing.T) {
	for _, test := range []struct {
		provider, text string
		want           reference
		ours           bool
	}{
		{"libvirt", "libvirt://0d3f", reference{id: "0d3f"}, true},
		{"libvirt", "outrigger://libvirt/0d3f", reference{id: "0d3f"}, true},
		{"libvirt", "outrigger://qemu/0d3f", reference{}, false},
		{"libvirt", "outrigger://libvirt/", reference{}, false},
		{"libvirt", "libvirt://", reference{}, false},
		{"libvirt", "", reference{}, false},
		{"libvirt", "0d3f", reference{}, false},
		{"docker", "docker://c0ffee", reference{id: "c0ffee"}, true},
		{"docker", "docker:////a-container", reference{id: "//a-container"}, true},
		{"docker", "docker:////", reference{}, false},
		{"docker", "docker:///a-container", reference{}, false},
		{"docker", "kind://docker/c1/a-container", reference{}, false},
		{"aws", "aws:///eu-central-1a/i-1", reference{id: "i-1"}, true},
		{"openstack", "openstack:///0d3f", reference{id: "0d3f"}, true},
		{"openstack", "openstack://r1/0d3f", reference{id: "0d3f"}, true},
		{"azure", "azure:///subscriptions/s/resourceGroups/g", reference{id: "/subscriptions/s/resourceGroups/g"}, true},
		{"alibabacloud", "cn-hangzhou.i-2ze1", reference{"i-2ze1", "cn-hangzhou"}, true},
		{"alibabacloud", "alicloud://cn-hangzhou.i-2ze1", reference{"i-2ze1", "cn-hangzhou"}, true},
		{"alibabacloud", "alibabacloud://cn-hangzhou.i-2ze1", reference{"i-2ze1", "cn-hangzhou"}, true},
		{"alibabacloud", "alibabacloud://i-2ze1", reference{id: "i-2ze1"}, true},
		{"alibabacloud", "outrigger://alibabacloud/i-2ze1", reference{id: "i-2ze1"}, true},
		{"alibabacloud", "aws:///cn-hangzhou.i-2ze1", reference{}, false},
		{"alibabacloud", "aws://cn-hangzhou.i-2ze1", reference{}, false},
		{"libvirt", "alicloud://cn-hangzhou.i-2ze1", reference{}, false},
		{"libvirt", "cn-hangzhou.i-2ze1", reference{}, false},
	} {
		got, ours := parse(test.provider, test.text)
		if got != test.want || ours != test.ours {
			t.Errorf("%s reads %q as %+v, %v; want %+v, %v", test.provider, test.text, got, ours, test.want, test.ours)
		}
	}
}

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
		if ref, ours := parse(test.name, got); !ours || ref.id != test.instance.ID {
			t.Errorf("%q is read as %+v, %v", got, ref, ours)
		}
	}
}
