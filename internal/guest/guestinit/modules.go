// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Stages of /modules.order, written by the image builder.
const (
	stageEarly   = "early"
	stageStorage = "storage"
	stageStart   = "start"
	stageLate    = "late"
	stageDemand  = "demand"
)

// Where the image keeps modules; see internal/guest/image.
const (
	modulesDir     = "/modules"
	modulesOrder   = "/modules.order"
	modulesAliases = "/modules.alias"
)

// modules is the image's list of kernel modules, in load order.
type modules struct {
	dir   string
	order []moduleFile
}

type moduleFile struct {
	stage, file string
	deps        []string // files to load first, in this order
	done        bool
}

func readModules(orderFile, dir string) (*modules, error) {
	data, err := os.ReadFile(orderFile)
	if err != nil {
		return nil, err
	}
	m := &modules{dir: dir}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 2 {
			m.order = append(m.order, moduleFile{stage: f[0], file: f[1], deps: f[2:]})
		}
	}
	return m, nil
}

// load loads one stage, once. It goes on after a failure: a VM without, say, a
// power button still runs its pod.
func (m *modules) load(stage string) (int, error) {
	var errs []error
	n := 0
	for i := range m.order {
		f := &m.order[i]
		if f.stage != stage || f.done {
			continue
		}
		f.done = true
		err := loadModule(filepath.Join(m.dir, f.file))
		if err == nil {
			n++
		}
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// loadDemand loads the modules that the kernel would otherwise request one by one, each time
// by starting a program.
func (m *modules) loadDemand() error {
	var errs []error
	for _, f := range m.order {
		if f.stage == stageDemand {
			errs = append(errs, m.loadNamed(moduleName(f.file)))
		}
	}
	return errors.Join(errs...)
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if plain, notGzip := gzip.NewReader(f); notGzip != nil {
		err = unix.FinitModule(int(f.Fd()), "", 0) // which reads it from its beginning
	} else { // one that few VMs need
		var module []byte
		if module, err = io.ReadAll(plain); err == nil {
			err = unix.InitModule(module, "")
		}
	}
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}

// moduleName returns the kernel's name of the module in a file.
func moduleName(file string) string {
	return strings.ReplaceAll(strings.TrimSuffix(file, ".ko"), "-", "_")
}

// loadNamed loads one module and what it needs.
func (m *modules) loadNamed(name string) error {
	for _, f := range m.order {
		if moduleName(f.file) != moduleName(name) {
			continue
		}
		for _, file := range append(f.deps, f.file) {
			if err := loadModule(filepath.Join(m.dir, file)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("the image has no module %s", name)
}

// resolveAlias lists the modules that answer to a name, by the "PATTERN NAME"
// lines of /modules.alias.
func resolveAlias(aliases, name string) []string {
	var names []string
	for line := range strings.Lines(aliases) {
		pattern, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		if ok, _ := path.Match(pattern, name); ok {
			names = append(names, module)
		}
	}
	return names
}

// modprobe serves the kernel's requests for modules: podvm-init is also the
// program that the kernel calls as "modprobe -q -- NAME". It runs in the
// initramfs as unpacked, where nothing is mounted.
func modprobe(name string) error {
	m, err := readModules(modulesOrder, modulesDir)
	if err != nil {
		return err
	}
	aliases, err := os.ReadFile(modulesAliases)
	if err != nil {
		return err
	}
	names := resolveAlias(string(aliases), name)
	if len(names) == 0 {
		names = []string{name}
	}
	var errs []error
	for _, n := range names {
		errs = append(errs, m.loadNamed(n))
	}
	return errors.Join(errs...)
}

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
	devices, _ := filepath.Glob(filepath.Join(sysBus, "*", "devices", "*"))
	return modaliases(devices)
}

// modaliases returns what the kernel calls devices, by their folders.
func modaliases(devices []string) []string {
	var names []string
	for _, device := range devices {
		if data, err := os.ReadFile(filepath.Join(device, "modalias")); err == nil {
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
