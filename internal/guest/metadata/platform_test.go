// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPlatform(t *testing.T) {
	for name, c := range map[string]struct {
		h    Hardware
		want Platform
	}{
		"aws nitro":          {Hardware{Vendor: "Amazon EC2", Product: "m6a.large"}, AWS},
		"aws xen":            {Hardware{Vendor: "Xen", Serial: "ec2a1b2c", UUID: "EC2A1B2C"}, AWS},
		"only the uuid":      {Hardware{Vendor: "QEMU", Serial: "1", UUID: "ec2a1b2c"}, Unknown},
		"azure":              {Hardware{Vendor: "Microsoft Corporation", AssetTag: azureAssetTag}, Azure},
		"azure without DMI":  {Hardware{Hypervisor: "Microsoft Hv"}, Azure},
		"hyper-v at home":    {Hardware{Vendor: "Microsoft Corporation", AssetTag: "1234", Hypervisor: "Microsoft Hv"}, Unknown},
		"gcp":                {Hardware{Vendor: "Google", Product: "Google Compute Engine"}, GCP},
		"gcp by serial":      {Hardware{Serial: "GoogleCloud-0123456789ABCDEF"}, GCP},
		"alibaba":            {Hardware{Vendor: "Alibaba Cloud", Product: "Alibaba Cloud ECS"}, Alibaba},
		"openstack nova":     {Hardware{Vendor: "OpenStack Foundation", Product: "OpenStack Nova"}, OpenStack},
		"openstack by asset": {Hardware{Product: "x", AssetTag: "OpenStack Compute"}, OpenStack},
		"vsphere":            {Hardware{Vendor: "VMware, Inc.", Product: "VMware Virtual Platform"}, VSphere},
		"qemu":               {Hardware{Vendor: "QEMU", Product: "Standard PC (Q35 + ICH9, 2009)", Hypervisor: "KVMKVMKVM"}, Unknown},
		"nothing":            {Hardware{}, Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.h.Platform(); got != c.want {
				t.Errorf("%+v is %s, want %s", c.h, got, c.want)
			}
		})
	}
}

func TestReadHardware(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"sys_vendor": "Amazon EC2\n", "product_name": "m6a.large\n", "product_serial": "s\n", "product_uuid": "u\n", "chassis_asset_tag": "a\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got := ReadHardware(dir)
	got.Hypervisor = "" // this machine's own
	if want := (Hardware{Vendor: "Amazon EC2", Product: "m6a.large", Serial: "s", UUID: "u", AssetTag: "a"}); got != want {
		t.Errorf("read %+v, want %+v", got, want)
	}
	if got := ReadHardware(filepath.Join(dir, "absent")); got.Vendor != "" || got.Product != "" {
		t.Errorf("read %+v from nowhere", got)
	}
}

func TestChoose(t *testing.T) {
	if p, err := Choose("gcp", Hardware{Vendor: "Amazon EC2"}); p != GCP || err != nil {
		t.Errorf("chose %s, %v", p, err)
	}
	if p, err := Choose("", Hardware{Vendor: "Amazon EC2"}); p != AWS || err != nil {
		t.Errorf("chose %s, %v", p, err)
	}
	if _, err := Choose("ec2", Hardware{}); err == nil {
		t.Error("a platform that does not exist was chosen")
	}
}
