// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/test/cluster"
)

// database says what it finds, and then writes without end: each line that it prints is of a row that is
// committed, and on the disk (SQLite, "PRAGMA synchronous": FULL).
const database = openDatabase + `
echo started
yes "` + commit + `" | sqlite3 -cmd 'pragma synchronous=full' /data/db`

const (
	openDatabase = `sqlite3 /data/db 'pragma journal_mode=wal; create table if not exists t(i integer primary key, x text)' >/dev/null
echo "found $(sqlite3 /data/db "select count(*)||' '||ifnull(max(i),0)||' '||(select group_concat(integrity_check) from pragma_integrity_check) from t")"`
	commit = "insert into t(x) values(hex(randomblob(1000))); select 'committed '||last_insert_rowid();"
)

// databaseKilled: a database on a volume keeps every commit that it has acknowledged, whatever is killed by
// SIGKILL while it writes: adaptor, controller, CSI driver, kubelet, relay, and at last its VM. The first four
// do not disturb it.
func databaseKilled(t *testing.T, s *suite) {
	if s.own == nil {
		t.Skip("it kills processes of the nodes: only in a cluster of the suite's own")
	}
	class := s.needVolumes(t)
	image := push(t, s.images.busybox[:strings.LastIndex(s.images.busybox, "/")]+"/sqlite:1", sqlite(t))
	start := func(name string, more ...any) {
		s.start(t, s.pod(name, database).withClaims("data").image(image), more...)
		s.awaitLine(t, name, "started")
	}
	start("writer", claim("data", class, "1Gi"))
	for _, who := range []struct {
		name string
		kill func()
	}{
		{"adaptor", func() { s.killDaemon(t, "cloud-api-adaptor") }},
		{"controller", func() { s.killDaemon(t, "peerpod-ctrl") }},
		{"CSI driver", func() { s.own.driver.KillController(t); s.own.driver.Node.Restart(t) }},
		{"kubelet", func() { s.own.node.Kubelet.Restart(t) }},
	} {
		before := s.committed(t, "writer")
		who.kill()
		s.writesOn(t, "writer", before, who.name)
	}
	id := s.instanceOf(t, "writer")
	s.killDaemon(t, "agent-relay")
	s.killVM(t, id)
	s.keptAll(t, "writer", "second", start)
	s.killVM(t, s.instanceOf(t, "second"))
	s.keptAll(t, "second", "third", start)
	s.delete(t, "third")
	s.deleteClaims(t, "data")
}

// databaseMoves: a database on an encrypted volume moves from a pod in a VM to an ordinary pod, on a node that is an instance of the provider, and back.
func databaseMoves(t *testing.T, s *suite) {
	if s.own == nil || *providerName != "qemu" {
		t.Skip("it makes a node of a VM of provider qemu, in a cluster of the suite's own")
	}
	class := s.needVolumes(t, encryptedBySecret)
	sqlite := sqlite(t)
	ref := push(t, s.images.busybox[:strings.LastIndex(s.images.busybox, "/")]+"/sqlite:1", sqlite)
	s.startVMNode(t, "vmnode", cluster.Image{Ref: ref, Image: sqlite})
	inVM := func(name string, more ...any) {
		s.start(t, s.pod(name, database).withClaims("data").image(ref), more...)
		s.awaitLine(t, name, "started")
	}
	inVM("writer", keyOf("data", "a key"), claim("data", class, "1Gi"))
	s.writesOn(t, "writer", 0, "nothing")
	before := s.committed(t, "writer")
	s.delete(t, "writer")
	// What it says is its termination message: nobody reaches a VM's kubelet.
	ordinary := s.pod("ordinary", "{ "+openDatabase+"\nyes \""+commit+"\" | head -n 500 | sqlite3 -cmd 'pragma synchronous=full' /data/db | tail -n 1; } >/dev/termination-log").
		withClaims("data").image(ref).with("hostNetwork: true\nnodeName: vmnode\ntolerations: [{operator: Exists}]")
	delete(ordinary.spec, "runtimeClassName")
	s.create(t, ordinary)
	s.ended(t, "ordinary")
	said := s.jsonpath(t, "pod/ordinary", "{.status.containerStatuses[0].state.terminated.message}")
	last := wantFound(t, "ordinary", said, before)
	want(t, "the ordinary pod", said, fmt.Sprint("committed ", last+500))
	s.delete(t, "ordinary")
	inVM("again")
	wantFound(t, "again", s.logs(t, "again"), last+500)
	s.delete(t, "again")
	s.deleteClaims(t, "data")
}

