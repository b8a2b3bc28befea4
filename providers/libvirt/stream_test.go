// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"testing"

	"github.com/digitalocean/go-libvirt/socket"
)

// TestContentBeforeTheReply: the daemon may send the first of a volume before it replies to
// the call that asked for it.
func TestContentBeforeTheReply(t *testing.T) {
	s := &stream{ctx: t.Context(), link: newLink(nil), packets: make(chan packet, 3)}
	s.packets <- packet{true, socket.StatusContinue, []byte("content")}
	s.packets <- packet{false, socket.StatusOK, nil}
	s.packets <- packet{true, socket.StatusOK, nil}
	if _, err := s.reply(); err != nil {
		t.Fatal(err)
	}
	if data, err := s.receive(); err != nil || string(data) != "content" {
		t.Errorf("read %q, %v", data, err)
	}
}
