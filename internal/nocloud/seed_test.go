// SPDX-License-Identifier: Apache-2.0

package nocloud

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/kdomanski/iso9660"
)

// TestImage reads a seed with somebody else's reader.
func TestImage(t *testing.T) {
	userData := "#cloud-config\n" + strings.Repeat("# long\n", 1000)
	data, err := Seed{
		InstanceID: "i-1", Hostname: "pod-1", UserData: userData,
		Network: Network{Version: 2, Ethernets: map[string]Ethernet{"eth0": {Match: Match{MACAddress: "52:54:00:00:00:01"}, SetName: "eth0", DHCP4: true}}},
	}.Image()
	if err != nil {
		t.Fatal(err)
	}
	image, err := iso9660.OpenImage(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if label, err := image.Label(); err != nil || strings.TrimSpace(label) != Label {
		t.Errorf("label %q, %v", label, err)
	}
	root, err := image.RootDir()
	if err != nil {
		t.Fatal(err)
	}
	files, err := root.GetChildren()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, file := range files {
		text, err := io.ReadAll(file.Reader())
		if err != nil {
			t.Fatal(err)
		}
		got[strings.ToLower(file.Name())] = string(text)
	}
	want := map[string]string{
		"user-data":      userData,
		"meta-data":      "instance-id: i-1\nlocal-hostname: pod-1\n",
		"network-config": "version: 2\nethernets:\n  eth0:\n    match:\n      macaddress: \"52:54:00:00:00:01\"\n    set-name: eth0\n    dhcp4: true\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
