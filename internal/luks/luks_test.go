// SPDX-License-Identifier: Apache-2.0

package luks

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// formatted returns a disk that opens with "secret".
func formatted(t testing.TB) *os.File {
	t.Helper()
	disk, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { disk.Close() })
	if err := errors.Join(disk.Truncate(DataOffset+1<<20), Format(disk, []byte("secret"))); err != nil {
		t.Fatal(err)
	}
	return disk
}

func TestFormatAndOpen(t *testing.T) {
	disk := formatted(t)
	one, err := Open(disk, []byte("secret"))
	if err != nil || len(one.Key) != KeySize || one.Offset != DataOffset || one.Sector != 4096 {
		t.Fatalf("%+v, %v", one, err)
	}
	for _, key := range []string{"", "Secret", "secret\n", strings.Repeat("s", 4096)} {
		if _, err := Open(disk, []byte(key)); !errors.Is(err, ErrKey) {
			t.Errorf("key %.10q: %v", key, err)
		}
	}
	two, err := Open(formatted(t), []byte("secret"))
	if err != nil || bytes.Equal(one.Key, two.Key) {
		t.Errorf("two disks: keys %x and %x, %v", one.Key, two.Key, err)
	}
	if _, err := Open(bytes.NewReader(make([]byte, DataOffset)), nil); err == nil || errors.Is(err, ErrKey) {
		t.Errorf("an empty disk: %v", err)
	}
}

// change writes other metadata, with the checksum that belongs to them.
func change(t testing.TB, disk *os.File, edit func(text string) string) {
	t.Helper()
	data := make([]byte, headerSize)
	if _, err := disk.ReadAt(data, 0); err != nil {
		t.Fatal(err)
	}
	text, _, _ := bytes.Cut(data[binarySize:], []byte{0})
	edited := edit(string(text))
	clear(data[binarySize:])
	copy(data[binarySize:], edited)
	clear(data[checksumAt : checksumAt+64])
	sum := sha256.Sum256(data)
	copy(data[checksumAt:], sum[:])
	if _, err := disk.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
}

// TestRefused: what a header asks for is limited, since whoever can write to the disk has written it.
func TestRefused(t *testing.T) {
	disk := formatted(t)
	original := make([]byte, headerSize)
	if _, err := disk.ReadAt(original, 0); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"memory":           {`"memory":65536`, `"memory":4000000000`, "argon2id with 3906250 MiB"},
		"passes":           {`"time":3`, `"time":4000000`, "4000000 passes"},
		"no lanes":         {`"cpus":4`, `"cpus":0`, "0 lanes"},
		"lanes":            {`"cpus":4`, `"cpus":255`, "255 lanes"},
		"rounds":           {`"type":"argon2id"`, `"hash":"sha256","iterations":4000000000,"type":"pbkdf2"`, "4000000000 iterations"},
		"derivation":       {`"type":"argon2id"`, `"type":"scrypt"`, `key derivation "scrypt"`},
		"segment":          {`"size":"dynamic"`, `"size":"1048576"`, "not one segment"},
		"type of segment":  {`"type":"crypt"`, `"type":"hw-opal"`, "not one segment"},
		"integrity":        {`"type":"crypt"`, `"integrity":{"type":"hmac(sha256)"},"type":"crypt"`, "not one segment"},
		"cipher":           {`"iv_tweak":"0","encryption":"aes-xts-plain64"`, `"iv_tweak":"0","encryption":"cipher_null-ecb"`, `cipher "cipher_null-ecb"`},
		"cipher of slot":   {`"size":"258048","encryption":"aes-xts-plain64"`, `"size":"258048","encryption":"cipher_null-ecb"`, "cipher_null-ecb"},
		"offset":           {`"offset":"16777216"`, `"offset":"0"`, "data at byte 0"},
		"negative offset":  {`"offset":"32768"`, `"offset":"-512"`, "an area of type"},
		"sector":           {`"sector_size":4096`, `"sector_size":0`, "sectors of 0 bytes"},
		"area behind":      {`"offset":"32768"`, `"offset":"9007199254740992"`, "EOF"},
		"stripes":          {`"stripes":4000`, `"stripes":400000000`, "400000000 stripes"},
		"size of key":      {`"luks2","key_size":64`, `"luks2","key_size":1073741824`, "a key of 1073741824 bytes"},
		"requirement":      {`"config":{`, `"config":{"requirements":{"mandatory":["online-reencrypt-v2"]},`, "online-reencrypt-v2"},
		"no digest":        {`"keyslots":["0"]`, `"keyslots":["1"]`, ErrKey.Error()},
		"empty digest":     {`"digest":"`, `"digest":"","other":"`, ErrKey.Error()},
		"rounds of digest": {`"iterations":1000`, `"iterations":4000000000`, ErrKey.Error()},
		"not JSON":         {`{"keyslots"`, `["keyslots"`, "the header's metadata"},
		"long text":        {`"type":"argon2id"`, `"type":"` + strings.Repeat("x", 4000) + `"`, "key derivation"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := disk.WriteAt(original, 0); err != nil {
				t.Fatal(err)
			}
			change(t, disk, func(text string) string {
				if !strings.Contains(text, c.old) {
					t.Fatalf("%s is not in %s", c.old, text)
				}
				return strings.Replace(text, c.old, c.new, 1)
			})
			if _, err := Open(disk, []byte("secret")); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 400 {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
	damaged := bytes.Clone(original)
	damaged[5000] ^= 1
	version := bytes.Clone(original)
	version[7] = 1
	for want, data := range map[string][]byte{"checksum differs": damaged, "LUKS version 1": version} {
		if _, err := Open(bytes.NewReader(data), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// FuzzOpen: no header makes it fail otherwise than by an error.
func FuzzOpen(f *testing.F) {
	disk := formatted(f)
	data := make([]byte, headerSize)
	if _, err := disk.ReadAt(data, 0); err != nil {
		f.Fatal(err)
	}
	text, _, _ := bytes.Cut(data[binarySize:], []byte{0})
	small := bytes.Replace(text, []byte(`"memory":65536`), []byte(`"memory":64`), 1)
	f.Add(small)
	f.Fuzz(func(t *testing.T, text []byte) {
		var m metadata
		if len(text) >= headerSize-binarySize || json.Unmarshal(text, &m) != nil {
			return
		}
		for s := range maps.Values(m.Keyslots) {
			if s.KDF.Memory > 1024 || s.KDF.Time > 3 || s.KDF.Iterations > 10000 { // TestRefused has those
				return
			}
		}
		copied := bytes.Clone(data)
		clear(copied[binarySize:])
		copy(copied[binarySize:], text)
		clear(copied[checksumAt : checksumAt+64])
		sum := sha256.Sum256(copied)
		copy(copied[checksumAt:], sum[:])
		if v, err := Open(bytes.NewReader(copied), []byte("secret")); err == nil {
			t.Errorf("%+v of a disk without key slots", v)
		}
	})
}
