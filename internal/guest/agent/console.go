// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// consoleWait bounds the wait for a connection that the runtime has made already.
const consoleWait = 10 * time.Second

// listenConsole returns the socket on which the runtime sends the terminal that it makes
// for a process.
func (a *Agent) listenConsole() (*net.UnixListener, error) {
	path := filepath.Join(a.cfg.StateDir, "tty"+strconv.FormatUint(a.serial.Add(1), 10))
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("console socket: %w", err)
	}
	return listener, nil
}

// receiveTerminal returns the terminal. Call it when the runtime has succeeded: by then it
// has connected and sent.
func receiveTerminal(listener *net.UnixListener) (*os.File, error) {
	listener.SetDeadline(time.Now().Add(consoleWait))
	conn, err := listener.AcceptUnix()
	if err != nil {
		return nil, fmt.Errorf("console of the OCI runtime: %w", err)
	}
	defer conn.Close()
	data, control := make([]byte, unix.PathMax), make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := conn.ReadMsgUnix(data, control)
	if err != nil {
		return nil, fmt.Errorf("console of the OCI runtime: %w", err)
	}
	var fds []int
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err == nil && len(messages) == 1 {
		fds, err = unix.ParseUnixRights(&messages[0])
	}
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("console of the OCI runtime: no descriptor: %v", err)
	}
	unix.CloseOnExec(fds[0])
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fds[0]), "tty"), nil
}

// resize sets a terminal's size in characters.
func resize(tty *os.File, rows, columns uint32) error {
	conn, err := tty.SyscallConn()
	if err != nil {
		return err
	}
	size := unix.Winsize{Row: uint16(rows), Col: uint16(columns)}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &size) })
	if err != nil {
		return err
	}
	return os.NewSyscallError("TIOCSWINSZ", failed)
}
