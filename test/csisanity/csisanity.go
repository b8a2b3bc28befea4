// SPDX-License-Identifier: Apache-2.0

// Package csisanity runs csi-sanity, the conformance tests of the CSI project, against the driver
// over any provider with disks. The node is files: an attached disk is one, which the real programs
// format and check, and mounts are a list.
package csisanity

import (
	"cmp"
	"context"
	"encoding/xml"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"github.com/outrigger/outrigger/internal/volumes"
	"github.com/outrigger/outrigger/provider"
)

// Options are the provider and one of its instances, which is the node.
type Options struct {
	Provider provider.Provider
	NodeID   string
	Zone     string
	// Bytes is the size of volumes, the least that the cloud has; 1 GiB by default.
	Bytes int64
	// Skips are, besides those for all providers, parts of the names of tests that csi-sanity
	// skips, each with the reason.
	Skips map[string]string
}

// skips are parts of the names of tests that csi-sanity skips with the driver, and the reasons.
var skips = map[string]string{
	"GetCapacity": "clouds do not say how much they have left",
	"pagination should detect volumes added between pages": "csi-sanity itself does not run it: its issue 223",
	"volume attribute class":                               "disks have no attributes that can be changed",
	"ModifyVolume":                                         "as volume attribute classes",
	"GroupController Service":                              "no provider takes a snapshot of several disks at one time",
	"accessibility requirements":                           "a snapshot is wherever the provider keeps it",
	"GetSnapshot [Controller Server]":                      "ListSnapshots with an id does the same",
	"VolumeHealth":                                         "newer than the sidecars that the manifests name",
	"NodeGetStorageHealth":                                 "as VolumeHealth",
	"the node max attach limit":                            "needs a flag of csi-sanity, and the number of the provider",
	"already published but is incompatible":                "disks are attached for writing, and mounted read-only where a pod asks for that",
}

// Run runs all of csi-sanity. A skipped test that is not listed with a reason fails t.
func Run(t *testing.T, o Options) {
	t.Helper()
	program := tool(t)
	dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	endpoint := serve(t, o, dir)
	report := filepath.Join(dir, "report.xml")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	size := cmp.Or(o.Bytes, 1<<30)
	cmd := exec.CommandContext(ctx, program, "-csi.endpoint", endpoint, "-csi.mountdir", filepath.Join(dir, "mount"), "-csi.stagingdir", filepath.Join(dir, "stage"),
		"-csi.testvolumesize", fmt.Sprint(size), "-csi.testvolumeexpandsize", fmt.Sprint(2*size), "-ginkgo.junit-report", report, "-ginkgo.no-color")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("csi-sanity: %v\n%s", err, out)
	}
	checkReport(t, report, o.Skips)
}

// tool returns the csi-sanity that `make setup` builds.
func tool(t *testing.T) string {
	t.Helper()
	cache := os.Getenv("OUTRIGGER_CACHE")
	if cache == "" {
		folder, err := os.UserCacheDir()
		if err != nil {
			t.Fatal(err)
		}
		cache = filepath.Join(folder, "outrigger")
	}
	path := filepath.Join(cache, "tools", "csi-sanity")
	if _, err := os.Stat(path); err != nil {
		t.Skip("the pinned csi-sanity is not built: run `make setup`")
	}
	return path
}

