// SPDX-License-Identifier: Apache-2.0

//go:build integration

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// TestRehearsal: an agent runs a container of its own once and leaves nothing, also where that fails.
func TestRehearsal(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		ok   bool
	}{"works": {nil, true}, "no runtime": {[]string{"-runc", "/bin/false"}, false}} {
		t.Run(name, func(t *testing.T) {
			p := unstartedAgent(t)
			p.args = append(append(p.args, "-rehearse"), c.args...)
			p.launch()
			if err := p.cmd.Wait(); (err == nil) != c.ok {
				t.Errorf("it ended with %v", err)
			}
			state := filepath.Join(filepath.Dir(p.root), "state")
			for _, dir := range []string{p.root, state} {
				if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
					t.Errorf("%s has %v, %v", dir, left, err)
				}
			}
		})
	}
}
