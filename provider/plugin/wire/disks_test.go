// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
)

// must is a conversion whose error fails the test.
func must[M, V any](t *testing.T, from func(M) (*V, error)) func(M) V {
	return func(m M) V {
		value, err := from(m)
		if err != nil {
			t.Fatal(err)
		}
		return *value
	}
}

func TestRoundTripsOfDisks(t *testing.T) {
	t.Run("DiskSpec", func(t *testing.T) { testRoundTrip(t, diskSpecToWire, diskSpecFromWire) })
	t.Run("Disk", func(t *testing.T) {
		testRoundTrip(t, func(d provider.Disk) *pluginpb.Disk { d.ID += "d"; return diskToWire(&d) }, func(m *pluginpb.Disk) provider.Disk {
			d := must(t, diskFromWire)(m)
			d.ID = strings.TrimSuffix(d.ID, "d")
			return d
		})
	})
	t.Run("Snapshot", func(t *testing.T) {
		testRoundTrip(t, func(s provider.Snapshot) *pluginpb.Snapshot { s.ID += "s"; return snapshotToWire(&s) }, func(m *pluginpb.Snapshot) provider.Snapshot {
			s := must(t, snapshotFromWire)(m)
			s.ID = strings.TrimSuffix(s.ID, "s")
			return s
		})
	})
}

// TestDisksOfPluginsAreNotBelieved: an empty serial number is that of every disk without
// one, and an endless id goes to objects and Events.
func TestDisksOfPluginsAreNotBelieved(t *testing.T) {
	for what, text := range map[string]string{"an empty": "", "an endless": strings.Repeat("i", 8<<20), "a broken": "i\n1"} {
		disk, errDisk := diskFromWire(&pluginpb.Disk{Id: text})
		snapshot, errSnapshot := snapshotFromWire(&pluginpb.Snapshot{Id: text})
		attachment, errAttachment := attachmentFromWire(&pluginpb.Attachment{Serial: text})
		if disk != nil || snapshot != nil || attachment != nil {
			t.Errorf("%s id is believed", what)
		}
		for _, err := range []error{errDisk, errSnapshot, errAttachment} {
			if err == nil || len(err.Error()) > 200 {
				t.Errorf("%s id: %.300v", what, err)
			}
		}
	}
	if d, err := diskFromWire(nil); d != nil || err == nil {
		t.Errorf("nothing: %v, %v", d, err)
	}
	if a, err := attachmentFromWire(nil); a != nil || err == nil {
		t.Errorf("nothing: %v, %v", a, err)
	}
	if diskToWire(nil) != nil || snapshotToWire(nil) != nil {
		t.Error("nil becomes a message")
	}
}
