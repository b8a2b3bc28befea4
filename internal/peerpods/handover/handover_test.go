// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// limit is over ten times what any test here takes.
const limit = time.Minute

func newBundle(t *testing.T) *podtls.Bundle {
	t.Helper()
	bundle, err := podtls.NewBundle("pool-vm", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// node returns the settings of a node that has the certificate of one bundle and knows
// VMs of another.
func node(t *testing.T, own, vm *podtls.Bundle, name string) *tls.Config {
	t.Helper()
	config, err := podtls.ClientConfig(podtls.ClientOptions{ServerName: name, CAPEM: vm.CAPEM, CertPEM: own.ClientCertPEM, KeyPEM: own.ClientKeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// vm is a waiting VM.
type vm struct {
	bundle *podtls.Bundle
	addr   string
	done   chan error
	taken  chan []byte
	end    context.CancelFunc
}

func startVM(t *testing.T, take func([]byte) error) *vm { return startVMWith(t, "", take) }

func startVMWith(t *testing.T, remark string, take func([]byte) error) *vm {
	t.Helper()
	v := &vm{bundle: newBundle(t), done: make(chan error, 1), taken: make(chan []byte, 2)}
	config, err := podtls.ServerConfig(podtls.ServerOptions{CertPEM: v.bundle.ServerCertPEM, KeyPEM: v.bundle.ServerKeyPEM, ClientCAPEM: v.bundle.CAPEM})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v.addr = listener.Addr().String()
	ctx, end := context.WithCancel(t.Context())
	v.end = end
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		v.done <- Receive(ctx, listener, config, remark, func(document []byte) error {
			if take != nil {
				if err := take(document); err != nil {
					return err
				}
			}
			v.taken <- document
			return nil
		})
	}()
	t.Cleanup(func() { end(); <-stopped })
	return v
}

func (v *vm) node(t *testing.T) *tls.Config { return node(t, v.bundle, v.bundle, "pool-vm") }

// send sends as the VM's node.
func (v *vm) send(t *testing.T, document string) error {
	t.Helper()
	return Send(t.Context(), v.addr, v.node(t), []byte(document))
}

func (v *vm) await(t *testing.T) error {
	t.Helper()
	select {
	case err := <-v.done:
		return err
	case <-time.After(limit):
		t.Fatal("Receive does not return")
		return nil
	}
}

// isGood hands the VM over: it waits as before.
func (v *vm) isGood(t *testing.T) {
	t.Helper()
	if err := v.send(t, ""); err != nil {
		t.Errorf("a probe: %v", err)
	}
	if err := v.send(t, "good"); err != nil {
		t.Fatal(err)
	}
	if err := v.await(t); err != nil {
		t.Fatal(err)
	}
	if got := <-v.taken; string(got) != "good" {
		t.Errorf("took %q", got)
	}
}

func TestDocumentIsTakenWhole(t *testing.T) {
	t.Parallel()
	document := make([]byte, cloudinit.MaxSize)
	rand.Read(document)
	v := startVM(t, nil)
	if err := Send(t.Context(), v.addr, v.node(t), document); err != nil {
		t.Fatal(err)
	}
	// The answer comes when nobody listens any more.
	if err := v.send(t, ""); !errors.Is(err, ErrUnreachable) {
		t.Errorf("after the answer: error %v, want ErrUnreachable", err)
	}
	if err := v.await(t); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(<-v.taken, document) {
		t.Error("the document was changed")
	}
	again, err := net.Listen("tcp", v.addr)
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	again.Close()
}

func TestProbesLeaveTheVMWaiting(t *testing.T) {
	t.Parallel()
	v := startVM(t, nil)
	for range 3 {
		if err := v.send(t, ""); err != nil {
			t.Fatal(err)
		}
	}
	v.isGood(t)
}

// TestRemark: it goes with the answer that the VM waits, and nothing in it is secret or moves a cursor.
func TestRemark(t *testing.T) {
	t.Parallel()
	v := startVMWith(t, "pull image web: \x1b[31mnot found, password=hunter22", nil)
	err := v.send(t, "")
	if !errors.Is(err, ErrUnprepared) || !strings.Contains(err.Error(), "pull image web") || strings.Contains(err.Error(), "hunter22") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a probe: %v", err)
	}
	if err := v.send(t, "good"); err != nil {
		t.Error(err)
	}
	if err := v.await(t); err != nil {
		t.Error(err)
	}
}

func TestOnlyThePoolsNodesMaySend(t *testing.T) {
	t.Parallel()
	v, other := startVM(t, nil), newBundle(t)
	for name, config := range map[string]*tls.Config{
		"certificate of another pool": node(t, other, v.bundle, "pool-vm"),
		"no certificate":              node(t, &podtls.Bundle{}, v.bundle, "pool-vm"),
	} {
		for _, document := range []string{"", "evil", strings.Repeat("evil", cloudinit.MaxSize/4)} {
			if err := Send(t.Context(), v.addr, config, []byte(document)); err == nil || !errors.Is(err, ErrIdentity) && len(document) < 5 {
				t.Errorf("%s, %d bytes: error %v, want ErrIdentity", name, len(document), err)
			}
		}
	}
	v.isGood(t)
}

// TestVMOfAnotherIdentity: a node sends its pod's keys to no VM but its own.
func TestVMOfAnotherIdentity(t *testing.T) {
	t.Parallel()
	v, other := startVM(t, nil), newBundle(t)
	for name, config := range map[string]*tls.Config{
		"another authority": node(t, v.bundle, other, "pool-vm"),
		"another name":      node(t, v.bundle, v.bundle, "pool-vm-2"),
	} {
		if err := Send(t.Context(), v.addr, config, []byte("secret")); !errors.Is(err, ErrIdentity) {
			t.Errorf("%s: error %v, want ErrIdentity", name, err)
		}
	}
	v.isGood(t)
}

func TestRefusedDocumentLeavesTheVMWaiting(t *testing.T) {
	t.Parallel()
	v := startVM(t, func(document []byte) error {
		if string(document) != "good" {
			return errors.New("not \x1b[31mgood: password=hunter22")
		}
		return nil
	})
	err := v.send(t, "garbage")
	if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "good") || strings.ContainsAny(err.Error(), "\x1b") || strings.Contains(err.Error(), "hunter22") {
		t.Errorf("error %v, want the VM's without control characters and secrets", err)
	}
	v.isGood(t)
}

// TestBrokenDocuments come from senders that are not ours.
func TestBrokenDocuments(t *testing.T) {
	t.Parallel()
	v := startVM(t, nil)
	if err := v.send(t, strings.Repeat("x", cloudinit.MaxSize+1)); !errors.Is(err, errTooLarge) {
		t.Errorf("Send: error %v, want errTooLarge", err)
	}
	answer := func(size int, end func(*tls.Conn) error) string {
		t.Helper()
		conn, err := tls.Dial("tcp", v.addr, v.node(t))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conn.Write(bytes.Repeat([]byte("x"), size))
		if err := end(conn); err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(conn)
		return string(text)
	}
	if text := answer(cloudinit.MaxSize+1, (*tls.Conn).CloseWrite); text != errTooLarge.Error() {
		t.Errorf("too large: answer %q", text)
	}
	// Without TLS's end of stream the document may have been cut off by anybody.
	cut := func(conn *tls.Conn) error { return conn.NetConn().(*net.TCPConn).CloseWrite() }
	if text := answer(4, cut); !strings.Contains(text, "did not come whole") {
		t.Errorf("cut off: answer %q", text)
	}
	v.isGood(t)
}

func TestStalledClientsDoNotKeepTheNodeOut(t *testing.T) {
	t.Parallel()
	v := startVM(t, nil)
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", v.addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	const attempts = 4 * maxHandshakes
	closed := make(chan struct{}, attempts)
	for range attempts {
		conn := dial()
		go func() { io.Copy(io.Discard, conn); closed <- struct{}{} }()
	}
	for range attempts - maxHandshakes { // the handshakes' limit of 5 s would close all
		select {
		case <-closed:
		case <-time.After(limit):
			t.Fatal("connections that stall are kept")
		}
	}
	v.isGood(t)
}

func TestOfTwoSendersOneGetsTheVM(t *testing.T) {
	t.Parallel()
	began, proceed := make(chan struct{}), make(chan struct{})
	v := startVM(t, func([]byte) error { close(began); <-proceed; return nil })
	results := make(chan error, 2)
	go func() { results <- v.send(t, "first") }()
	<-began
	second, err := tls.Dial("tcp", v.addr, v.node(t))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	io.WriteString(second, "second")
	second.CloseWrite()
	close(proceed)
	// Its connection may also be closed before it was accepted.
	if answer, err := io.ReadAll(second); string(answer) != errHasPod.Error() && len(answer) > 0 {
		t.Errorf("the second got %q, %v", answer, err)
	}
	if err := <-results; err != nil {
		t.Errorf("the first: %v", err)
	}
	if err := v.await(t); err != nil {
		t.Fatal(err)
	}
	if got := <-v.taken; string(got) != "first" || len(v.taken) > 0 {
		t.Errorf("took %q and %d more", got, len(v.taken))
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	v := startVM(t, nil)
	conn, err := net.Dial("tcp", v.addr) // in its handshake
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := v.send(t, ""); err != nil {
		t.Fatal(err)
	}
	v.end()
	if err := v.await(t); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

func TestNobodyThere(t *testing.T) {
	t.Parallel()
	v := startVM(t, nil)
	v.end()
	v.await(t)
	if err := v.send(t, "x"); !errors.Is(err, ErrUnreachable) {
		t.Errorf("error %v, want ErrUnreachable", err)
	}
}
