// SPDX-License-Identifier: Apache-2.0

//go:build integration

package luks

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// cryptsetup runs Debian's, with the key on its standard input.
func cryptsetup(t *testing.T, key string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "cryptsetup", append(args, "--batch-mode", "--key-file", "-")...)
	cmd.Stdin = strings.NewReader(key)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// volumeKey returns the key that cryptsetup finds.
func volumeKey(t *testing.T, key, disk string) []byte {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if out, err := cryptsetup(t, key, "luksDump", "--dump-volume-key", "--volume-key-file", file, disk); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestCryptsetupOpens: cryptsetup opens what Format makes, with both copies of the header, and no other key.
func TestCryptsetupOpens(t *testing.T) {
	disk := formatted(t)
	v, err := Open(disk, []byte("secret"))
	if err != nil || !bytes.Equal(v.Key, volumeKey(t, "secret", disk.Name())) {
		t.Errorf("%+v, %v", v, err)
	}
	if out, err := cryptsetup(t, "other", "open", "--test-passphrase", disk.Name()); err == nil {
		t.Errorf("another key: %s", out)
	}
	if _, err := disk.WriteAt(make([]byte, binarySize), 0); err != nil {
		t.Fatal(err)
	}
	if out, err := cryptsetup(t, "secret", "repair", disk.Name()); err != nil { // from the second copy
		t.Fatalf("%v: %s", err, out)
	}
	if again, err := Open(disk, []byte("secret")); err != nil || !bytes.Equal(again.Key, v.Key) {
		t.Errorf("repaired: %v", err)
	}
}

// TestOpenCryptsetups: Open reads what cryptsetup makes, by default and otherwise, and with several keys.
func TestOpenCryptsetups(t *testing.T) {
	for name, args := range map[string][]string{
		"default":         {"--pbkdf-memory", "65536", "--pbkdf-force-iterations", "4"},
		"argon2i":         {"--pbkdf", "argon2i", "--pbkdf-memory", "32768", "--pbkdf-force-iterations", "4", "--key-size", "512", "--sector-size", "4096"},
		"pbkdf2, sha512":  {"--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "2000", "--hash", "sha512", "--key-size", "512"},
		"without waiting": {"--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", "--key-size", "512", "--offset", "65536"},
	} {
		t.Run(name, func(t *testing.T) {
			disk := formatted(t)
			if err := disk.Truncate(64 << 20); err != nil {
				t.Fatal(err)
			}
			if out, err := cryptsetup(t, "first", append([]string{"luksFormat", "--type", "luks2", disk.Name()}, args...)...); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			v, err := Open(disk, []byte("first"))
			if err != nil || !bytes.Equal(v.Key, volumeKey(t, "first", disk.Name())) {
				t.Fatalf("%+v, %v", v, err)
			}
			second := filepath.Join(t.TempDir(), "second")
			if err := os.WriteFile(second, []byte("second"), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := cryptsetup(t, "first", "luksAddKey", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", disk.Name(), second); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if again, err := Open(disk, []byte("second")); err != nil || !bytes.Equal(again.Key, v.Key) {
				t.Errorf("the second key: %v", err)
			}
		})
	}
}
