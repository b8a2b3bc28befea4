// SPDX-License-Identifier: Apache-2.0

//go:build integration

package qemu

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/tier"
)

// withTemplates has folders of its own for what it saves.
func withTemplates(t *testing.T) Config {
	return testConfig(t, func(c *Config) { c.TemplateDir = filepath.Join(t.TempDir(), "templates") })
}

func restoredFrom(t *testing.T, p *Provider, i *provider.Instance) string {
	t.Helper()
	r, err := p.store.instances().load(i.ID)
	if err != nil || r == nil {
		t.Fatal(r, err)
	}
	return r.Template
}

func entriesOf(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var bootIDLine = regexp.MustCompile(`boot id ([0-9a-f-]{36})`)

// TestRestoredVMs makes four at once where none was saved. They draw their boot
// ids as the first thing after they have got their seed. (Emulated ones mostly differ without
// a seed too, by when their interrupts come.)
func TestRestoredVMs(t *testing.T) {
	cfg := withTemplates(t)
	p := open(t, cfg)
	var vms [4]*provider.Instance
	var wg sync.WaitGroup
	for n := range vms {
		wg.Go(func() { vms[n] = create(t, p, []string{"a", "b", "c", "d"}[n]) })
	}
	wg.Wait()
	ids := map[string]bool{}
	for _, vm := range vms {
		if vm == nil {
			t.FailNow()
		}
		awaitTCP(t, p, vm) // by its own MAC address: the bridge knows no other for it
		awaitConsole(t, p, vm, "serving the agent protocol")
		if from := restoredFrom(t, p, vm); from == "" || from != restoredFrom(t, p, vms[0]) {
			t.Errorf("%s was restored from %q", vm.ID, from)
		}
		console, err := p.Console(t.Context(), vm.ID, 1<<16)
		if err != nil {
			t.Fatal(err)
		}
		id := bootIDLine.FindSubmatch(console)
		if id == nil {
			t.Fatalf("the console has no boot id:\n%s", console)
		}
		ids[string(id[1])] = true
	}
	if len(ids) != len(vms) {
		t.Errorf("%d VMs have %d boot ids: their random numbers are the same", len(vms), len(ids))
	}
	templates := entriesOf(t, cfg.TemplateDir)
	if len(templates) != 1 {
		t.Fatalf("templates %v, want one", templates)
	}
	// No seed, and nothing else of an instance.
	if got, want := entriesOf(t, filepath.Join(cfg.TemplateDir, templates[0])), []string{consoleName, memoryName, stateName}; !slices.Equal(got, want) {
		t.Errorf("a template has %v, want %v", got, want)
	}
	checkMode(t, filepath.Join(cfg.TemplateDir, templates[0]), 0o700)
	for _, name := range []string{consoleName, memoryName, stateName} {
		checkMode(t, filepath.Join(cfg.TemplateDir, templates[0], name), 0o600)
	}

	// Power that comes back boots: the seed's random bytes were used.
	if err := p.PowerOff(t.Context(), vms[0].ID); err != nil {
		t.Fatal(err)
	}
	if err := p.PowerOn(t.Context(), vms[0].ID); err != nil {
		t.Fatal(err)
	}
	if from := restoredFrom(t, p, vms[0]); from != "" {
		t.Errorf("restored again from %s", from)
	}
	awaitTCP(t, p, vms[0])
}

// TestTemplateThatCannotBeRestored: the pod gets its VM anyway, and the next one a good template.
func TestTemplateThatCannotBeRestored(t *testing.T) {
	cfg := withTemplates(t)
	p := open(t, cfg)
	for name, left := range map[string]int64{stateName: 4096, memoryName: 0, consoleName: -1} {
		t.Run(name, func(t *testing.T) {
			if name != stateName { // each boots a template and a VM
				tier.OnlyAll(t)
			}
			dir := restoredFrom(t, p, create(t, p, name+"-good"))
			if dir == "" {
				t.Fatal("no template was made after one was broken")
			}
			file := filepath.Join(dir, name)
			err := os.Remove(file)
			if left >= 0 {
				err = errors.Join(err, os.WriteFile(file, make([]byte, left), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			vm := create(t, p, name+"-bad")
			if from := restoredFrom(t, p, vm); from != "" {
				t.Errorf("restored from %s, which is half a template", from)
			}
			if _, err := os.Stat(dir); err == nil {
				t.Error("the broken template is still there")
			}
			awaitTCP(t, p, vm)
		})
	}
}

// TestTemplateMakerKilled: QEMU ends with whoever makes a template, and the next one makes it.
func TestTemplateMakerKilled(t *testing.T) {
	cfg := withTemplates(t)
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), victimVar+"="+string(text))
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "a template's VM", func() bool {
		consoles, _ := filepath.Glob(filepath.Join(cfg.TemplateDir, newPrefix+"*", consoleName))
		return len(consoles) == 1 && countQEMU(t) == 1
	})
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	await(t, "the end of its VM", func() bool { return countQEMU(t) == 0 })
	p := open(t, cfg)
	if from := restoredFrom(t, p, create(t, p, "a")); from == "" {
		t.Error("no template was made after one was partly created")
	}
	if left := entriesOf(t, cfg.TemplateDir); len(left) != 1 {
		t.Errorf("%v, want one template and nothing else", left)
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(bootWait); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v", what, bootWait)
		}
	}
}
