// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	release = regexp.MustCompile(`^v0\.([89]|1[0-9]|2[0-2])$`)
	name    = regexp.MustCompile(`^[A-Z][A-Z0-9_]+$`)
)

func TestTables(t *testing.T) {
	keys := Keys()
	if len(keys) < 150 {
		t.Errorf("%d keys", len(keys))
	}
	for i, k := range keys {
		if i > 0 && strings.Compare(keys[i-1].Provider+" "+keys[i-1].Name, k.Provider+" "+k.Name) >= 0 {
			t.Errorf("%s %s is not in order, or twice", k.Provider, k.Name)
		}
		if !name.MatchString(k.Name) || !release.MatchString(k.First) && k.First != "main" || k.Last != "" && !release.MatchString(k.Last) {
			t.Errorf("%+v", k)
		}
		if k.Renamed() && !name.MatchString(k.Becomes) || k.Becomes == None && k.Advice == "" {
			t.Errorf("%+v does not say what to do", k)
		}
	}
	for _, v := range Values() {
		if v.Path == "" || v.Becomes == "" || (v.Becomes == None || v.Becomes == Refused) && v.Advice == "" {
			t.Errorf("%+v", v)
		}
	}
}

// TestDockerFields: what the table says of a field is so in the definitions.
func TestDockerFields(t *testing.T) {
	for _, f := range DockerFields() {
		data, err := os.ReadFile("../../config/crd/bases/infrastructure.cluster.x-k8s.io_" + strings.ToLower(f.Kind) + "s.yaml")
		if err != nil {
			t.Fatal(err)
		}
		last := f.Path[strings.LastIndex(f.Path, ".")+1:]
		// In both versions, so at least twice.
		if there := strings.Count(string(data), " "+last+":\n") >= 2; there != (f.Becomes == Same) {
			t.Errorf("%s %s: in the definition %v, in the table %s", f.Kind, f.Path, there, f.Becomes)
		}
	}
}

func TestWarnings(t *testing.T) {
	env := map[string]string{"PAUSE_IMAGE": "p", "SECURE_COMMS": "False", "LIBVIRT_FIRMWARE": "/f", "GOVC_DRS": "true", "LIBVIRT_NET": "n"}
	got := Warnings("libvirt", func(key string) string { return env[key] })
	want := []string{
		"PAUSE_IMAGE has no effect and can be removed: pause runs in the VM",
		"LIBVIRT_FIRMWARE is an earlier name of LIBVIRT_EFI_FIRMWARE, and counts while that is not set: rename it",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestGetenv(t *testing.T) {
	env := map[string]string{"LIBVIRT_FIRMWARE": "old", "ENABLE_SCRATCH_DISK": "true", "ENABLE_SCRATCH_SPACE": "false", "IBMCLOUD_VPC_SG_ID": "sg"}
	get := Getenv("libvirt", func(key string) string { return env[key] })
	for key, want := range map[string]string{
		"LIBVIRT_EFI_FIRMWARE": "old", "ENABLE_SCRATCH_SPACE": "false", "LIBVIRT_FIRMWARE": "old", "IBMCLOUD_SECURITY_GROUP_IDS": "", "LIBVIRT_NET": "",
	} {
		if got := get(key); got != want {
			t.Errorf("%s=%q, want %q", key, got, want)
		}
	}
}
