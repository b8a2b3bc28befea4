// SPDX-License-Identifier: Apache-2.0

package fake_test

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
)

// role makes the test binary a second process that uses the cloud.
const role = "FAKE_TEST_ROLE"

func TestMain(m *testing.M) {
	if os.Getenv(role) != "" {
		os.Exit(second(os.Getenv(role), os.Getenv("FAKE_TEST_DIR")))
	}
	os.Exit(m.Run())
}

func second(role, dir string) int {
	options := fake.Options{Dir: dir}
	if role == "hang in boot" {
		options.Boot = func(context.Context, fake.BootRequest) ([]netip.Addr, error) {
			fmt.Println("booting")
			select {}
		}
	}
	cloud, err := fake.New(options)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for i := range 20 {
		instance, err := create(context.Background(), cloud, fmt.Sprintf("k%d", i))
		if err != nil {
			fmt.Println(err)
			return 1
		}
		fmt.Println(instance.ID)
	}
	return 0
}

func startSecond(t *testing.T, as, dir string) (*exec.Cmd, *bufio.Reader) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), role+"="+as, "FAKE_TEST_DIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, bufio.NewReader(out)
}

// TestKilledProcess: a process killed in the middle of a creation leaves an
// instance in state pending and no lock, and the next process finishes it.
func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	cmd, out := startSecond(t, "hang in boot", dir)
	if line, err := out.ReadString('\n'); err != nil || line != "booting\n" {
		t.Fatalf("second process says %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()

	cloud := newCloud(t, fake.Options{Dir: dir})
	list, err := cloud.ListInstances(t.Context(), owner)
	if err != nil || len(list) != 1 || list[0].State != provider.StatePending || list[0].Key != "k0" {
		t.Fatalf("list %+v, %v", list, err)
	}
	finished := mustCreate(t, cloud, "k0")
	if finished.ID != list[0].ID || finished.State != provider.StateRunning {
		t.Errorf("finished %+v", finished)
	}
	if got, err := cloud.UserData(finished.ID); err != nil || got != string(userData) {
		t.Errorf("user-data %q, %v", got, err)
	}
	if err := cloud.DeleteInstance(t.Context(), finished.ID); err != nil {
		t.Fatal(err)
	}
	checkLeaks(t, cloud)
}

// TestManyProcesses: four processes make the same 20 instances at once.
func TestManyProcesses(t *testing.T) {
	dir := t.TempDir()
	var outputs []string
	var wg sync.WaitGroup
	var mu sync.Mutex
	for range 4 {
		cmd, out := startSecond(t, "create", dir)
		wg.Go(func() {
			var text strings.Builder
			if _, err := out.WriteTo(&text); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v: %s", err, text.String())
			}
			mu.Lock()
			defer mu.Unlock()
			outputs = append(outputs, text.String())
		})
	}
	wg.Wait()
	for _, output := range outputs[1:] {
		if diff := cmp.Diff(outputs[0], output); diff != "" {
			t.Errorf("two processes got different instances:\n%s", diff)
		}
	}
	list, err := newCloud(t, fake.Options{Dir: dir}).ListInstances(t.Context(), owner)
	if err != nil || len(list) != 20 {
		t.Errorf("%d instances, %v", len(list), err)
	}
}

func TestFolderModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	mustCreate(t, newCloud(t, fake.Options{Dir: dir}), "k")
	for _, name := range []string{"state.json", "state.lock", "keys.lock"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

func TestFolderIsBad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fake.New(fake.Options{Dir: file}); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("a file as folder: %v", err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "state.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := fake.New(fake.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "is damaged, remove it") {
		t.Errorf("a damaged state: %v", err)
	}
}
