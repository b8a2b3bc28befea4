// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
)

func TestParseURI(t *testing.T) {
	for uri, want := range map[string]target{
		"qemu:///system":                           {driver: "qemu:///system", transport: overUnix, socket: defaultSocket},
		"qemu+unix:///system?socket=/run/x":        {driver: "qemu:///system", transport: overUnix, socket: "/run/x"},
		"qemu+ssh://root@h/system?no_verify=1":     {driver: "qemu:///system", transport: overSSH, host: "h", port: "22", user: "root", socket: defaultSocket, noVerify: true},
		"qemu+ssh://h:2222/system?keyfile=/k":      {driver: "qemu:///system", transport: overSSH, host: "h", port: "2222", socket: defaultSocket, keyFile: "/k"},
		"qemu+ssh://[fd00::1]/system?socket=/s":    {driver: "qemu:///system", transport: overSSH, host: "fd00::1", port: "22", socket: "/s"},
		"qemu://h/system":                          {driver: "qemu:///system", transport: overTLS, host: "h", port: "16514", socket: defaultSocket},
		"qemu+tls://h/system?pkipath=/p":           {driver: "qemu:///system", transport: overTLS, host: "h", port: "16514", socket: defaultSocket, pkiDir: "/p"},
		"qemu+tcp://h/system":                      {driver: "qemu:///system", transport: overTCP, host: "h", port: "16509", socket: defaultSocket},
		"test:///default":                          {driver: "test:///default", transport: overUnix, socket: defaultSocket},
		"test+unix:///default?socket=/s":           {driver: "test:///default", transport: overUnix, socket: "/s"},
		"qemu+tcp://h/system?name=qemu:///session": {driver: "qemu:///session", transport: overTCP, host: "h", port: "16509", socket: defaultSocket},
	} {
		c := DefaultConfig()
		c.URI = uri
		got, err := parseURI(c)
		if err != nil {
			t.Errorf("%s: %v", uri, err)
			continue
		}
		want.text, got.tunnel = uri, nil
		if diff := cmp.Diff(&want, got, cmp.AllowUnexported(target{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", uri, diff)
		}
	}
}

func TestWrongURINamesTheSetting(t *testing.T) {
	for uri, word := range map[string]string{
		"":                                       "is not a URI",
		"/var/run/libvirt/libvirt-sock":          "is not a URI",
		"xen:///system":                          "driver",
		"qemu+smoke://h/system":                  "transport",
		"qemu+unix://h/system":                   "no host",
		"qemu+ssh:///system":                     "names no host",
		"qemu:///":                               "want /system",
		"qemu:///session":                        "no networks",
		"qemu+ssh://root:geheim@h/system":        "password",
		"qemu+ssh://root@h/system?no_verify=yes": "no_verify",
		"qemu+ssh://root@h/system?noverify=1":    "noverify",
	} {
		c := DefaultConfig()
		c.URI = uri
		_, err := New(c)
		if !errors.Is(err, provider.ErrInvalidArgument) {
			t.Errorf("%q: %v", uri, err)
			continue
		}
		for _, w := range []string{word, "-uri", "LIBVIRT_URI"} {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%q: %q lacks %q", uri, err, w)
			}
		}
		if strings.Contains(err.Error(), "geheim") {
			t.Errorf("the error shows a password: %v", err)
		}
	}
}

// TestUpstreamSettings holds the names and defaults that deployments rely on.
func TestUpstreamSettings(t *testing.T) {
	want := map[string][2]string{
		"uri":             {"LIBVIRT_URI", "qemu+ssh://root@192.168.122.1/system?no_verify=1"},
		"pool-name":       {"LIBVIRT_POOL", "default"},
		"network-name":    {"LIBVIRT_NET", "default"},
		"vol-name":        {"LIBVIRT_VOL_NAME", "podvm-base.qcow2"},
		"launch-security": {"LIBVIRT_LAUNCH_SECURITY", ""},
		"firmware":        {"LIBVIRT_EFI_FIRMWARE", "/usr/share/OVMF/OVMF_CODE_4M.fd"},
		"cpu":             {"LIBVIRT_CPU", "2"},
		"memory":          {"LIBVIRT_MEMORY", "8192"},
		"cpuset":          {"LIBVIRT_CPUSET", ""},
		"root-disk-size":  {"LIBVIRT_ROOT_DISK_SIZE", "10"},
		"disable-cvm":     {"DISABLECVM", "true"},
		"data-dir":        {"", "/var/lib/libvirt/images"},
	}
	for _, f := range NewManager().Schema().Fields {
		if w, ok := want[f.Flag]; ok {
			if f.Env != w[0] || f.Default != w[1] {
				t.Errorf("-%s has variable %q and default %q, want %q", f.Flag, f.Env, f.Default, w)
			}
			delete(want, f.Flag)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

func TestWrongSettingsAreAllNamed(t *testing.T) {
	m := NewManager()
	flags := flag.NewFlagSet("test", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	m.ParseCmd(flags)
	args := []string{"-uri", "qemu:///system", "-pool-name", " ", "-firmware", "OVMF.fd", "-cpuset", "a-b", "-libvirt-initrd", "/initrd", "-vol-name", volumePrefix + "x", "-libvirt-address-wait", "-1s"}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	_, err := m.NewProvider()
	for _, word := range []string{"-pool-name", "-firmware", "-cpuset", "-libvirt-initrd", "-vol-name", "-libvirt-address-wait"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%v lacks %s", err, word)
		}
	}
	if !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("class %v", provider.Class(err))
	}
	var _ config.Configurable = m
}
