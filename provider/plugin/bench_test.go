// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/provider/plugin/wire"
	"github.com/outrigger/outrigger/test/testplugin"
)

// benchLoad loads and opens the test's provider.
func benchLoad(b *testing.B, env map[string]string) (*plugin.Loaded, provider.Provider) {
	b.Helper()
	env["BAD_TOKEN"] = "t"
	loaded, err := plugin.Load(b.Context(), plugin.Options{
		Name: testplugin.Name, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		Getenv: func(key string) string { return env[key] },
	})
	if err != nil {
		b.Fatal(err)
	}
	loaded.Cloud.ParseCmd(flag.NewFlagSet("", flag.ContinueOnError))
	loaded.Cloud.LoadEnv()
	p, err := loaded.Cloud.NewProvider()
	if err != nil {
		b.Fatal(err)
	}
	return loaded, p
}

func processEnv(b *testing.B) map[string]string {
	b.Helper()
	return verified(b, testplugin.Install(b, testplugin.Name, testplugin.Good))
}

func benchSocket(b *testing.B) map[string]string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "p.sock")
	listener, err := net.Listen("unix", path)
	if err == nil {
		err = os.Chmod(path, 0o600)
	}
	if err != nil {
		b.Fatal(err)
	}
	server := grpc.NewServer(wire.ServerOptions()...)
	half := wire.NewServer(wire.Options{Name: testplugin.Name, Version: "1", Cloud: config.New(testplugin.Name, testplugin.Open)})
	half.Register(server)
	go server.Serve(listener)
	b.Cleanup(func() {
		server.Stop()
		half.Close()
	})
	return socketEnv(path)
}

func BenchmarkProcessCall(b *testing.B) { benchCall(b, processEnv(b)) }
func BenchmarkSocketCall(b *testing.B)  { benchCall(b, benchSocket(b)) }

// benchCall measures a call over a carrier and, in the same run, the same call
// in process, which is also what a Go plugin costs: it is called by function
// pointers like everything else in the process.
func benchCall(b *testing.B, env map[string]string) {
	direct, err := testplugin.Open(testplugin.Config{Size: 1})
	if err != nil {
		b.Fatal(err)
	}
	loaded, p := benchLoad(b, env)
	defer loaded.Close()
	call(b, p) // connects
	var carried, inProcess []time.Duration
	for b.Loop() {
		carried = append(carried, call(b, p))
		inProcess = append(inProcess, call(b, direct))
	}
	b.ReportMetric(microseconds(quantile(carried, 50)-quantile(inProcess, 50)), "µs-added-p50")
	b.ReportMetric(microseconds(quantile(carried, 99)-quantile(inProcess, 99)), "µs-added-p99")
}

func call(b *testing.B, p provider.Provider) time.Duration {
	started := time.Now()
	if _, err := create(b.Context(), p, "web"); err != nil {
		b.Fatal(err)
	}
	return time.Since(started)
}

// BenchmarkProcessStart is from nothing to the first answer of a configured provider.
func BenchmarkProcessStart(b *testing.B) {
	env := processEnv(b)
	for b.Loop() {
		started := time.Now()
		loaded, p := benchLoad(b, env)
		call(b, p)
		b.ReportMetric(float64(time.Since(started).Milliseconds()), "ms-start")
		b.StopTimer()
		if err := loaded.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// BenchmarkProcessRestart is from the end of the process in a call to the next
// answer, which needs a new process that was configured again.
func BenchmarkProcessRestart(b *testing.B) {
	env := processEnv(b)
	for b.Loop() {
		// A process of its own for each round: the second crash in a row waits.
		loaded, p := benchLoad(b, env)
		if _, err := create(b.Context(), p, "crash"); !errors.Is(err, provider.ErrUnavailable) {
			b.Fatalf("the crash: %v", err)
		}
		b.ReportMetric(microseconds(call(b, p))/1000, "ms-restart")
		if err := loaded.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func quantile(samples []time.Duration, percent int) time.Duration {
	slices.Sort(samples)
	return samples[min(len(samples)-1, len(samples)*percent/100)]
}

func microseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 }