// serve serves the driver, both services in one, until the test ends.
func serve(t *testing.T, o Options, dir string) (endpoint string) {
	t.Helper()
	p, err := newPlugging(o.Provider, dir)
	if err != nil {
		t.Fatal(err)
	}
	driver, err := volumes.New(volumes.Options{
		Provider: p, Cluster: "sanity", Log: slog.New(slog.DiscardHandler),
		Node: &volumes.NodeOptions{
			ID: o.NodeID, Zone: o.Zone, Records: filepath.Join(dir, "records"), Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev"),
			Mounts: mount.NewSafeFormatAndMount(mount.NewFakeMounter(nil), utilexec.New()),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	endpoint = "unix://" + filepath.Join(dir, "csi.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- driver.Serve(ctx, endpoint) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return endpoint
}

// plugging is a provider whose attached disks are files of the node.
type plugging struct {
	provider.Provider
	provider.DiskController
	provider.DiskSnapshotter
	provider.Getter
	dir string

	mu sync.Mutex
	// names are those of disks of the node, by serial number.
	names map[string]string
}

func newPlugging(p provider.Provider, dir string) (*plugging, error) {
	disks, haveDisks := provider.As[provider.DiskController](p)
	snapshots, haveSnapshots := provider.As[provider.DiskSnapshotter](p)
	getter, haveGetter := provider.As[provider.Getter](p)
	if !haveDisks || !haveSnapshots || !haveGetter {
		return nil, fmt.Errorf("%w: csi-sanity needs DiskController, DiskSnapshotter and Getter; the provider has %q", provider.ErrUnimplemented, provider.Capabilities(p))
	}
	return &plugging{Provider: p, DiskController: disks, DiskSnapshotter: snapshots, Getter: getter, dir: dir, names: map[string]string{}}, nil
}

// AttachDisk implements [provider.DiskController].
func (p *plugging) AttachDisk(ctx context.Context, diskID, instanceID string) (*provider.Attachment, error) {
	a, err := p.DiskController.AttachDisk(ctx, diskID, instanceID)
	if err != nil {
		return nil, err
	}
	return a, p.plug(a.Serial)
}

func (p *plugging) plug(serial string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names[serial] != "" {
		return nil
	}
	name := fmt.Sprintf("vd%d", len(p.names))
	p.names[serial] = name
	sys := filepath.Join(p.dir, "sys/block", name)
	if lun, ok := strings.CutPrefix(serial, provider.SerialLUN); ok {
		if err := plugLUN(p.dir, sys, lun); err != nil {
			return err
		}
	}
	for _, folder := range []string{sys, filepath.Join(p.dir, "dev")} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	device := filepath.Join(p.dir, "dev", name)
	if err := os.WriteFile(device, nil, 0o600); err != nil {
		return err
	}
	if err := os.Truncate(device, 16<<20); err != nil {
		return err
	}
	if strings.HasPrefix(serial, provider.SerialLUN) {
		return nil
	}
	return os.WriteFile(filepath.Join(sys, "serial"), []byte(serial+"\n"), 0o644)
}

// plugLUN makes a disk one of the second SCSI controller of Hyper-V, as sysfs shows it.
func plugLUN(dir, sys, lun string) error {
	controller := filepath.Join(dir, "sys/devices/f8b3781b-1e82-4818-a1c3-63d806ec15bb")
	device := filepath.Join(controller, "host1/target1:0:0/1:0:0:"+lun)
	for _, folder := range []string{sys, device} {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(controller, "device_id"), []byte("{f8b3781b-1e82-4818-a1c3-63d806ec15bb}\n"), 0o644); err != nil {
		return err
	}
	return os.Symlink(device, filepath.Join(sys, "device"))
}

// checkReport fails t for tests that were skipped without a reason that is known.
func checkReport(t *testing.T, file string, more map[string]string) {
	t.Helper()
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string `xml:"name,attr"`
				Skipped *struct {
					Message string `xml:"message,attr"`
				} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	data, err := os.ReadFile(file)
	if err == nil {
		err = xml.Unmarshal(data, &report)
	}
	if err != nil || len(report.Suites) == 0 {
		t.Fatalf("the report of csi-sanity: %v", err)
	}
	known := maps.Clone(skips)
	maps.Copy(known, more)
	ran, used := 0, map[string]bool{}
	for _, c := range report.Suites[0].Cases {
		if c.Skipped == nil {
			ran++
			continue
		}
		part := partOf(c.Name, known)
		if used[part] = true; part == "" {
			t.Errorf("skipped: %s: %s; list it with the reason", c.Name, c.Skipped.Message)
		}
	}
	for part, reason := range known {
		if !used[part] {
			t.Errorf("nothing with %q in its name is skipped, because %s: csi-sanity has changed", part, reason)
		}
	}
	if ran < 60 {
		t.Errorf("csi-sanity ran %d tests", ran)
	}
	t.Logf("csi-sanity ran %d tests and skipped %d", ran, len(report.Suites[0].Cases)-ran)
}

// partOf returns the part of a name that is known; empty for none.
func partOf(name string, known map[string]string) string {
	for part := range known {
		if strings.Contains(name, part) {
			return part
		}
	}
	return ""
}
