// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"bufio"
	"net"
	"time"
)

// Refuse answers every call that comes in on client with cause, until the
// client hangs up or grace has passed, and closes client: the way to tell it
// why there is nobody to talk to.
func Refuse(client net.Conn, cause error, grace time.Duration) {
	defer client.Close()
	client.SetDeadline(time.Now().Add(grace))
	reader, toClient := NewReader(bufio.NewReaderSize(client, requestBuffer)), &lockedWriter{w: client}
	for {
		frame, err := reader.Next()
		if err != nil {
			return
		}
		if frame.Type() == TypeRequest && toClient.replyError(frame.Stream(), cause) != nil {
			return
		}
	}
}
