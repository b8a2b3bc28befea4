// SPDX-License-Identifier: Apache-2.0

package frametunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Offer gives file to who connects to a unix socket that it makes at path, for this user
// alone: the relay, which carries the frames, has no right to open a packet socket. It
// closes file and removes the socket when stop is called.
func Offer(path string, file *os.File) (stop func(), err error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			pass(conn, file)
			conn.Close()
		}
	}()
	return func() {
		listener.Close() // removes the socket as well
		<-done
		file.Close()
	}, nil
}

// pass cannot wait: a new connection's buffer has room for one byte.
func pass(conn *net.UnixConn, file *os.File) {
	raw, err := file.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		conn.WriteMsgUnix([]byte{0}, unix.UnixRights(int(fd)), nil)
	})
}

// Take returns the file that is offered at path.
func Take(ctx context.Context, path string) (*os.File, error) {
	file, err := take(ctx, path)
	if err != nil {
		return nil, fmt.Errorf("take the tunnel's packet socket at %s: %w", path, err)
	}
	return file, nil
}

func take(ctx context.Context, path string) (*os.File, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	control := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.(*net.UnixConn).ReadMsgUnix(make([]byte, 1), control)
	if err != nil {
		return nil, err
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil {
		return nil, err
	}
	if len(messages) != 1 {
		return nil, errors.New("nothing was passed")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fds[0]), "packet"), nil
}
