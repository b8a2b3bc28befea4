// SPDX-License-Identifier: Apache-2.0

//go:build integration

package image

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/tier"
)

// TestVMThatTakesItselfForConfidential says of the processor that it has a TEE. The drivers' own check then shows that
// the kernel has taken them and what they need; that a report comes out of them only such a processor can show.
func TestVMThatTakesItselfForConfidential(t *testing.T) {
	tier.OnlyAll(t)
	t.Parallel()
	image := testImageWith(t, Options{Formats: []string{FormatInitramfs}, Confidential: true})
	manifest, err := os.ReadFile(filepath.Join(image, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(manifest), `"kernelVersion": "6.1.`) {
		t.Skipf("apt knows no %s: run apt-get update to run this test", confidentialMeta)
	}
	boot := append(directBoot(image, ""), userNIC()...)
	ordinary := startVM(t, boot...)
	ordinary.await(t, "PROBE done")
	ordinary.check(t, "tsm", "mkdir /sys/kernel/config/tsm/report/probe: no such file or directory")
	if console, _ := ordinary.out.read(); strings.Contains(console, "TEE") || strings.Contains(console, "vouches") {
		t.Error("an ordinary VM speaks of a TEE")
	}
	initrd, err := os.ReadFile(filepath.Join(image, "initrd.cpio"))
	for _, alias := range []string{"platform:sev-guest sev_guest\n", "0116* tdx_guest\n"} {
		if err != nil || !bytes.Contains(initrd, []byte(alias)) {
			t.Errorf("the image has no %q: a VM with such a processor would not load its driver, %v", alias, err)
		}
	}
	replaceFile(t, image, "modules.alias", "cpu:type:x86* sev_guest\ncpu:type:x86* tdx_guest\n")
	v := startVM(t, boot...)
	v.await(t, "PROBE done")
	v.await(t, "ERROR: TEE: load /modules/sev-guest.ko: no such device")
	v.await(t, "load /modules/tdx-guest.ko: no such device")
	v.check(t, "tsm", "mkdir /sys/kernel/config/tsm/report/probe: no such device or address")
}
