// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
)

var update = flag.Bool("update", false, "write the golden files")

// goldenPlan plans an instance on a machine, with a fixed id and time.
func goldenPlan(t *testing.T, h host, change ...func(*Config)) *plan {
	t.Helper()
	f := newFakeDaemon()
	p := fakeProvider(t, f, change...)
	p.host = &h
	pl, err := p.plan(t.Context(), "web", "0123456789abcdef", provider.InstanceTypeSpec{Tags: map[string]string{provider.TagPod: "web & <co>"}})
	if err != nil {
		t.Fatal(err)
	}
	pl.Created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	pl.Seed = volumesOf(pl.id) + seedVolume("")
	return pl
}

func TestDomainXML(t *testing.T) {
	kernel := func(c *Config) { c.Kernel, c.Initrd, c.Cmdline = "/srv/vmlinux", "/srv/initrd.cpio", "outrigger.debug" }
	for name, tc := range map[string]struct {
		host   host
		change []func(*Config)
	}{
		"amd64-uefi":   {host{"amd64", typeKVM}, nil},
		"amd64-bios":   {host{"amd64", typeQEMU}, []func(*Config){func(c *Config) { c.Firmware = firmwareBIOS }}},
		"amd64-kernel": {host{"amd64", typeQEMU}, []func(*Config){kernel}},
		"amd64-tunnel": {host{"amd64", typeKVM}, []func(*Config){func(c *Config) {
			c.TunnelNetwork, c.CPUSet, c.CPUs, c.Memory = "tunnel", "0-3,^2", 4, 2048
		}}},
		"arm64-uefi":   {host{"arm64", typeKVM}, nil},
		"arm64-kernel": {host{"arm64", typeQEMU}, []func(*Config){kernel}},
		"s390x":        {host{"s390x", typeKVM}, nil},
		"s390x-pv":     {host{"s390x", typeKVM}, []func(*Config){func(c *Config) { c.LaunchSecurity = securityS390 }}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := goldenPlan(t, tc.host, tc.change...).domainXML()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", name+".xml")
			if *update {
				if err := os.WriteFile(file, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("%s (-want +got; go test -update writes it):\n%s", file, diff)
			}
		})
	}
}

// TestDomainXMLKeepsTheSchema asks libvirt's own schema.
func TestDomainXMLKeepsTheSchema(t *testing.T) {
	validate, err := exec.LookPath("virt-xml-validate")
	if err == nil {
		_, err = exec.LookPath("xmllint")
	}
	if err != nil {
		t.Skipf("%v; install libvirt-clients and libxml2-utils", err)
	}
	files, err := filepath.Glob("testdata/*.xml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		if out, err := exec.Command(validate, file, "domain").CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

func TestRecordSurvivesXML(t *testing.T) {
	pl := goldenPlan(t, host{"amd64", typeKVM})
	for _, write := range []func() (string, error){pl.definition, pl.element} {
		text, err := write()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRecord(pl.id, text)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(pl.record, got, cmp.AllowUnexported(record{})); diff != "" {
			t.Error(diff)
		}
	}
}

// TestNamesNeverChange: an instance is found by them again, also by a later
// release.
func TestNamesNeverChange(t *testing.T) {
	id := instanceID("0123456789abcdef")
	if want := "cd7f07f2-c4d2-57d4-9d31-b1398282a754"; id != want {
		t.Errorf("id %s, want %s", id, want)
	}
	if got, want := macOf(id, 0), "52:c6:c2:61:17:c1"; got != want {
		t.Errorf("MAC %s, want %s", got, want)
	}
}
