// SPDX-License-Identifier: Apache-2.0

package hold_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/internal/guest/hold"
)

// childVar makes the test binary a program that is held.
const childVar = "HOLD_TEST_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) == "" {
		os.Exit(m.Run())
	}
	fmt.Println("started")
	hold.Wait(func() { fmt.Println("prepared") })
	_, err := os.Stat(os.Getenv(childVar))
	fmt.Println("let go, in time:", err == nil, os.Getenv("OUTRIGGER_HELD"))
}

func TestWait(t *testing.T) {
	program, err := hold.New()
	if err != nil {
		t.Fatal(err)
	}
	sign := filepath.Join(t.TempDir(), "sign") // is there when the program may go on
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVar+"="+sign, hold.Env())
	cmd.ExtraFiles = []*os.File{program.Child}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program.Child.Close()
	out := bufio.NewScanner(stdout)
	if !out.Scan() || out.Text() != "started" {
		t.Fatalf("first line %q, %v", out.Text(), out.Err())
	}
	if !out.Scan() || out.Text() != "prepared" {
		t.Fatalf("second line %q, %v", out.Text(), out.Err())
	}
	if err := program.Await(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	program.LetGo()
	program.LetGo()
	if !out.Scan() || out.Text() != "let go, in time: true " { // and its children are not held
		t.Errorf("third line %q, %v", out.Text(), out.Err())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
