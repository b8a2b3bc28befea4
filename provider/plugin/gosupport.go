// SPDX-License-Identifier: Apache-2.0

//go:build cgo && (linux || darwin || freebsd)

package plugin

import (
	"errors"
	"fmt"
	"plugin"
	"strings"
)

// goPlugins returns why this program cannot load Go plugins.
func goPlugins() error { return nil }

// openGo opens a Go plugin and calls its InitCloud, if it has one. The error
// is an [initError] or the runtime's, without the path of the copy.
func openGo(path string) (initCloud bool, err error) {
	defer func() {
		if why := recover(); why != nil {
			err = initError(fmt.Sprintf("its initialization panicked: %v", why))
		}
	}()
	p, err := plugin.Open(path)
	if err != nil {
		return false, errors.New(reason(err.Error()))
	}
	symbol, err := p.Lookup("InitCloud")
	if err != nil {
		return false, nil
	}
	init, ok := symbol.(func())
	if !ok {
		return true, initError(fmt.Sprintf("its InitCloud is a %T and must be func InitCloud()", symbol))
	}
	init()
	return true, nil
}

// reason cuts plugin.Open("path"): off.
func reason(text string) string {
	if _, rest, ok := strings.Cut(text, "): "); ok && strings.HasPrefix(text, "plugin.Open(") {
		return rest
	}
	return text
}
