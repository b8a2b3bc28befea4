// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/guestinfo"
)

func TestAnnounce(t *testing.T) {
	v := variables{}
	asked := 0
	late := func() ([]netip.Addr, error) {
		if asked++; asked < 3 {
			return nil, nil // DHCP is still asking
		}
		return []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, nil
	}
	if err := announce(t.Context(), v, late, time.Microsecond); err != nil {
		t.Fatal(err)
	}
	if got := v[guestinfo.Address]; got != "192.0.2.7,2001:db8::7" {
		t.Errorf("announced %q", got)
	}
}

func TestAnnounceWithoutAddress(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	v := variables{}
	none := func() ([]netip.Addr, error) { cancel(); return nil, nil }
	if err := announce(ctx, v, none, time.Hour); !errors.Is(err, context.Canceled) || len(v) > 0 {
		t.Errorf("%v, %v", err, v)
	}
}

func TestAnnounceElsewhere(t *testing.T) {
	for _, p := range platforms {
		if p != VSphere && p != Azure {
			if err := Announce(t.Context(), p); err != nil {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
}

func TestLocalAddresses(t *testing.T) {
	list, err := localAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range list {
		if addr.IsLoopback() || addr.IsLinkLocalUnicast() || i > 0 && addr.Is4() && !list[i-1].Is4() {
			t.Errorf("%v in %v", addr, list)
		}
	}
}
