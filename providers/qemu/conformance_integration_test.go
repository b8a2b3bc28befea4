// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
)

func TestConformance(t *testing.T) {
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		cfg := testConfig(t)
		reopen := func() provider.Provider {
			p, err := New(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		return conformance.Subject{
			Provider: reopen(), Reopen: reopen, Parallel: 4,
			DisksPerInstance: maxDisks,
			WriteDisk: func(id string, data []byte) error {
				file, err := os.OpenFile(diskImage(cfg, id), os.O_WRONLY, 0)
				if err != nil {
					return err
				}
				_, err = file.Write(data)
				return errors.Join(err, file.Close())
			},
			ReadDisk: func(id string, n int) ([]byte, error) { return headOf(diskImage(cfg, id), int64(n)) },
			Leaks:    func() ([]string, error) { return leaks(t, cfg), nil },
			ReadUserData: func(_ context.Context, id string) (string, error) {
				image, err := os.ReadFile(filepath.Join(cfg.StateDir, "instances", id, seedName))
				if err != nil {
					return "", err
				}
				_, files := readISO(t, image)
				return files["user-data"], nil
			},
		}
	})
}

func diskImage(cfg Config, id string) string { return store{cfg.StateDir}.disks().image(id) }

// leaks are the files, interfaces and processes that are there though no
// instance is.
func leaks(t *testing.T, cfg Config) []string {
	left, err := filepath.Glob(filepath.Join(cfg.StateDir, "*"))
	if err != nil {
		t.Error(err)
	}
	if _, err := netlink.LinkByName(cfg.Bridge); err == nil {
		left = append(left, "bridge "+cfg.Bridge)
	}
	if n := countQEMU(t); n > 0 {
		left = append(left, fmt.Sprint(n, " QEMU processes"))
	}
	if n := countProcesses(t, "swtpm"); n > 0 {
		left = append(left, fmt.Sprint(n, " processes of swtpm"))
	}
	if _, err := os.Stat("/run/outrigger"); err == nil {
		left = append(left, "/run/outrigger")
	}
	return left
}