// keptAll removes a pod whose VM was killed, and has the next one find what it committed.
func (s *suite) keptAll(t *testing.T, pod, next string, start func(string, ...any)) {
	t.Helper()
	s.ended(t, pod)
	acknowledged := s.committed(t, pod)
	s.delete(t, pod)
	start(next)
	last := wantFound(t, next, s.logs(t, next), acknowledged)
	s.writesOn(t, next, last, "the VM of pod "+pod)
}

// wantFound looks for each commit that was acknowledged in what a pod says that it found, and returns the last that there is.
func wantFound(t *testing.T, pod, said string, acknowledged int) (last int) {
	t.Helper()
	var rows int
	var integrity string
	_, said, _ = strings.Cut(said, "found ")
	if _, err := fmt.Sscanf(said, "%d %d %s", &rows, &last, &integrity); err != nil {
		t.Fatalf("%v: %s", err, clip(said))
	}
	t.Logf("%d commits were acknowledged, and %s found %d rows", acknowledged, pod, rows)
	if acknowledged == 0 || last < acknowledged || rows != last || integrity != "ok" {
		t.Errorf("%d rows, the last %d, of %d that were acknowledged; integrity %s", rows, last, acknowledged, integrity)
	}
	return last
}

// committed returns the last commit that a pod has acknowledged.
func (s *suite) committed(t *testing.T, pod string) int {
	t.Helper()
	lines := strings.Split(s.logs(t, pod, "--tail=2"), "\n")
	for _, line := range slices.Backward(lines) {
		if text, ok := strings.CutPrefix(line, "committed "); ok {
			if n, err := strconv.Atoi(text); err == nil {
				return n
			}
		}
	}
	return 0
}

// writesOn waits until a pod has committed more, of which it began all after something was killed.
func (s *suite) writesOn(t *testing.T, pod string, before int, killed string) {
	t.Helper()
	const more = 100
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		out, err := s.TryKubectl(s.in([]string{"logs", pod, "--tail=1"})...) // kubelet may be away
		if n, bad := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(out), "committed "))); err == nil && bad == nil && n > before+more {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("after %s was killed pod %s does not write: %s %v", killed, pod, out, err)
		}
	}
}

// killDaemon kills a program in a pod of the node.
func (s *suite) killDaemon(t *testing.T, program string) {
	t.Helper()
	kill(t, s.daemonPID(t, program))
}

// daemonPID returns the process of a program in a pod of the node.
func (s *suite) daemonPID(t *testing.T, program string) string {
	t.Helper()
	for _, line := range strings.Split(s.own.node.Ctr(t, "tasks", "ls"), "\n")[1:] {
		pid := strings.Fields(line)[1]
		if exe, err := os.Readlink("/proc/" + pid + "/exe"); err == nil && filepath.Base(exe) == program {
			return pid
		}
	}
	t.Fatalf("%s does not run on the node", program)
	return ""
}

// killVM kills the QEMU of an instance, whose folder is on its command line.
func (s *suite) killVM(t *testing.T, id string) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil && bytes.Contains(text, []byte("qemu-system")) && bytes.Contains(text, []byte(id)) {
			kill(t, strings.Split(file, "/")[2])
			return
		}
	}
	t.Fatalf("no QEMU of instance %s runs", id)
}

func kill(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(pid)
	if err == nil {
		err = syscall.Kill(n, syscall.SIGKILL)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// sqlite is busybox with Debian's SQLite and its libraries, which `make setup` unpacks.
func sqlite(t *testing.T) v1.Image {
	t.Helper()
	home, _ := os.UserHomeDir()
	folder := filepath.Join(cmp.Or(os.Getenv("OUTRIGGER_CACHE"), filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")), "outrigger")), "sqlite")
	if _, err := os.Stat(filepath.Join(folder, "usr/bin/sqlite3")); err != nil {
		t.Fatalf("Debian's sqlite3 is not there: run `make setup`: %v", err)
	}
	var layer bytes.Buffer
	w := tar.NewWriter(&layer)
	add := func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "/sqlite3") && !strings.Contains(path, ".so") || strings.Contains(path, "gconv") {
			return err
		}
		data, err := os.ReadFile(path) // what a link names
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(path, folder+"/")
		err = w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))})
		_, writeErr := w.Write(data)
		return cmp.Or(err, writeErr)
	}
	if err := cmp.Or(filepath.WalkDir(folder, add), w.Close()); err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(cluster.Busybox(t), static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	return image
}
