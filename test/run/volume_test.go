// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"crypto/sha256"
	"fmt"
	"hash"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/test/tier"
)

// outputBytes is what TestOutputIsByteExact moves: the 1 GiB that is promised
// takes minutes in a guest without KVM, so that `make test` moves 32 MiB.
func outputBytes(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("OUTRIGGER_E2E_OUTPUT_MIB")
	switch {
	case text != "":
	case tier.All():
		return 1 << 30
	default:
		return 32 << 20
	}
	mib, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatalf("OUTRIGGER_E2E_OUTPUT_MIB: %v", err)
	}
	return mib << 20
}

// counting hashes and counts what is written to it.
type counting struct {
	hash.Hash
	n int64
}

func (c *counting) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return c.Hash.Write(p)
}

// TestOutputIsByteExact sends a stream in which every block differs through a
// container's stdout.
func TestOutputIsByteExact(t *testing.T) {
	n := newNode(t)
	p := n.newPod(t, "output")
	size := outputBytes(t)
	c, err := p.CreateContainer(t.Context(), podclient.ContainerSpec{
		Name: "writer", Image: n.registry.WithNettool, Env: []string{"PATH=/bin"}, Args: []string{"nettool", "pattern", fmt.Sprint(size)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	got := &counting{Hash: sha256.New()}
	c.Stream(podclient.IO{Stdout: got})
	if code, err := c.Wait(t.Context()); err != nil || code != 0 {
		t.Fatalf("exit code %d, %v", code, err)
	}
	took := time.Since(began)
	want := &counting{Hash: sha256.New()}
	writePattern(want, size)
	if got.n != want.n || string(got.Sum(nil)) != string(want.Sum(nil)) {
		t.Errorf("%d bytes arrived of %d, or others", got.n, want.n)
	}
	t.Logf("%d MiB in %v: %.1f MiB/s", size>>20, took, float64(size)/(1<<20)/took.Seconds())
}

// writePattern is what nettool's command pattern writes.
func writePattern(w *counting, size int64) {
	block := make([]byte, 1024)
	for i := int64(0); i*1024 < size; i++ {
		copy(block, fmt.Sprintf("%016d", i))
		w.Write(block)
	}
}
