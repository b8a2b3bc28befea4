// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/ttrpcframe"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	pb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// eventually waits for what comes about by itself.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// TestSpareConnection has a sandbox that serves nothing: the first client of one that
// does takes its spare connection.
func TestSpareConnection(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age    time.Duration
		closed bool
		taken  bool
	}{
		"open":              {taken: true},
		"closed by the VM":  {closed: true},
		"kept for too long": {age: 2 * spareFor},
		"not kept too long": {age: spareFor / 2, taken: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near, far := tcpPair(t)
			conn := ttrpcframe.RawIO(near)
			sb := newSandbox(&pb.ServeRequest{Id: "sandbox"}, nil, &sync.Mutex{}, slog.New(slog.DiscardHandler))
			sb.spare, sb.spareSince = tls.Client(conn, &tls.Config{}), time.Now().Add(-test.age)
			if hungUp(conn) {
				t.Error("a connection that is open counts as closed")
			}
			if test.closed {
				far.Write([]byte("unread")) // as TLS session tickets are
				far.Close()
				eventually(t, "the end is seen", func() bool { return hungUp(conn) })
			}
			if got := sb.takeSpare(); (got != nil) != test.taken {
				t.Errorf("handed out: %v", got != nil)
			}
			if sb.spare != nil {
				t.Error("the connection is still the spare one")
			}
		})
	}
}

func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if near, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
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
