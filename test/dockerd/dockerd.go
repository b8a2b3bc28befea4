// SPDX-License-Identifier: Apache-2.0

// Package dockerd starts a Docker engine of its own for a test: on a socket in
// the test's folder, with a network in the test's network namespace, and with
// containers in a cgroup that is removed again.
package dockerd

import (
	"archive/tar"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// Image is that of a guest that only writes a line and waits.
const Image = "podvm-test:latest"

// Engine is a running one.
type Engine struct {
	// Host is its DOCKER_HOST.
	Host   string
	Client *client.Client
}

// Start runs dockerd until the test ends. The package's TestMain must be
// testns.Main: the engine changes the network it finds.
func Start(t testing.TB) *Engine {
	t.Helper()
	testns.RequireRoot(t)
	path, err := exec.LookPath("dockerd")
	if err != nil {
		t.Fatalf("%v: run make setup, which installs docker.io", err)
	}
	dir := stand.Dir(t)
	group := fmt.Sprintf("outrigger-dockerd-%d", os.Getpid())
	t.Cleanup(func() { removeCgroups(t, group) })
	socket := filepath.Join(dir, "docker.sock")
	stand.Start(t, stand.Daemon{Path: path, Log: filepath.Join(dir, "dockerd.log"), Socket: socket, Args: []string{
		"--host=unix://" + socket, "--data-root=" + filepath.Join(dir, "data"), "--exec-root=" + filepath.Join(dir, "exec"), "--pidfile=" + filepath.Join(dir, "pid"),
		"--storage-driver=vfs", "--iptables=false", "--ip6tables=false", "--cgroup-parent=/" + group, "--bip=10.211.0.1/16", "--shutdown-timeout=1",
	}})
	c, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e := &Engine{Host: "unix://" + socket, Client: c}
	e.ImportImage(t)
	return e
}

// ImportImage makes [Image] of busybox: its first process writes a line. It has the guest's program for disks.
func (e *Engine) ImportImage(t testing.TB) {
	t.Helper()
	e.Import(t, Image, map[string]string{"busybox": "/bin/busybox", "init": stand.Build(t, "./cmd/podvm-init")},
		`CMD ["/busybox", "sh", "-c", "echo The guest has booted.; exec /busybox sleep 1000000"]`)
}

// Containers returns the names of all there are.
func (e *Engine) Containers() ([]string, error) {
	ctx, cancel := contextFor(10 * time.Second)
	defer cancel()
	answer, err := e.Client.ContainerList(ctx, client.ContainerListOptions{All: true})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, c := range answer.Items {
		names = append(names, strings.Join(c.Names, ","))
	}
	return names, nil
}

// ReadFile returns a file of a container.
func (e *Engine) ReadFile(container, name string) (string, error) {
	ctx, cancel := contextFor(10 * time.Second)
	defer cancel()
	answer, err := e.Client.CopyFromContainer(ctx, container, client.CopyFromContainerOptions{SourcePath: name})
	if err != nil {
		return "", err
	}
	defer answer.Content.Close()
	r := tar.NewReader(answer.Content)
	if _, err := r.Next(); err != nil {
		return "", err
	}
	data, err := io.ReadAll(r)
	return string(data), err
}

// removeCgroups removes what the engine's containers leave in the machine's
// cgroup tree, the innermost first. It can only remove what is empty.
func removeCgroups(t testing.TB, group string) {
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + group)
	roots = append(roots, "/sys/fs/cgroup/"+group)
	for _, root := range roots {
		var folders []string
		_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		slices.Reverse(folders)
		for _, folder := range folders {
			if err := syscall.Rmdir(folder); err != nil {
				t.Logf("cgroup %s is left: %v", folder, err)
			}
		}
	}
}
