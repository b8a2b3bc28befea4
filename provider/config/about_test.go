// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider"
)

func TestAbout(t *testing.T) {
	if err := About[settings]("net", nil); err != nil {
		t.Error(err)
	}
	if err := About[settings]("T_NET", provider.ErrNotFound); !errors.Is(err, provider.ErrNotFound) || err.Error() != "-net (T_NET): not found" {
		t.Error(err)
	}
}

func TestMatch(t *testing.T) {
	syntax := regexp.MustCompile(`^sg-[0-9]+$`)
	if err := Match[settings]("groups", syntax, "a group", "", "sg-1", "sg-2"); err != nil {
		t.Error(err)
	}
	err := Match[settings]("groups", syntax, "a group such as sg-1", "a", "sg-2", "b")
	for _, want := range []string{`-groups (T_GROUPS): "a" is not a group such as sg-1`, `"b" is not`} {
		if !errors.Is(err, provider.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not have %s", err, want)
		}
	}
}
