// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pierrec/lz4/v4"
)

// lz4LegacyBlock is the largest unpacked block of the legacy frame format (lz4
// documentation, lz4_Frame_format.md, "Legacy frame").
const lz4LegacyBlock = 8 << 20

// sampleKernel is the smallest file that debug/elf accepts, with a body that
// spans two blocks of the lz4 format.
func sampleKernel() []byte {
	k := make([]byte, lz4LegacyBlock+12345)
	copy(k, "\x7fELF\x02\x01\x01")
	k[16], k[18], k[20] = 2, 62, 1 // ET_EXEC, EM_X86_64, EV_CURRENT
	k[52] = 64                     // e_ehsize
	for i := 64; i < len(k); i++ {
		k[i] = byte(i / 1000)
	}
	return k
}

// bzImageOf wraps a payload as boot protocol 2.15 does.
func bzImageOf(payload []byte) []byte {
	const setup = 3
	b := make([]byte, (setup+1)*sectorSize)
	b[bootSetupSects] = setup
	copy(b[bootMagic:], "HdrS")
	binary.LittleEndian.PutUint16(b[bootVersion:], 0x20f)
	binary.LittleEndian.PutUint32(b[bootPayloadOffset:], 100)
	binary.LittleEndian.PutUint32(b[bootPayloadLength:], uint32(len(payload)))
	b = append(b, make([]byte, 100)...)
	return append(append(b, payload...), "tail"...)
}

func withSize(packed []byte, size int) []byte {
	return binary.LittleEndian.AppendUint32(packed, uint32(size))
}

func packLZ4(t *testing.T, k []byte) []byte {
	t.Helper()
	out := []byte{0x02, 0x21, 0x4c, 0x18}
	for rest := k; len(rest) > 0; {
		n := min(len(rest), lz4LegacyBlock)
		block := make([]byte, lz4.CompressBlockBound(n))
		m, err := lz4.CompressBlock(rest[:n], block, nil)
		if err != nil || m == 0 {
			t.Fatalf("compress: %d, %v", m, err)
		}
		out = append(withSize(out, m), block[:m]...)
		rest = rest[n:]
	}
	return withSize(out, len(k))
}

func packGzip(t *testing.T, k []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(k); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func packWith(program string) func(*testing.T, []byte) []byte {
	return func(t *testing.T, k []byte) []byte {
		t.Helper()
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s; to run this test: make setup", program)
		}
		cmd := exec.Command(program, "-c")
		cmd.Stdin = bytes.NewReader(k)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return withSize(out, len(k))
	}
}

func TestExtractVMLinux(t *testing.T) {
	kernel := sampleKernel()
	for name, pack := range map[string]func(*testing.T, []byte) []byte{
		"lz4":  packLZ4,
		"gzip": packGzip,
		"xz":   packWith("xz"),
		"zstd": packWith("zstd"),
		"none": func(_ *testing.T, k []byte) []byte { return k },
	} {
		t.Run(name, func(t *testing.T) {
			got, err := extractVMLinux(bzImageOf(pack(t, kernel)))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, kernel) {
				t.Errorf("got %d bytes that differ from the kernel's %d", len(got), len(kernel))
			}
		})
	}
}

func TestExtractVMLinuxRefuses(t *testing.T) {
	lz4Payload := packLZ4(t, sampleKernel())
	for name, c := range map[string]struct {
		image []byte
		want  string
	}{
		"not a bzImage":     {[]byte("hello"), "not a bzImage"},
		"payload too long":  {bzImageOf(lz4Payload)[:4000], "outside the file"},
		"unknown format":    {bzImageOf([]byte("????????")), "unknown compression"},
		"damaged lz4":       {bzImageOf(append(append([]byte(nil), lz4Payload[:len(lz4Payload)-500]...), lz4Payload[len(lz4Payload)-4:]...)), "lz4"},
		"not an ELF inside": {bzImageOf(packGzip(t, []byte("not a kernel"))), "no ELF kernel"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := extractVMLinux(c.image)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func FuzzExtractVMLinux(f *testing.F) {
	f.Add([]byte("HdrS"))
	f.Add(bzImageOf([]byte{0x02, 0x21, 0x4c, 0x18, 1, 0, 0, 0, 0, 9, 0, 0, 0}))
	f.Add(bzImageOf([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0}))
	f.Fuzz(func(t *testing.T, image []byte) {
		// A panic is the only failure.
		if k, err := extractVMLinux(image); err == nil && !bytes.HasPrefix(k, []byte("\x7fELF")) {
			t.Error(cmp.Diff("an ELF", string(k)))
		}
	})
}
