// SPDX-License-Identifier: Apache-2.0

package guestinit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Stages of /modules.order, written by the image builder.
const (
	stageEarly   = "early"
	stageStorage = "storage"
	stageLate    = "late"
)

// modules is the image's list of kernel modules, in load order.
type modules struct {
	dir   string
	order []moduleFile
}

type moduleFile struct {
	stage, file string
	done        bool
}

func readModules(orderFile, dir string) (*modules, error) {
	data, err := os.ReadFile(orderFile)
	if err != nil {
		return nil, err
	}
	m := &modules{dir: dir}
	for line := range strings.Lines(string(data)) {
		if stage, file, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			m.order = append(m.order, moduleFile{stage: stage, file: file})
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
		if err := loadModule(filepath.Join(m.dir, f.file)); err != nil {
			errs = append(errs, err)
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	err = unix.FinitModule(int(f.Fd()), "", 0)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
