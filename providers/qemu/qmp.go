// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// dialPause is how long a full queue of connections is left alone.
const dialPause = 10 * time.Millisecond

// monitor is a connection to QEMU's control socket (QEMU Machine Protocol).
type monitor struct {
	conn *net.UnixConn
	dec  *json.Decoder
	// id is of the last command. QEMU may send a connection the answer to a command of the
	// connection before, whose process was killed.
	id string
	// disobey keeps the end of the context from ending reads and writes.
	disobey func() bool
}

// dialMonitor connects and waits for the greeting, which QEMU sends once the
// machine is set up. The connection is of use until ctx ends.
func dialMonitor(ctx context.Context, folder string) (*monitor, error) {
	// Through the folder's descriptor, since the full path may be too long.
	dir, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", folder, err)
	}
	defer unix.Close(dir)
	path := filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir), qmpName)
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	// QEMU serves one connection, and few can wait: the kernel has no room for this one (connect(2)).
	for errors.Is(err, unix.EAGAIN) && poll.Sleep(ctx, dialPause) == nil {
		conn, err = dialer.DialContext(ctx, "unix", path)
	}
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn.(*net.UnixConn), dec: json.NewDecoder(conn)}
	m.disobey = context.AfterFunc(ctx, func() { m.conn.SetDeadline(time.Unix(1, 0)) })
	if err := m.greet(); err != nil {
		m.close()
		return nil, fmt.Errorf("greet QEMU: %w", err)
	}
	return m, nil
}

func (m *monitor) greet() error {
	var greeting struct {
		QMP *json.RawMessage `json:"QMP"`
	}
	for greeting.QMP == nil {
		if err := m.dec.Decode(&greeting); err != nil {
			return err
		}
	}
	return m.execute("qmp_capabilities")
}

// execute runs a command without arguments and waits until it has been done.
func (m *monitor) execute(command string) error { return m.call(command, nil, nil) }

// call runs a command with arguments, unless they are nil, and decodes what it
// returns into result, unless that is nil.
func (m *monitor) call(command string, arguments, result any) error {
	return m.send(command, arguments, result, nil)
}

// send runs a command, with which an open file goes to QEMU.
func (m *monitor) send(command string, arguments, result any, file *os.File) error {
	m.id = rand.Text()
	line, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
		ID        string `json:"id"`
	}{command, arguments, m.id})
	if err != nil {
		return fmt.Errorf("QMP %s: %w", command, err)
	}
	var rights []byte
	if file != nil {
		rights = unix.UnixRights(int(file.Fd()))
	}
	if _, _, err := m.conn.WriteMsgUnix(append(line, '\n'), rights, nil); err != nil {
		return fmt.Errorf("QMP %s: %w", command, err)
	}
	return m.reply(command, result)
}

// reply reads on to the answer to the last command.
func (m *monitor) reply(command string, result any) error {
	for {
		var reply struct {
			ID     string          `json:"id"`
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := m.dec.Decode(&reply); err != nil {
			return fmt.Errorf("QMP %s: %w", command, err)
		}
		switch {
		case reply.ID != m.id: // an event, or the answer to another
		case reply.Error != nil:
			return fmt.Errorf("QMP %s: %s", command, reply.Error.Desc)
		case result == nil:
			return nil
		default:
			return json.Unmarshal(reply.Return, result)
		}
	}
}

// give hands QEMU an open file under a name.
func (m *monitor) give(name string, file *os.File) error {
	return m.send("getfd", map[string]string{"fdname": name}, nil, file)
}

// await asks for a status until it is want, for as long as it is one of the others.
func (m *monitor) await(ctx context.Context, query, want string, others ...string) error {
	for {
		var now struct {
			Status string `json:"status"`
			Error  string `json:"error-desc"`
		}
		if err := m.call(query, nil, &now); err != nil {
			return err
		}
		switch {
		case now.Status == want:
			return nil
		case !slices.Contains(others, now.Status):
			return fmt.Errorf("QMP %s: %s %s", query, now.Status, now.Error)
		}
		if err := poll.Sleep(ctx, pollMonitor); err != nil {
			return err
		}
	}
}

func (m *monitor) close() {
	m.disobey()
	m.conn.Close()
}
