// SPDX-License-Identifier: Apache-2.0

package guestlimits

import (
	"strings"
	"testing"
)

// FuzzRecord: a pod's user writes the record, and the relay of the node reads it.
func FuzzRecord(f *testing.F) {
	f.Add(`{"containers":{"a":{"requests":{"cpu":"500m"},"limits":{"cpu":"2","memory":"1Gi"}}}}`, "a")
	f.Add(`{"containers":{"a":{"limits":{"cpu":"1e999999"}}}}`, "a")
	f.Add(`{"containers":{"a":{"limits":{"memory":"9223372036854775807Ei"}},"b":[[[[]]]]}}`, "a")
	f.Add(`{"containers":{"a":null}}`, "a")
	f.Add(strings.Repeat(`{"containers":`, 2000), "")
	f.Fuzz(func(t *testing.T, record, name string) {
		l, err := Of(map[string]string{Annotation: record}, name)
		switch {
		case err != nil:
			if l != (Limits{}) {
				t.Errorf("%+v with %v", l, err)
			}
		case len(record) > MaxRecord:
			t.Errorf("%d bytes are read", len(record))
		case l.MemoryBytes < 0, l.CPUShares == 1 || l.CPUShares > 262144, l.CPUQuota != 0 && l.CPUQuota < 1000, (l.CPUQuota == 0) != (l.CPUPeriod == 0):
			t.Errorf("%+v", l)
		}
	})
}
