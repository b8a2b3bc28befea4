// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// monitor is a connection to QEMU's control socket (QEMU Machine Protocol).
type monitor struct {
	conn net.Conn
	dec  *json.Decoder
}

// dialMonitor connects and waits for the greeting, which QEMU sends once the
// machine is set up.
func dialMonitor(ctx context.Context, folder string) (*monitor, error) {
	// Through the folder's descriptor, since the full path may be too long.
	dir, err := unix.Open(folder, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", folder, err)
	}
	defer unix.Close(dir)
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", filepath.Join(fmt.Sprintf("/proc/self/fd/%d", dir), qmpName))
	if err != nil {
		return nil, err
	}
	m := &monitor{conn: conn, dec: json.NewDecoder(conn)}
	stop := m.obey(ctx)
	defer stop()
	if err := m.greet(); err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet QEMU: %w", err)
	}
	return m, nil
}

// obey makes reads and writes end with ctx.
func (m *monitor) obey(ctx context.Context) (stop func() bool) {
	return context.AfterFunc(ctx, func() { m.conn.SetDeadline(time.Unix(1, 0)) })
}

func (m *monitor) greet() error {
	var greeting struct {
		QMP *json.RawMessage `json:"QMP"`
	}
	if err := m.dec.Decode(&greeting); err != nil {
		return err
	}
	if greeting.QMP == nil {
		return errors.New("no greeting")
	}
	return m.execute("qmp_capabilities")
}

// execute runs a command without arguments and waits for its answer.
func (m *monitor) execute(command string) error {
	if _, err := fmt.Fprintf(m.conn, "{\"execute\":%q}\n", command); err != nil {
		return fmt.Errorf("QMP %s: %w", command, err)
	}
	for {
		var answer struct {
			Return *json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := m.dec.Decode(&answer); err != nil {
			return fmt.Errorf("QMP %s: %w", command, err)
		}
		switch {
		case answer.Error != nil:
			return fmt.Errorf("QMP %s: %s", command, answer.Error.Desc)
		case answer.Return != nil:
			return nil
		} // anything else is an event
	}
}

func (m *monitor) close() { m.conn.Close() }
