// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"context"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/test/stand"
)

// TestAdaptorKilledUnderAPod kills the adaptor with SIGKILL, twice, while a
// container counts to its stdout and an exec is open.
func TestAdaptorKilledUnderAPod(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, "counter")
	counter, stdout, _ := p.container(t, "counter", "sh", "-c", "trap 'exit 0' TERM; i=0; while :; do echo $i; i=$((i+1)); usleep 20000; done")
	exec, err := counter.Exec(t.Context(), podclient.ExecSpec{Args: []string{"cat"}, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	stdin, keyboard := io.Pipe()
	echoed := newOutput()
	exec.Stream(podclient.IO{Stdin: stdin, Stdout: echoed})

	for round := range 2 {
		fmt.Fprintf(keyboard, "before kill %d\n", round)
		echoed.wait(t, fmt.Sprintf("before kill %d\n", round))
		stdout.wait(t, fmt.Sprintf("\n%d\n", 50*(round+1)))
		n.adaptor.Stop(syscall.SIGKILL)
		seen := strings.Count(stdout.String(), "\n")
		fmt.Fprintf(keyboard, "while dead %d\n", round)
		echoed.wait(t, fmt.Sprintf("while dead %d\n", round))
		stdout.wait(t, fmt.Sprintf("\n%d\n", seen+30))
		n.adaptor = n.adaptor.Restart(t)
	}

	sandboxes, err := n.client.Sandboxes(t.Context())
	if err != nil || len(sandboxes) != 1 || sandboxes[0].State != "ready" || sandboxes[0].Clients == 0 {
		t.Errorf("after the restart: %v, %v", sandboxes, err)
	}
	if out := mustRun(t, counter, "echo", "a new exec"); out != "a new exec\n" {
		t.Errorf("a new exec printed %q", out)
	}
	keyboard.Close()
	if code, err := exec.Wait(t.Context()); err != nil || code != 0 {
		t.Errorf("the open exec: exit code %d, %v", code, err)
	}
	if code, err := counter.Stop(t.Context(), time.Minute); err != nil || code != 0 {
		t.Errorf("the counter: exit code %d, %v", code, err)
	}
	checkCount(t, stdout.String())
	p.stop(t)
	n.wantNothingLeft(t)
}

// checkCount wants every number once and in order.
func checkCount(t *testing.T, text string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		if line != fmt.Sprint(i) {
			t.Fatalf("line %d is %q: lines were lost or doubled", i, line)
		}
	}
	t.Logf("%d lines, none lost, none doubled", len(lines))
}

// TestAdaptorKilledWhileVMBoots leaves a partly created sandbox: the shim
// notices the lost connection, and the restarted adaptor undoes all of it.
func TestAdaptorKilledWhileVMBoots(t *testing.T) {
	n := newNode(t)
	failed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
		defer cancel()
		_, err := n.client.Create(ctx, podclient.PodSpec{Name: "halfway", Namespace: "e2e"})
		failed <- err
	}()
	eventually(t, func() error {
		if len(stand.QEMUs(n.dir)) == 0 {
			return fmt.Errorf("QEMU has not started")
		}
		return nil
	})
	n.adaptor.Stop(syscall.SIGKILL)
	if err := <-failed; err == nil {
		t.Error("StartVM succeeded though the adaptor was killed")
	}
	n.adaptor = n.adaptor.Restart(t)
	n.wantNothingLeft(t)
	sandboxes, err := n.client.Sandboxes(t.Context())
	if err != nil || len(sandboxes) != 0 {
		t.Errorf("after the restart: %v, %v", sandboxes, err)
	}
	if err := n.client.StopVM(t.Context(), "unknown"); err != nil {
		t.Errorf("StopVM of an unknown sandbox: %v", err)
	}
}
