// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

// forwarding is shared by all networks in one network namespace: the first one
// turns forwarding on and the last one puts back what was there before.
type forwarding struct {
	// Holders are the bridges that need it.
	Holders []string `json:"holders"`
	// Before holds the settings that were changed, in the order in which they
	// are put back: the switch of a family resets those of its interfaces.
	Before []sysctl `json:"before"`
}

type sysctl struct {
	Path  string `json:"path"`
	Value string `json:"value"`
}

const (
	forward4 = "/proc/sys/net/ipv4/ip_forward"
	forward6 = "/proc/sys/net/ipv6/conf/all/forwarding"
)

func (n *Network) ensureForwarding() error {
	return n.withForwarding(func(f *forwarding, save func() error) error {
		// Values of before that are still here were never put back.
		if len(f.Holders) == 0 && len(f.Before) == 0 {
			f.Before = readForwarding()
		}
		if !slices.Contains(f.Holders, n.cfg.Bridge) {
			f.Holders = append(f.Holders, n.cfg.Bridge)
			if err := save(); err != nil {
				return err
			}
		}
		return setKernel(wanted(f.Before))
	})
}

func (n *Network) releaseForwarding() error {
	return n.withForwarding(func(f *forwarding, save func() error) error {
		f.Holders = slices.DeleteFunc(f.Holders, func(name string) bool { return name == n.cfg.Bridge })
		if len(f.Holders) == 0 {
			var errs []error
			for _, s := range f.Before {
				errs = append(errs, setKernel(map[string]string{s.Path: s.Value}))
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
		}
		return save()
	})
}

// withForwarding runs do on the record of this network namespace under its
// lock. Holders whose bridge is gone were killed, and count no more.
func (n *Network) withForwarding(do func(f *forwarding, save func() error) error) error {
	var ns unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &ns); err != nil {
		return fmt.Errorf("find own network namespace: %w", err)
	}
	path := filepath.Join(n.cfg.RunDir, fmt.Sprintf("forwarding-%d.json", ns.Ino))
	ctx, cancel := context.WithTimeout(context.Background(), lockWait)
	defer cancel()
	lock, err := statefile.Acquire(ctx, path+".lock")
	if err != nil {
		return err
	}
	defer func() {
		if _, err := os.Stat(path); err == nil {
			lock.Release()
			return
		}
		lock.ReleaseAndRemove()
		os.Remove(n.cfg.RunDir) // if empty
	}()
	var f forwarding
	if err := statefile.Read(path, &f); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f.Holders = slices.DeleteFunc(f.Holders, func(name string) bool {
		link, err := findLink(name)
		return link == nil && err == nil
	})
	return do(&f, func() error { return saveForwarding(path, &f) })
}

func saveForwarding(path string, f *forwarding) error {
	if len(f.Holders) > 0 {
		return statefile.Write(path, f)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// readForwarding returns what turning forwarding on will change.
func readForwarding() []sysctl {
	var before []sysctl
	if value := readSysctl(forward4); value == "0" {
		before = append(before, sysctl{forward4, value})
		before = append(before, interfacesWith("/proc/sys/net/ipv4/conf/*/forwarding", "1")...)
	}
	if value := readSysctl(forward6); value == "0" {
		before = append(before, sysctl{forward6, value})
		before = append(before, interfacesWith("/proc/sys/net/ipv6/conf/*/forwarding", "1")...)
		// A router ignores router advertisements unless told otherwise (2):
		// a machine that has its own default route from one would lose it.
		before = append(before, interfacesWith("/proc/sys/net/ipv6/conf/*/accept_ra", "1")...)
	}
	return before
}

func interfacesWith(glob, value string) []sysctl {
	var found []sysctl
	paths, _ := filepath.Glob(glob)
	for _, path := range paths {
		if strings.Contains(path, "/conf/all/") || readSysctl(path) != value {
			continue
		}
		found = append(found, sysctl{path, value})
	}
	return found
}

// wanted is what the settings that were changed must be while somebody holds
// forwarding.
func wanted(before []sysctl) map[string]string {
	settings := map[string]string{}
	for _, s := range before {
		if filepath.Base(s.Path) == "accept_ra" {
			settings[s.Path] = "2"
		} else {
			settings[s.Path] = "1"
		}
	}
	return settings
}

func readSysctl(path string) string {
	value, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}
