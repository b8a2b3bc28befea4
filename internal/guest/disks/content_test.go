// SPDX-License-Identifier: Apache-2.0

package disks

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestMarkInAFile: what somebody writes into a file system says nothing about the disk.
func TestMarkInAFile(t *testing.T) {
	const size = 16 << 20
	for name, c := range map[string]struct {
		blocks uint32
		mark   bool
		want   content
	}{
		"formatting was cut short after its superblock": {size/markSize - 1, true, isEmpty},
		"grown over the place of the mark":              {size / markSize, true, hasExt4},
		"formatted":                                     {size/markSize - 1, false, hasExt4},
		"not even begun":                                {0, true, isEmpty},
		"nothing":                                       {0, false, isEmpty},
	} {
		disk := make([]byte, size)
		if c.blocks > 0 {
			super := disk[superOffset:]
			binary.LittleEndian.PutUint16(super[superMagic:], 0xef53)
			binary.LittleEndian.PutUint32(super[superLog:], 2)
			binary.LittleEndian.PutUint32(super[superSize:], c.blocks)
		}
		if c.mark {
			copy(disk[size-markSize:], formatting)
		}
		if got, err := contentOf(bytes.NewReader(disk), size); err != nil || got != c.want {
			t.Errorf("%s: %v, %v; want %v", name, got, err, c.want)
		}
	}
}
