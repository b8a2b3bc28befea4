// SPDX-License-Identifier: Apache-2.0

package nodeinstall

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/godbus/dbus/v5"
)

const (
	systemd     = "org.freedesktop.systemd1"
	systemdPath = dbus.ObjectPath("/org/freedesktop/systemd1")
	// patience bounds a restart; poll is how often its state is checked.
	patience = time.Minute
	poll     = 200 * time.Millisecond
)

// RestartUnit asks systemd, by the bus at a socket, to restart a unit, and waits
// until it runs.
func RestartUnit(ctx context.Context, socket, unit string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := dbus.Dial("unix:path="+socket, dbus.WithContext(ctx))
	if err != nil {
		return fmt.Errorf("reach systemd: %w", err)
	}
	defer conn.Close()
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return fmt.Errorf("reach systemd at %s: %w", socket, err)
	}
	if err := conn.Hello(); err != nil {
		return fmt.Errorf("reach systemd at %s: %w", socket, err)
	}
	manager := conn.Object(systemd, systemdPath)
	var job, path dbus.ObjectPath
	if err := manager.CallWithContext(ctx, systemd+".Manager.RestartUnit", 0, unit, "replace").Store(&job); err != nil {
		return fmt.Errorf("restart %s: %w", unit, err)
	}
	if err := manager.CallWithContext(ctx, systemd+".Manager.GetUnit", 0, unit).Store(&path); err != nil {
		return fmt.Errorf("read the state of %s: %w", unit, err)
	}
	return await(ctx, conn.Object(systemd, path), unit)
}

// await polls a unit until its job is done.
func await(ctx context.Context, object dbus.BusObject, unit string) error {
	for {
		state, busy, err := stateOf(ctx, object)
		switch {
		case err != nil:
			return fmt.Errorf("read the state of %s: %w", unit, err)
		case !busy && state == "active":
			return nil
		case !busy && state != "activating" && state != "deactivating" && state != "reloading":
			return fmt.Errorf("%s is %s after its restart: see `journalctl -u %s` on the node", unit, state, unit)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is %s, %s after the restart was requested: %w", unit, state, patience, ctx.Err())
		case <-time.After(poll):
		}
	}
}

func stateOf(ctx context.Context, object dbus.BusObject) (state string, busy bool, err error) {
	var job struct {
		ID   uint32
		Path dbus.ObjectPath
	}
	for name, into := range map[string]any{"ActiveState": &state, "Job": &job} {
		var value dbus.Variant
		if err := object.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", 0, systemd+".Unit", name).Store(&value); err != nil {
			return "", false, err
		}
		if err := dbus.Store([]any{value.Value()}, into); err != nil {
			return "", false, fmt.Errorf("property %s: %w", name, err)
		}
	}
	return state, job.ID != 0, nil
}
