// SPDX-License-Identifier: Apache-2.0

package dockerd

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

// Options of an engine that is not as usual.
type Options struct {
	// Data is the folder of its images and containers; empty is a new one.
	Data string
	// TCP is an address to listen at besides the socket, with TLS: Certificates
	// is a folder with ca.pem, server.pem and server-key.pem.
	TCP, Certificates string
	// Filter has the engine keep its networks apart with iptables, as it does by
	// default. With IPv6 only engines from version 27 on do; before, that
	// is an experiment.
	Filter bool
	// Storage is the driver for layers; empty is vfs, which works everywhere and
	// copies everything.
	Storage string
}

// Daemon is an engine that a test can stop and start again.
type Daemon struct {
	*Engine
	process *stand.Process
}

// StartDaemon is Start for tests that do such things. The engine has no image.
func StartDaemon(t testing.TB, o Options) *Daemon {
	t.Helper()
	testns.RequireRoot(t)
	program, err := exec.LookPath("dockerd")
	if err != nil {
		t.Fatalf("%v: run make setup, which installs docker.io", err)
	}
	dir := stand.Dir(t)
	if o.Data == "" {
		o.Data = filepath.Join(dir, "data")
	}
	group := fmt.Sprintf("outrigger-dockerd-%d-%s", os.Getpid(), filepath.Base(dir))
	t.Cleanup(func() { removeCgroups(t, group) })
	if o.Filter {
		t.Cleanup(func() { removeFilters(t) })
	}
	if o.Storage == "" {
		o.Storage = "vfs"
	}
	socket := filepath.Join(dir, "docker.sock")
	args := []string{
		"--host=unix://" + socket, "--data-root=" + o.Data, "--exec-root=" + filepath.Join(dir, "exec"), "--pidfile=" + filepath.Join(dir, "pid"),
		"--storage-driver=" + o.Storage, fmt.Sprint("--iptables=", o.Filter), fmt.Sprint("--ip6tables=", o.Filter), fmt.Sprint("--experimental=", o.Filter), "--cgroup-parent=/" + group, "--bip=10.211.0.1/16", "--shutdown-timeout=1",
	}
	if o.TCP != "" {
		file := func(name string) string { return filepath.Join(o.Certificates, name) }
		args = append(args, "--host=tcp://"+o.TCP, "--tlsverify", "--tlscacert="+file("ca.pem"), "--tlscert="+file("server.pem"), "--tlskey="+file("server-key.pem"))
	}
	d := &Daemon{process: stand.Start(t, stand.Daemon{Path: program, Log: filepath.Join(dir, "dockerd.log"), Socket: socket, Args: args})}
	c, err := client.New(client.WithHost("unix://" + socket))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	d.Engine = &Engine{Host: "unix://" + socket, Client: c}
	return d
}

// removeFilters takes away what an engine leaves in the network namespace when it ends:
// it drops what is forwarded, also between containers of one bridge, such as the neighbour
// discovery of IPv6.
func removeFilters(t testing.TB) {
	t.Helper()
	for _, program := range []string{"iptables", "ip6tables"} {
		for _, args := range []string{"-P FORWARD ACCEPT", "-F", "-t nat -F"} {
			if out, err := exec.Command(program, strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", program, args, err, out)
			}
		}
	}
}

// Stop ends the engine as its host's shutdown does, and with it containers.
func (d *Daemon) Stop() { d.process.Stop(syscall.SIGTERM) }

// Again starts an engine that was stopped.
func (d *Daemon) Again(t testing.TB) {
	t.Helper()
	d.process.Again(t)
}

// Restart kills the engine without a warning and starts it again.
func (d *Daemon) Restart(t testing.TB) {
	t.Helper()
	d.process.Restart(t)
}

// Import makes an image of files, as [Archive] takes them.
func (e *Engine) Import(t testing.TB, name string, files map[string]string, changes ...string) {
	t.Helper()
	answer, err := e.Client.ImageImport(t.Context(), client.ImageImportSource{Source: bytes.NewReader(Archive(t, files)), SourceName: "-"}, name, client.ImageImportOptions{Changes: changes})
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	if _, err := io.Copy(io.Discard, answer); err != nil {
		t.Fatal(err)
	}
}

// Archive packs files: their names in it, and where they come from. A link's source begins
// with "->".
func Archive(t testing.TB, files map[string]string) []byte {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	known := map[string]bool{".": true, "/": true}
	for inside, source := range files {
		err := addFolders(w, path.Dir(strings.TrimPrefix(inside, "/")), known)
		if err == nil {
			err = addFile(w, strings.TrimPrefix(inside, "/"), source)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return archive.Bytes()
}

// addFolders adds a folder and those that it is in: an engine gives those that
// it makes up to nobody but itself.
func addFolders(w *tar.Writer, dir string, known map[string]bool) error {
	if known[dir] {
		return nil
	}
	known[dir] = true
	if err := addFolders(w, path.Dir(dir), known); err != nil {
		return err
	}
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
}

func addFile(w *tar.Writer, inside, source string) error {
	if len(source) > 2 && source[:2] == "->" {
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: inside, Linkname: source[2:], Mode: 0o777})
	}
	data, err := os.ReadFile(source)
	if err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: inside, Mode: 0o755, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err = w.Write(data)
	return err
}
