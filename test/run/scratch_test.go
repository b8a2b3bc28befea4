// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// TestEncryptedScratchSpace: what a container writes is not on its node's disk, which has no file system; the VM is one
// that was restored, so that the key was not made before that.
func TestEncryptedScratchSpace(t *testing.T) {
	const scratch = "-qemu-scratch-disk=1"
	t.Run("encrypted", func(t *testing.T) {
		words, ext4 := onScratchDisk(t, newNode(t, scratch, "-enable-scratch-space"))
		if words || ext4 {
			t.Errorf("the container's words are there: %v, a file system: %v", words, ext4)
		}
	})
	t.Run("plain", func(t *testing.T) {
		if words, ext4 := onScratchDisk(t, newNode(t, scratch)); !words || !ext4 {
			t.Errorf("the container's words are there: %v, a file system: %v", words, ext4)
		}
	})
}

// onScratchDisk has a container write, and reports what the host sees of that.
func onScratchDisk(t *testing.T, n *node) (words, ext4 bool) {
	t.Helper()
	p := n.newPod(t, "writer")
	c, _, _ := p.container(t, "writer", "sleep", "1000000")
	mustRun(t, c, "sh", "-c", `echo "a container's words $((42*42))" >/words && sync`)
	var sandbox struct {
		Instance string `json:"instance-id"`
	}
	readRecord(t, filepath.Join(n.dir, "pods", p.ID(), "sandbox.json"), &sandbox)
	disk, err := os.ReadFile(filepath.Join(n.dir, "qemu", "instances", sandbox.Instance, "scratch.img"))
	if err != nil {
		t.Fatal(err)
	}
	const magic = 1024 + 0x38 // of the first superblock
	return bytes.Contains(disk, []byte("a container's words 1764")), disk[magic] == 0x53 && disk[magic+1] == 0xef
}
