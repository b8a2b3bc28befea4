// SPDX-License-Identifier: Apache-2.0

package unseal

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAsk(t *testing.T) {
	socket := Beside(filepath.Join(t.TempDir(), "agent.sock"))
	if _, err := Ask(t.Context(), socket, []byte("sealed.a.b.c")); !errors.Is(err, ErrImage) {
		t.Errorf("nobody listens: %v", err)
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		ended <- Serve(ctx, listener, func(_ context.Context, sealed []byte) ([]byte, error) {
			if bytes.HasPrefix(sealed, []byte("sealed.refused")) {
				return nil, errors.New("the broker refuses")
			}
			return append([]byte("\x00\xff"), sealed...), nil
		})
	}()
	if plain, err := Ask(t.Context(), socket, []byte("sealed.a.b.c")); err != nil || string(plain) != "\x00\xffsealed.a.b.c" {
		t.Errorf("%q, %v", plain, err)
	}
	if _, err := Ask(t.Context(), socket, []byte("sealed.refused.b.c")); err == nil || err.Error() != "the broker refuses" {
		t.Errorf("refused: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestAskEnds: who does not answer, or is gone, holds nobody up.
func TestAskEnds(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "cdh.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if conn, err := listener.Accept(); err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		cancel()
	}()
	if _, err := Ask(ctx, socket, []byte("sealed.a.b.c")); err == nil || !strings.Contains(err.Error(), "canceled") {
		t.Errorf("no answer: %v", err)
	}
	listener.Close()
	if _, err := Ask(t.Context(), socket, []byte("sealed.a.b.c")); err == nil || errors.Is(err, ErrImage) {
		t.Errorf("an agent that is gone: %v", err)
	}
}
