// SPDX-License-Identifier: Apache-2.0

package hold_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
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
	hold.Wait()
	fmt.Println("let go", os.Getenv("OUTRIGGER_HELD"))
}

func TestWait(t *testing.T) {
	program, err := hold.New()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVar+"=1", hold.Env())
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
	if err := program.Await(); err != nil {
		t.Fatal(err)
	}
	second := make(chan string, 1)
	go func() {
		out.Scan()
		second <- out.Text()
	}()
	select {
	case line := <-second:
		t.Errorf("it said %q while it was held", line)
	default:
	}
	program.LetGo()
	program.LetGo()
	if line := <-second; line != "let go " { // and its children are not held
		t.Errorf("second line %q", line)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}
