// SPDX-License-Identifier: Apache-2.0

//go:build !cgo || !(linux || darwin || freebsd)

package plugin

import (
	"errors"

	"github.com/outrigger/outrigger/provider/plugin/gobinary"
)

// goPlugins returns why this program cannot load Go plugins.
func goPlugins() error {
	return errors.New(gobinary.Static.Text)
}

func openGo(string) (bool, error) { return false, goPlugins() }
