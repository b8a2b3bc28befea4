// SPDX-License-Identifier: Apache-2.0

//go:build integration

package image

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/internal/nocloud"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

const (
	scratchSize = 128 << 20
	// secretText is what a guest writes; its shell puts it together, so that no command has it.
	secretText, secretCommand = "the pod's own words 1764", `"the pod's own words $((42*42))"`
)

// scratchVM is a VM with a shell and a scratch disk as the provider qemu makes it, which is asked to encrypt that.
type scratchVM struct {
	*vm
	disk string
}

func startScratchVM(t *testing.T, image, cmdline string) *scratchVM {
	t.Helper()
	userData, _ := identity(t, "podvm", false)
	config, err := cloudinit.Parse([]byte(userData))
	if err != nil {
		t.Fatal(err)
	}
	config.WriteFiles = append(config.WriteFiles, cloudinit.WriteFile{Path: "/run/peerpod/scratch-space.marker"})
	if userData, err = config.Generate(); err != nil {
		t.Fatal(err)
	}
	seed, err := nocloud.Seed{Hostname: "podvm", UserData: userData, Network: nocloud.Network{Version: 2}}.Image()
	if err != nil {
		t.Fatal(err)
	}
	iso, disk := filepath.Join(t.TempDir(), "seed.iso"), filepath.Join(t.TempDir(), "scratch.img")
	if err := os.WriteFile(iso, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-L", "scratch", "-m", "0", disk, fmt.Sprint(scratchSize>>10)).CombinedOutput(); err != nil {
		t.Fatalf("mke2fs: %v\n%s", err, out)
	}
	v := startVM(t, append(directBoot(image, cmdline),
		"-drive", "if=none,id=cd,format=raw,readonly=on,file="+iso, "-device", "virtio-blk-pci,drive=cd,serial=cidata",
		"-drive", "if=none,id=sc,format=raw,snapshot=off,file="+disk, "-device", "virtio-blk-pci,drive=sc,serial=scratch")...)
	return &scratchVM{v, disk}
}

func (v *scratchVM) command(t *testing.T, line string) {
	t.Helper()
	if _, err := v.stdin.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
}

// writeText has the guest write the text, and returns what is then on the host's disk.
func (v *scratchVM) writeText(t *testing.T) []byte {
	t.Helper()
	v.await(t, "agent is ready")
	v.command(t, `echo `+secretCommand+` >/run/kata-containers/words && sync && echo wrote $((6*7)) bytes`)
	v.await(t, "wrote 42 bytes")
	content, err := os.ReadFile(v.disk)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestEncryptedScratchDisk: with -enable-scratch-space nothing that the guest writes, and no file system, is on the
// host's disk; where the kernel cannot encrypt, nothing is written there. test/run TestEncryptedScratchSpace shows what is seen without.
func TestEncryptedScratchDisk(t *testing.T) {
	needTools(t, "apt-get", "apt", "dpkg-deb", "dpkg", "depmod", "kmod", "qemu-system-x86_64", "qemu-system-x86", "mke2fs", "e2fsprogs")
	image := buildOwnImage(t, Options{Debug: true})
	t.Run("encrypted", func(t *testing.T) {
		v := startScratchVM(t, image, "")
		content := v.writeText(t)
		v.await(t, "encrypted the scratch disk")
		if bytes.Contains(content, []byte(secretText)) || hasExt4Superblock(content) {
			t.Errorf("the text is on the disk: %v, a superblock of ext4: %v", bytes.Contains(content, []byte(secretText)), hasExt4Superblock(content))
		}
		v.command(t, `cat /run/kata-containers/words; grep " /run/kata-containers " /proc/mounts; ls /run/peerpod/*.marker; echo discards up to $(cat /sys/block/dm-0/queue/discard_max_bytes) bytes`)
		v.await(t, "discards up to 0 bytes")
		v.await(t, secretText)
		v.await(t, "/dev/dm-0 /run/kata-containers ext4 rw,nosuid,nodev,noatime")
		v.await(t, "ls: /run/peerpod/*.marker: No such file or directory") // the agent starts pods
	})
	t.Run("refused", func(t *testing.T) {
		v := startScratchVM(t, image, "module_blacklist=dm_crypt")
		content := v.writeText(t)
		v.await(t, "ERROR: encrypted scratch disk: the kernel cannot encrypt /dev/vdb")
		if bytes.Contains(content, []byte(secretText)) {
			t.Error("the text is on the disk")
		}
		v.command(t, `sed "s/^/the agent says: /" /run/peerpod/scratch-space.marker`)
		v.await(t, "the agent says: the kernel cannot encrypt /dev/vdb with dm-crypt and aes-xts-plain64")
	})
}

// hasExt4Superblock looks where the first is (Linux, Documentation/filesystems/ext4/super.rst).
func hasExt4Superblock(disk []byte) bool { return disk[1024+0x38] == 0x53 && disk[1024+0x39] == 0xef }
