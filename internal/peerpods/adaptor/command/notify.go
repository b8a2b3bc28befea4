// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"net"
)

// notify sends the state to the service manager, as sd_notify(3); without
// NOTIFY_SOCKET it does nothing.
func notify(socket, state string) error {
	if socket == "" {
		return nil
	}
	conn, err := net.Dial("unixgram", socket) // a leading '@' means abstract to package net too
	if err != nil {
		return fmt.Errorf("NOTIFY_SOCKET: %w", err)
	}
	defer conn.Close()
	_, err = conn.Write([]byte(state))
	return err
}
