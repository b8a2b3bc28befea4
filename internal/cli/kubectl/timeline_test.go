// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"strings"
	"testing"
	"time"
)

func TestTimelineOfAPeerPod(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Running"})
	at := func(ms int) string {
		return time.Unix(1_700_000_000, int64(ms)*1e6).UTC().Format("2006-01-02T15:04:05.000000Z")
	}
	older := o{"name": "claim", "time": at(0)}
	node := o{"name": "create-instance", "startTime": at(0), "time": at(1500)}
	guest := o{"name": "kernel", "place": "Guest", "startTime": at(500), "time": at(1200)}
	f.peerPod("web", o{"steps": []any{older, node, guest}})
	wants(t, f.succeeds("timeline", "web"), "shop/web: 1.500 s", "node  claim ", "guest kernel"+strings.Repeat(" ", 22+3)+"0.500   0.700")
	f.peerPod("web", o{"steps": []any{older, node}})
	wants(t, f.succeeds("timeline", "web"), "note: the PeerPod has no steps of the guest")
	f.peerPod("web", o{})
	for name, want := range map[string]string{"web": "no step of the start of pod shop/web is known yet", "absent": "no pod absent in namespace shop"} {
		if code, _, errs := f.run("timeline", name); code != 1 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s", name, code, errs)
		}
	}
	for _, args := range [][]string{{"timeline"}, {"timeline", "a", "b"}, {"describe", "pod"}, {"logs", "--console"}} {
		if code, _, errs := f.run(args...); code != 1 || !strings.Contains(errs, "want one POD, and not ") || !strings.Contains(errs, "kubectl outrigger "+args[0]) {
			t.Errorf("%q: exit code %d, %s", args, code, errs)
		}
	}
}
