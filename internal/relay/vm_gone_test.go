// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/tls"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// eventually waits for what comes about by itself.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// TestSpareConnectionThatTheVMClosed must not be handed to the first client.
func TestSpareConnectionThatTheVMClosed(t *testing.T) {
	c := newChain(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c.client(t)
	sb := c.server.sandboxes["sandbox"]
	sb.mu.Lock()
	if sb.warm != nil {
		sb.warm.Close()
	}
	sb.warm, sb.warmSince = tls.Client(conn, &tls.Config{}), time.Now()
	sb.mu.Unlock()

	if hungUp(conn) {
		t.Error("a connection that is open counts as closed")
	}
	far.Write([]byte("unread")) // as TLS session tickets are
	far.Close()
	eventually(t, "the end is seen", func() bool { return hungUp(conn) })
	if got := sb.takeWarm(); got != nil {
		t.Error("a closed connection was handed out")
	}
}

func TestClientWithoutVMIsToldWhy(t *testing.T) {
	c := newChain(t)
	c.client(t)
	near, far := net.Pipe()
	go c.server.sandboxes["sandbox"].refuse(far, syscall.ECONNREFUSED)
	client := ttrpc.NewClient(near)
	defer client.Close()
	_, err := agent.NewHealthClient(client).Check(t.Context(), &agent.CheckRequest{})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "console") {
		t.Errorf("error %v", err)
	}
}

func TestTwoSandboxesCannotShareASocket(t *testing.T) {
	c := newChain(t)
	c.client(t)
	other := c.request()
	other.Id = "other"
	if _, err := c.server.Serve(t.Context(), other); status.Code(err) != codes.AlreadyExists {
		t.Errorf("error %v", err)
	}
	if _, err := os.Stat(c.socket); err != nil {
		t.Errorf("the first sandbox lost its socket: %v", err)
	}
}

func TestWhoMaySteer(t *testing.T) {
	self := uint32(os.Geteuid())
	for uid, want := range map[uint32]bool{0: true, self: true, self + 1: false} {
		if err := allow(&unix.Ucred{Uid: uid, Gid: 12345}); (err == nil) != want {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

// TestRelayInheritsNothing starts, in the relay's place, a shell that notes
// its descriptors.
func TestRelayInheritsNothing(t *testing.T) {
	dir := t.TempDir()
	leak, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer leak.Close()
	low, err := unix.FcntlInt(leak.Fd(), unix.F_DUPFD, 200) // without close-on-exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(low)
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err) // Debian cannot be without it
	}
	script := filepath.Join(dir, "relay")
	text := "#!" + shell + "\nls /proc/$$/fd > " + dir + "/fds\nexit 1\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Ensure(t.Context(), EnsureOptions{Socket: dir + "/s", Binary: script, LogFile: dir + "/log"}); err == nil {
		t.Fatal("a script was taken for a relay")
	}
	fds, err := os.ReadFile(dir + "/fds")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range strings.Fields(string(fds)) {
		if len(fd) == 3 {
			t.Errorf("descriptor %s was inherited", fd)
		}
	}
}
