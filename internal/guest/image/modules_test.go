// SPDX-License-Identifier: Apache-2.0

package image

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	definition "github.com/outrigger/outrigger/images/podvm"
)

const sampleDep = `kernel/drivers/virtio/virtio.ko: kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/virtio/virtio_ring.ko:
kernel/drivers/net/net_failover.ko: kernel/net/core/failover.ko
kernel/net/core/failover.ko:
kernel/drivers/net/virtio_net.ko: kernel/drivers/net/net_failover.ko kernel/net/core/failover.ko kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
kernel/drivers/char/hw_random/virtio-rng.ko: kernel/drivers/virtio/virtio.ko kernel/drivers/virtio/virtio_ring.ko
`

func sampleModules(t *testing.T) *moduleTree {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "lib/modules/6.1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"modules.dep":     sampleDep,
		"modules.builtin": "kernel/fs/ext4/ext4.ko\n",
		"modules.alias":   "# comment\nalias virtio:d00000001v* virtio_net\nalias net-pf-9 virtio_rng\nalias fs-btrfs btrfs\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := openModules(t.Context(), root, "6.1")
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func TestLoadOrderHasEveryDependencyOnceAndFirst(t *testing.T) {
	order, files, err := sampleModules(t).loadOrder([]wantedModule{
		{"late", "virtio_rng"}, {"early", "virtio-net"}, {"early", "ext4"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `early failover.ko
early net_failover.ko failover.ko
early virtio_ring.ko
early virtio.ko virtio_ring.ko
early virtio_net.ko failover.ko net_failover.ko virtio_ring.ko virtio.ko
late virtio-rng.ko virtio_ring.ko virtio.ko
`
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
	if len(files) != 6 {
		t.Errorf("%d files, want 6", len(files))
	}
}

// TestCompressedModuleIsInTheImageAsItIs: the guest cannot unpack it, and its signature is inside.
func TestCompressedModuleIsInTheImageAsItIs(t *testing.T) {
	name := filepath.Join(t.TempDir(), "tsm.ko.xz")
	packed := packWith("xz")(t, []byte("module"))
	if err := os.WriteFile(name, packed[:len(packed)-4], 0o644); err != nil {
		t.Fatal(err)
	}
	data, err := moduleFile{path: name}.content()
	if err != nil || string(data) != "module" {
		t.Errorf("got %q, %v; want what was packed", data, err)
	}
	tree := &moduleTree{dir: "d", paths: map[string]string{"sev_guest": "a/sev-guest.ko.xz", "tsm": "a/tsm.ko.xz"},
		deps: map[string][]string{"a/sev-guest.ko.xz": {"a/tsm.ko.xz"}}}
	order, files, err := tree.loadOrder([]wantedModule{{stageTEE, "sev-guest"}})
	if want := "tee tsm.ko\ntee sev-guest.ko tsm.ko\n"; err != nil || order != want || files["tsm.ko"].path != "d/a/tsm.ko.xz" {
		t.Errorf("got %q, %v, %v; want %q", order, files, err, want)
	}
}

func TestUnknownModuleIsAnError(t *testing.T) {
	_, _, err := sampleModules(t).loadOrder([]wantedModule{{"early", "nosuch"}})
	if err == nil || !strings.Contains(err.Error(), "nosuch") {
		t.Errorf("got %v, want an error that names the module", err)
	}
}

func TestAliasesAreThoseOfTheImageWithoutDevices(t *testing.T) {
	files := map[string]moduleFile{"virtio-rng.ko": {}, "virtio_net.ko": {}}
	if got, want := sampleModules(t).aliasLines(files, nil), "net-pf-9 virtio_rng\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// What is loaded when its device is there needs the device's alias too.
	for _, stage := range []string{stageCloud, stageTEE} {
		got := sampleModules(t).aliasLines(files, []wantedModule{{stage, "virtio_net"}})
		if !strings.Contains(got, ":") || !strings.Contains(got, " virtio_net\n") {
			t.Errorf("%s: got %q, which lacks the devices of virtio_net", stage, got)
		}
	}
}

func TestModuleListOfTheImageParses(t *testing.T) {
	list, err := parseModuleList(definition.Modules)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []wantedModule{{"early", "virtio_net"}, {"early", "isofs"}, {"start", "vxlan"}, {"start", "overlay"}} {
		if !contains(list, w) {
			t.Errorf("modules.list lacks %q", w)
		}
	}
}

func contains(list []wantedModule, w wantedModule) bool {
	for _, x := range list {
		if x == w {
			return true
		}
	}
	return false
}

func TestModuleListNamesABadLine(t *testing.T) {
	for _, text := range []string{"\nsoon vxlan", "\nearly", "\nearly a b"} {
		if _, err := parseModuleList(text); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: got %v, want an error about line 2", text, err)
		}
	}
}

func TestStripSignature(t *testing.T) {
	signature := []byte("PKCS7 signature")
	info := make([]byte, moduleSigInfo)
	binary.BigEndian.PutUint32(info[8:], uint32(len(signature)))
	signed := "module" + string(signature) + string(info) + moduleSigMagic
	if got := string(stripSignature([]byte(signed))); got != "module" {
		t.Errorf("got %q, want the module alone", got)
	}
	for _, unsigned := range []string{"module", "", moduleSigMagic} {
		if got := string(stripSignature([]byte(unsigned))); got != unsigned {
			t.Errorf("%q became %q", unsigned, got)
		}
	}
}
