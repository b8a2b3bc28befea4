// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// coldplugPasses bounds how often devices are enumerated: the driver of a bus
// may reveal devices that need drivers of their own.
const coldplugPasses = 3

// coldplug loads the drivers of devices that are there if no NIC has one yet:
// clouds have NICs of their own kinds, and hypervisors that run the image
// locally have virtio, whose driver is loaded already.
func (g *guest) coldplug() error {
	if _, err := firstNIC(); err == nil {
		return nil
	}
	aliases, err := os.ReadFile(modulesAliases)
	if err != nil {
		return err
	}
	tried := map[string]bool{}
	var errs []error
	for range coldplugPasses {
		before := len(tried)
		for _, name := range driversOf(string(aliases), deviceAliases("/sys/bus")) {
			if tried[name] {
				continue
			}
			tried[name] = true
			errs = append(errs, g.modules.loadNamed(name))
			g.con.logf("loaded %s, whose device is here", name)
		}
		if len(tried) == before {
			break
		}
	}
	return errors.Join(errs...)
}

// deviceAliases returns what the kernel calls the devices of all buses.
func deviceAliases(sysBus string) []string {
	files, _ := filepath.Glob(filepath.Join(sysBus, "*", "devices", "*", "modalias"))
	var names []string
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			names = append(names, strings.TrimSpace(string(data)))
		}
	}
	return names
}

// driversOf returns the modules that drive devices, each once.
func driversOf(aliases string, devices []string) []string {
	var names []string
	for _, device := range devices {
		for _, name := range resolveAlias(aliases, device) {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
