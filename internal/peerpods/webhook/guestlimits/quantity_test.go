// SPDX-License-Identifier: Apache-2.0

package guestlimits

import (
	"encoding/json"
	"regexp"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{4,}`)

// FuzzQuantity compares with Kubernetes' own type, as that writes what it reads.
func FuzzQuantity(f *testing.F) {
	for _, text := range []string{"1500m", "1Gi", "1.5Gi", "12e6", "12E6", "1e-3", "100k", "7n", "3u", "2M", "1Ki", "1Ei", "9E", "0", "0.1", "1G", "+1", "+1Gi", "5.", "5.Gi", "00000000000000000000000001"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if longExponent.MatchString(text) {
			t.Skip("their comparison takes a second for 1e2333333, and all memory for more")
		}
		theirs, err := resource.ParseQuantity(text)
		if len(text) > 40 || err != nil || theirs.Sign() < 0 || theirs.CmpInt64(1<<52) > 0 {
			t.Skip("no quantity that a container has")
		}
		written, err := json.Marshal(theirs)
		if err != nil {
			t.Fatal(err)
		}
		var ours quantity
		if err := json.Unmarshal(written, &ours); err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		if got, want := ours.times(1), theirs.Value(); got != want {
			t.Errorf("%s is %d, want %d", written, got, want)
		}
		if got, want := ours.times(1000), theirs.MilliValue(); got != want {
			t.Errorf("%s is %d thousandths, want %d", written, got, want)
		}
	})
}

func TestQuantityRefusesOthers(t *testing.T) {
	for _, text := range []string{`""`, `"x"`, `"1K"`, `"1ki"`, `"1mi"`, `"1ii"`, `"1/2"`, `"0x10"`, `"1 Gi"`, `"-1"`, `"1e999"`, `"1e-100"`, `"1p3"`, `"1_0"`, `".5"`, `"12345678901234567890"`, `"GiB"`, `{}`, `null1`} {
		var q quantity
		if err := q.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s is %v", text, &q.Rat)
		}
	}
}
