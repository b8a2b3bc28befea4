// SPDX-License-Identifier: Apache-2.0

package places

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func TestOf(t *testing.T) {
	types := []provider.InstanceType{{Name: "small", Zones: []string{"a", "c"}}, {Name: "any"}}
	for _, test := range []struct {
		zones []string
		most  int
		want  string
	}{
		{[]string{"b", "a"}, 9, "[small in zone a any in zone b any in zone a]"},
		{[]string{"b", "a"}, 2, "[small in zone a any in zone b]"},
		{nil, 9, "[small any]"},
		{[]string{"z"}, 9, "[any in zone z]"},
	} {
		if got := fmt.Sprint(Of(types, test.zones, test.most)); got != test.want {
			t.Errorf("%v: %s, want %s", test.zones, got, test.want)
		}
	}
}

func TestZones(t *testing.T) {
	for _, test := range []struct {
		configured []string
		wanted     string
		want       string
	}{
		{[]string{"a", "b"}, "", "[a b]"},
		{[]string{"a", "b"}, "b", "[b]"},
		{nil, "", "[]"},
		{nil, "c", "[c]"},
	} {
		if got, err := Zones(test.configured, test.wanted); err != nil || fmt.Sprint(got) != test.want {
			t.Errorf("%v, %q: %v, %v; want %s", test.configured, test.wanted, got, err, test.want)
		}
	}
	_, err := Zones([]string{"a", "b"}, "c")
	if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), `zone "c": instances are made in a, b`) {
		t.Errorf("another zone: %v", err)
	}
}

func TestTry(t *testing.T) {
	full := fmt.Errorf("%w: full", provider.ErrCapacity)
	left := "left"
	for name, test := range map[string]struct {
		errs  []error
		made  map[int]*string // what is returned with each error
		tried int
		want  error
	}{
		"the first":           {errs: []error{nil}, tried: 1},
		"the third":           {errs: []error{full, full, nil}, tried: 3},
		"none":                {errs: []error{full, full}, tried: 2, want: provider.ErrCapacity},
		"refused":             {errs: []error{provider.ErrQuota, nil}, tried: 1, want: provider.ErrQuota},
		"full, then broken":   {errs: []error{full, provider.ErrUnavailable, nil}, tried: 2, want: provider.ErrUnavailable},
		"full and not undone": {errs: []error{full, nil}, made: map[int]*string{0: &left}, tried: 1, want: provider.ErrCapacity},
	} {
		t.Run(name, func(t *testing.T) {
			tried, places := 0, make([]int, len(test.errs))
			made, err := Try(places, NoCapacity, func(int) (*string, error) {
				tried++
				if test.errs[tried-1] == nil {
					return new("made"), nil
				}
				return test.made[tried-1], test.errs[tried-1]
			})
			if tried != test.tried || provider.Class(err) != test.want && !(err == nil && test.want == nil) {
				t.Errorf("%d tried, %v", tried, err)
			}
			switch {
			case err == nil && (made == nil || *made != "made"), err != nil && made != test.made[tried-1]:
				t.Errorf("%v, %v", made, err)
			case name == "full, then broken" && !strings.Contains(err.Error(), "before that, no room in 1 places"):
				t.Error(err)
			}
		})
	}
	if made, err := Try(nil, NoCapacity, func(int) (*string, error) { return nil, errors.New("asked") }); made != nil || err != nil {
		t.Errorf("no place: %v, %v", made, err)
	}
}
