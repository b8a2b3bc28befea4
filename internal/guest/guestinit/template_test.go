// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestIdentityOfARestoredVM(t *testing.T) {
	good := base64.StdEncoding.EncodeToString(make([]byte, 32))
	short := base64.StdEncoding.EncodeToString(make([]byte, 31))
	for _, test := range []struct{ meta, err string }{
		{"random_seed: " + good + "\noutrigger-time: \"2026-11-23T18:00:00.5Z\"\n", ""},
		{"random_seed: " + short + "\noutrigger-time: \"2026-11-23T18:00:00Z\"\n", "random_seed"},
		{"random_seed: \"?\"\noutrigger-time: \"2026-11-23T18:00:00Z\"\n", "random_seed"},
		{"random_seed: " + good + "\n", "outrigger-time"},
		{"", "random_seed"},
		{"- list\n", "meta-data"},
	} {
		random, now, err := parseIdentity([]byte(test.meta))
		switch {
		case test.err == "" && (err != nil || len(random) != 32 || !now.Equal(time.Date(2026, 11, 23, 18, 0, 0, 5e8, time.UTC))):
			t.Errorf("%q: %d bytes, %v, %v", test.meta, len(random), now, err)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%q: error %v, want one about %s", test.meta, err, test.err)
		}
	}
}

func TestSeedDiskIsFoundByItsSerial(t *testing.T) {
	sys := t.TempDir()
	if _, err := seedDisk(sys, "/dev"); err == nil {
		t.Error("found a seed disk among no disks")
	}
	for name, serial := range map[string]string{"vda": "scratch\n", "vdb": "cidata\n"} {
		if err := os.Mkdir(filepath.Join(sys, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(sys, name, "serial"), []byte(serial), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if dev, err := seedDisk(sys, "/dev"); err != nil || dev != "/dev/vdb" {
		t.Errorf("seed disk %q, %v", dev, err)
	}
}
