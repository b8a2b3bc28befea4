// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/plugin"
)

// program builds the template as an author does, once.
var program = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "template")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "template")
	build := exec.Command("go", "build", "-o", file, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return output, err
	}
	return os.ReadFile(file)
})

func buildProgram(t *testing.T) string {
	t.Helper()
	data, err := program()
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	file := filepath.Join(t.TempDir(), "template")
	if err := os.WriteFile(file, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// load returns the template from wherever the variables say.
func load(t *testing.T, env map[string]string) *plugin.Loaded {
	t.Helper()
	var log bytes.Buffer
	loaded, err := plugin.Load(t.Context(), plugin.Options{
		Name:   "template",
		Getenv: func(name string) string { return env[name] },
		Log:    slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	t.Cleanup(func() {
		if err := loaded.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return loaded
}

// external are the variables of the hash scheme.
func external(path, hash string) map[string]string {
	return map[string]string{
		"ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN": "true",
		"CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH":   path,
		"CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH":   hash,
	}
}

// conform runs the suite over a carrier, on a folder for each check.
func conform(t *testing.T, carrier plugin.Carrier, loaded *plugin.Loaded) {
	if loaded.Carrier != carrier {
		t.Fatalf("the carrier is %s, not %s", loaded.Carrier, carrier)
	}
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		dir := t.TempDir()
		return subject(dir, func() provider.Provider {
			manager := loaded.Cloud.(config.Configurable).Fresh()
			manager.Set(config.Values{"template-dir": dir})
			p, err := manager.NewProvider()
			if err != nil {
				t.Fatal(err)
			}
			return p
		})
	})
}

func TestConformanceAsProcessPlugin(t *testing.T) {
	file := buildProgram(t)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	conform(t, plugin.Process, load(t, external(file, hex.EncodeToString(sum[:]))))
}

func TestConformanceFromFolder(t *testing.T) {
	folder := filepath.Dir(buildProgram(t))
	conform(t, plugin.Process, load(t, map[string]string{"CLOUD_PROVIDER_PLUGIN_PATH": folder}))
}

// TestConformanceOverSocket: who starts the server configures it, so one
// folder serves all checks, and what is left counts at the end.
func TestConformanceOverSocket(t *testing.T) {
	dir, socket := t.TempDir(), filepath.Join(t.TempDir(), "s")
	startServer(t, socket, dir)
	loaded := load(t, external("unix://"+socket, ""))
	if loaded.Carrier != plugin.Socket {
		t.Fatalf("the carrier is %s", loaded.Carrier)
	}
	conformance.Run(t, func(t *testing.T) conformance.Subject {
		return subject(dir, func() provider.Provider {
			p, err := loaded.Cloud.NewProvider()
			if err != nil {
				t.Fatal(err)
			}
			return p
		})
	})
}

func startServer(t *testing.T, socket, dir string) {
	t.Helper()
	var log bytes.Buffer
	server := exec.CommandContext(context.WithoutCancel(t.Context()), buildProgram(t), "--listen", "unix://"+socket, "-template-dir", dir)
	server.Stdout, server.Stderr = &log, &log
	server.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil || t.Failed() {
			t.Errorf("the server ended: %v\n%s", err, log.String())
		}
	})
	for end := time.Now().Add(time.Minute); ; {
		if _, err := os.Stat(socket); err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no socket after 10 s")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
