// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// configured writes a configuration file that counts for the test.
func configured(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OUTRIGGER_CONFIG", path)
	return path
}

// row returns a row of `config` without its padding.
func row(text, key string) string {
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == key {
			return strings.Join(fields[1:], " ")
		}
	}
	return ""
}

// TestPrecedenceOfSettings: flag, environment, file, default.
func TestPrecedenceOfSettings(t *testing.T) {
	path := configured(t, "# mine\nprovider: docker\nroot: /file\nmemory: 1GiB\ndns:\n- 192.0.2.1\n- 192.0.2.2\nadaptor-arg: [-password=s3cret, -token, s3cret, -v]\nstop-timeout: 3\n", 0o600)
	t.Setenv("CLOUD_PROVIDER", "aws")
	out, errs := &buffer{}, &buffer{}
	if code := (&App{Stdout: out, Stderr: errs}).Run([]string{"--root", "/flag", "config"}); code != 0 {
		t.Fatal(errs)
	}
	for key, want := range map[string]string{
		"root": "/flag flag", "provider": "aws environment, CLOUD_PROVIDER", "memory": "1GiB " + path + ":4", "dns": "192.0.2.1 192.0.2.2 " + path + ":6",
		"stop-timeout": "3 " + path + ":9", "adaptor-arg": "-password -token … -v " + path + ":8", "network": "default default", "platform": "- default",
	} {
		if got := row(out.String(), key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	if strings.Contains(out.String(), "s3cret") {
		t.Errorf("a secret is shown:\n%s", out)
	}
	os.Unsetenv("CLOUD_PROVIDER")
	out = &buffer{}
	(&App{Stdout: out, Stderr: errs}).Run([]string{"config", "-o", "json"})
	for _, want := range []string{`"value": "/file"`, `"value": "docker"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// TestSettingsReachPods: those of the file, unless a flag says otherwise; a manifest's limits are its own.
func TestSettingsReachPods(t *testing.T) {
	s := newStand(t)
	path := configured(t, "memory: 64MiB\ndns: 192.0.2.53\n", 0o644)
	s.detached("p1", "sleep 1000")
	s.detached("p2", "sleep 1000", "--memory", "128MiB")
	memory := map[string]string{}
	for _, a := range s.node.Agents() {
		memory[a.VM().Annotations["io.kubernetes.cri.sandbox-name"]] = a.VM().Annotations["io.katacontainers.config.hypervisor.default_memory"]
	}
	if memory["p1"] != "320" || memory["p2"] != "384" {
		t.Errorf("memory %v", memory)
	}
	pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p3}\nspec:\n  containers:\n  - {name: c, image: '" + s.image + "', args: [-c, sleep 1000], resources: {limits: {memory: 512Mi}}}\n"
	if code, _, stderr := s.runIn(pod, "play", "-q", "-d", "-"); code != 0 {
		t.Fatal(stderr)
	}
	for _, a := range s.node.Agents() {
		if dns := a.Sandbox().Dns; len(dns) != 1 || dns[0] != "nameserver 192.0.2.53" {
			t.Errorf("DNS of a manifest or run: %v", dns)
		}
		if vm := a.VM().Annotations; vm["io.kubernetes.cri.sandbox-name"] == "p3" && vm["io.katacontainers.config.hypervisor.default_memory"] != "768" {
			t.Errorf("of a manifest: %v", vm)
		}
	}
	if err := os.WriteFile(path, []byte("\nmemory: much\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := s.run(s.sh("true")...); code != 125 || !strings.Contains(stderr, path+`:2: memory: "much": want a number`) {
		t.Errorf("code %d: %s", code, stderr)
	}
}

func TestWrongConfigurationIsAnError(t *testing.T) {
	for _, test := range []struct {
		text, want string
		mode       os.FileMode
	}{
		{"provider: qemu\nmemroy: 1GiB\n", `:2: unknown key "memroy"; there are root, `, 0o600},
		{"env: A=1\n", `:1: unknown key "env"`, 0o600},
		{"memory: 1GiB\nmemory: 2GiB\n", `mapping key "memory" already defined at line 1`, 0o600},
		{"memory: {a: b}\n", ":1: memory: want a value", 0o600},
		{"memory:\n", ":1: memory: want a value", 0o600},
		{"memory: [1GiB, 2GiB]\n", ":1: memory: want one value", 0o600},
		{"timeline: perhaps\n", ":1: timeline: ", 0o600},
		{"boot-timeout: soon\n", ":1: boot-timeout: ", 0o600},
		{"- memory\n", "line 1: cannot unmarshal", 0o600},
		{"memory: 1GiB\ndns: b: c\n", "line 2", 0o600},
		{"adaptor-arg: [-x=y]\n", "chmod 600", 0o644},
	} {
		path := configured(t, test.text, test.mode)
		errs := &buffer{}
		code := (&App{Stdout: &buffer{}, Stderr: errs}).Run([]string{"config"})
		if code != 125 || !strings.Contains(errs.String(), test.want) || !strings.Contains(errs.String(), path) {
			t.Errorf("%q: code %d, %s; want %q", test.text, code, errs, test.want)
		}
	}
	t.Setenv("OUTRIGGER_CONFIG", "/nonexistent/config.yaml")
	errs := &buffer{}
	if code := (&App{Stdout: &buffer{}, Stderr: errs}).Run([]string{"ps"}); code != 125 || !strings.Contains(errs.String(), "/nonexistent/config.yaml") {
		t.Errorf("a file that is named and is not there: %d, %s", code, errs)
	}
	t.Setenv("OUTRIGGER_CONFIG", "")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if code := (&App{Stdout: &buffer{}, Stderr: errs}).Run([]string{"config"}); code != 0 {
		t.Errorf("without a file: %s", errs)
	}
}
