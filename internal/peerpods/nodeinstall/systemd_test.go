// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
)

const unitPath = dbus.ObjectPath("/org/freedesktop/systemd1/unit/containerd_2eservice")

// manager is systemd on a bus of the test's own.
type manager struct {
	mu        sync.Mutex
	restarted []string
	refuse    *dbus.Error
	after     []string // states of the unit, one for each look
	looks     int
}

func (m *manager) RestartUnit(name, mode string) (dbus.ObjectPath, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restarted = append(m.restarted, name+" "+mode)
	return "/org/freedesktop/systemd1/job/7", m.refuse
}

func (m *manager) GetUnit(string) (dbus.ObjectPath, *dbus.Error) { return unitPath, nil }

type job struct {
	ID   uint32
	Path dbus.ObjectPath
}

// Get is that of the unit's properties.
func (m *manager) Get(_, property string) (dbus.Variant, *dbus.Error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := m.after[min(m.looks/2, len(m.after)-1)]
	m.looks++
	if property == "ActiveState" {
		return dbus.MakeVariant(state), nil
	}
	busy := job{0, "/"} // none
	if state != "active" && state != "failed" {
		busy = job{7, "/org/freedesktop/systemd1/job/7"}
	}
	return dbus.MakeVariant(busy), nil
}

const busConfig = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>unix:path=%s</listen><auth>EXTERNAL</auth>
<policy context="default"><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
`

// startBus runs a real bus daemon with m on it and returns its socket.
func startBus(t *testing.T, m *manager) string {
	t.Helper()
	program, err := exec.LookPath("dbus-daemon")
	if err != nil {
		t.Skip("a real bus is asked, and dbus-daemon is not on this machine: apt-get install dbus-daemon")
	}
	dir, err := os.MkdirTemp("", "bus") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "bus"), filepath.Join(dir, "config")
	if err := os.WriteFile(config, fmt.Appendf(nil, busConfig, socket), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config-file="+config, "--nofork", "--print-address")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the bus does not start: %v", err)
	}
	serve(t, m, socket)
	return socket
}

func serve(t *testing.T, m *manager, socket string) {
	t.Helper()
	conn, err := dbus.Connect("unix:path=" + socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := errors.Join(
		conn.ExportMethodTable(map[string]any{"RestartUnit": m.RestartUnit, "GetUnit": m.GetUnit}, systemdPath, systemd+".Manager"),
		conn.ExportMethodTable(map[string]any{"Get": m.Get}, unitPath, "org.freedesktop.DBus.Properties"),
	); err != nil {
		t.Fatal(err)
	}
	if reply, err := conn.RequestName(systemd, 0); err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatal(reply, err)
	}
}

func TestRestartUnit(t *testing.T) {
	for name, c := range map[string]struct {
		*manager
		says string
	}{
		"at once":         {&manager{after: []string{"active"}}, ""},
		"after a while":   {&manager{after: []string{"deactivating", "activating", "active"}}, ""},
		"it fails":        {&manager{after: []string{"activating", "failed"}}, "containerd.service is failed"},
		"it is forbidden": {&manager{refuse: dbus.NewError("org.freedesktop.DBus.Error.AccessDenied", []any{"no, you may not"}), after: []string{"active"}}, "no, you may not"},
	} {
		t.Run(name, func(t *testing.T) {
			socket := startBus(t, c.manager)
			began := time.Now()
			err := RestartUnit(t.Context(), socket, "containerd.service")
			if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
				t.Errorf("%v, want %q", err, c.says)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			if len(c.restarted) != 1 || c.restarted[0] != "containerd.service replace" || time.Since(began) > patience/2 {
				t.Errorf("restarted %v in %s", c.restarted, time.Since(began))
			}
		})
	}
}

func TestNoBus(t *testing.T) {
	if err := RestartUnit(t.Context(), filepath.Join(t.TempDir(), "none"), "x.service"); err == nil || !strings.Contains(err.Error(), "reach systemd") {
		t.Error(err)
	}
}
