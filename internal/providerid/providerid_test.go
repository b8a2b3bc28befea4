// SPDX-License-Identifier: Apache-2.0

package providerid

import "testing"

func TestProviderIDsAreRead(t *testing.T) {
	for _, test := range []struct {
		provider, text string
		want           Reference
		ours           bool
	}{
		{"libvirt", "libvirt://0d3f", Reference{ID: "0d3f"}, true},
		{"libvirt", "outrigger://libvirt/0d3f", Reference{ID: "0d3f"}, true},
		{"libvirt", "outrigger://qemu/0d3f", Reference{}, false},
		{"libvirt", "outrigger://libvirt/", Reference{}, false},
		{"libvirt", "libvirt://", Reference{}, false},
		{"libvirt", "", Reference{}, false},
		{"libvirt", "0d3f", Reference{}, false},
		{"docker", "docker://c0ffee", Reference{ID: "c0ffee"}, true},
		{"docker", "docker:////a-container", Reference{ID: "//a-container"}, true},
		{"docker", "docker:////", Reference{}, false},
		{"docker", "docker:///a-container", Reference{}, false},
		{"docker", "kind://docker/c1/a-container", Reference{}, false},
		{"aws", "aws:///eu-central-1a/i-1", Reference{ID: "i-1"}, true},
		{"openstack", "openstack:///0d3f", Reference{ID: "0d3f"}, true},
		{"openstack", "openstack://r1/0d3f", Reference{ID: "0d3f"}, true},
		{"azure", "azure:///subscriptions/s/resourceGroups/g", Reference{ID: "/subscriptions/s/resourceGroups/g"}, true},
		{"alibabacloud", "cn-hangzhou.i-2ze1", Reference{"i-2ze1", "cn-hangzhou"}, true},
		{"alibabacloud", "alicloud://cn-hangzhou.i-2ze1", Reference{"i-2ze1", "cn-hangzhou"}, true},
		{"alibabacloud", "alibabacloud://cn-hangzhou.i-2ze1", Reference{"i-2ze1", "cn-hangzhou"}, true},
		{"alibabacloud", "alibabacloud://i-2ze1", Reference{ID: "i-2ze1"}, true},
		{"alibabacloud", "outrigger://alibabacloud/i-2ze1", Reference{ID: "i-2ze1"}, true},
		{"alibabacloud", "aws:///cn-hangzhou.i-2ze1", Reference{}, false},
		{"alibabacloud", "aws://cn-hangzhou.i-2ze1", Reference{}, false},
		{"libvirt", "alicloud://cn-hangzhou.i-2ze1", Reference{}, false},
		{"libvirt", "cn-hangzhou.i-2ze1", Reference{}, false},
	} {
		got, ours := Parse(test.provider, test.text)
		if got != test.want || ours != test.ours {
			t.Errorf("%s reads %q as %+v, %v; want %+v, %v", test.provider, test.text, got, ours, test.want, test.ours)
		}
	}
}
