// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/ociimage"
	"github.com/outrigger/outrigger/test/dockerd"
	"github.com/outrigger/outrigger/test/tier"
)

// importHAProxy makes an image of Debian's HAProxy, which begins as the
// project's own images do.
func importHAProxy(t *testing.T, e *dockerd.Engine, name string) {
	t.Helper()
	home, _ := os.UserHomeDir()
	cache := cmp.Or(os.Getenv("OUTRIGGER_CACHE"), filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")), "outrigger"))
	program := filepath.Join(cache, "haproxy/usr/sbin/haproxy")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%v; run: make setup, which unpacks Debian's HAProxy, then make test-all", err)
	}
	folders, err := filepath.Glob(filepath.Join(cache, "haproxy/usr/lib/*-linux-gnu"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("libraries of HAProxy: %q, %v", folders, err)
	}
	t.Setenv("LD_LIBRARY_PATH", folders[0])
	files := ociimage.Files{"/usr/sbin/haproxy": program}
	if err := files.AddLibraries(); err != nil {
		t.Fatal(err)
	}
	e.Import(t, name, files, "ENV LD_LIBRARY_PATH="+folders[0],
		`ENTRYPOINT ["/usr/sbin/haproxy", "-W", "-db", "-f", "/usr/local/etc/haproxy/haproxy.cfg"]`)
}

// TestHAProxy takes the place of the default load balancer: it understands the
// configuration, and reads it again when machines come and go, in either family.
func TestHAProxy(t *testing.T) {
	tier.OnlyAll(t) // its configuration is checked in unit tests, and the default balancer at an engine
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	importHAProxy(t, d.Engine, "debian/haproxy:2.6")
	b := open(t, testConfig(d.Engine))
	for _, w := range []*world{newWorld("default", "ha"), newWorld("default", "six").withRanges("fd00:10:244::/48", "fd00:10:96::/108")} {
		w.infra.Spec.LoadBalancer = infrav1.DockerLoadBalancer{ImageRepository: "debian", ImageTag: "2.6"}
		w.ensureCluster(t, b)
		first, second := w.add("cp-1", true), w.add("cp-2", true)
		w.ensure(t, b, first)
		answers(t, endpointOf(w), "cp-1")
		w.ensure(t, b, second)
		answers(t, endpointOf(w), "cp-2")
		d.Restart(t)
		answers(t, endpointOf(w), "cp-1")
		answers(t, endpointOf(w), "cp-2")
		deleteMachine(t, b, first)
		eventually(t, "the second alone", func(ctx context.Context) (bool, string) {
			for range 4 {
				if got, err := get(ctx, endpointOf(w)); err != nil || got != "cp-2" {
					return false, fmt.Sprintf("%q, %v", got, err)
				}
			}
			return true, ""
		})
		deleteMachine(t, b, second)
		w.deleteCluster(t, b)
	}
}
