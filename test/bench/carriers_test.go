// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outrigger/outrigger/provider/plugin/process"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/stand"
)

// carriers is what each way to carry a provider weighs.
func carriers(t *testing.T, runs int) []promises.Figure {
	var lines []promises.Figure
	for _, d := range []struct{ what, tags string }{
		{"no provider", "noprovider"}, {"qemu", "qemu"}, {"libvirt", "libvirt"}, {"all providers", "qemu libvirt"},
	} {
		daemon := build(t, "./cmd/cloud-api-adaptor", d.tags)
		lines = append(lines, promises.Figure{What: "`cloud-api-adaptor` with " + d.what, Measured: mib(size(t, daemon)) + linkage(t, daemon), How: "`-tags '" + d.tags + "'`"})
	}
	template := build(t, "./examples/template", "")
	var resident []int64
	for range runs {
		resident = append(resident, pluginRSS(t, template))
	}
	return append(lines,
		promises.Figure{What: "process plugin: the template, file", Measured: mib(size(t, template)) + linkage(t, template), How: "file size"},
		promises.Figure{What: "process plugin: the template, resident", Measured: mib(median(resident)), How: "VmRSS after its first answer; built in, as a Go plugin or on a socket, a provider adds no process of ours"})
}

func build(t *testing.T, pkg, tags string) string {
	file := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", "grpcnotrace "+tags, "-o", file, pkg)
	cmd.Dir, cmd.Env = stand.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return file
}

// pluginRSS starts a process plugin as the host does and asks who it is.
func pluginRSS(t *testing.T, program string) int64 {
	socket := filepath.Join(t.TempDir(), "p.sock")
	cmd := exec.Command(program)
	cmd.Env = []string{process.SocketVariable + "=" + socket}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer stdin.Close() // the plugin's sign to end
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for deadline := time.Now().Add(time.Minute); ; {
		if _, err = wire.Info(t.Context(), conn); err == nil {
			return rss(t, cmd.Process.Pid)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
