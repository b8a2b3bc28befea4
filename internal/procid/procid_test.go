// SPDX-License-Identifier: Apache-2.0

package procid

import (
	"os/exec"
	"testing"
)

func TestAProcessIsNotMistakenForAnother(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	p, err := Of(cmd.Process.Pid)
	if err != nil || !p.Alive() {
		t.Fatalf("%+v, %v", p, err)
	}
	for name, other := range map[string]ID{
		"recycled":     {PID: p.PID, Start: p.Start + 1, Boot: p.Boot},
		"another boot": {PID: p.PID, Start: p.Start, Boot: "x"},
		"none":         {},
	} {
		if other.Alive() {
			t.Errorf("%s: counts as alive", name)
		}
		if err := other.Kill(t.Context()); err != nil || !p.Alive() {
			t.Errorf("%s: killing it hit the process (%v)", name, err)
		}
	}
	if err := p.Kill(t.Context()); err != nil || p.Alive() {
		t.Errorf("kill: %v, alive %t", err, p.Alive())
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Errorf("kill of the dead: %v", err)
	}
}
