// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	"go.uber.org/goleak"

	"github.com/outrigger/outrigger/provider"
)

// socketProvider returns a provider whose daemon is behave, one call for each
// connection.
func socketProvider(t *testing.T, behave func(net.Conn)) *Provider {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			behave(conn)
		}
	}()
	c := DefaultConfig()
	c.URI = "qemu+unix:///system?socket=" + path
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Teardown()
		listener.Close()
		<-served
	})
	return p
}

// TestSilentDaemon: every call ends with its context, and no goroutine stays.
func TestSilentDaemon(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	t.Run("Calls", func(t *testing.T) {
		p := socketProvider(t, func(c net.Conn) {
			go func() {
				io.Copy(io.Discard, c) // until we hang up
				c.Close()
			}()
		})
		for name, call := range map[string]func(context.Context) error{
			"create": func(ctx context.Context) error { _, err := fakeCreate(ctx, p, "key"); return err },
			"delete": func(ctx context.Context) error { return p.DeleteInstance(ctx, instanceID("key")) },
			"list": func(ctx context.Context) error {
				_, err := p.ListInstances(ctx, map[string]string{"a": "b"})
				return err
			},
			"upload": func(ctx context.Context) error {
				return classify(p.hv.upload(ctx, "pool", "volume", strings.NewReader("x"), 1))
			},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			begin := time.Now()
			err := call(ctx)
			cancel()
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("%s took %v", name, took)
			}
			if !errors.Is(err, provider.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestGarbage: what is not a libvirt daemon is an error, not a crash.
func TestGarbage(t *testing.T) {
	for name, answer := range map[string]string{
		"hung up": "",
		"http":    "HTTP/1.1 400 Bad Request\r\n\r\n",
		"short":   "\x00\x00\x00\x1c",
		"zero":    strings.Repeat("\x00", 64),
	} {
		t.Run(name, func(t *testing.T) {
			p := socketProvider(t, func(c net.Conn) {
				io.WriteString(c, answer)
				c.Close()
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if _, err := fakeCreate(ctx, p, "key"); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "-uri") {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestNoDaemon(t *testing.T) {
	c := DefaultConfig()
	c.URI = "qemu+unix:///system?socket=" + filepath.Join(t.TempDir(), "nosuch")
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.ConfigVerifier(); !errors.Is(err, provider.ErrUnavailable) || !strings.Contains(err.Error(), "LIBVIRT_URI") {
		t.Errorf("%v", err)
	}
	if err := p.Teardown(); err != nil {
		t.Error(err)
	}
}

func TestClasses(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want error
	}{
		{nil, nil},
		{said(lv.ErrNoDomain, "no domain"), provider.ErrNotFound},
		{said(lv.ErrNoStorageVol, "no volume"), provider.ErrNotFound},
		{said(lv.ErrAuthFailed, "authentication failed"), provider.ErrUnauthenticated},
		{said(lv.ErrOperationInvalid, "domain is not running"), provider.ErrUnavailable},
		{said(lv.ErrSystemError, "cannot allocate: No space left on device"), provider.ErrCapacity},
		{said(lv.ErrInternalError, "qemu: cannot set up guest memory 'pc.ram'"), provider.ErrCapacity},
		{said(lv.ErrInternalError, "something else"), provider.ErrUnknown},
		{lv.ErrInterrupted, provider.ErrUnavailable},
		{context.Canceled, provider.ErrUnavailable},
		{provider.ErrQuota, provider.ErrQuota},
	} {
		if got := provider.Class(classify(tc.err)); got != tc.want {
			t.Errorf("%v is %v, want %v", tc.err, got, tc.want)
		}
	}
}
