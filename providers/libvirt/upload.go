// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	lv "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket"
)

// An upload has a connection of its own and speaks the protocol itself:
// package go-libvirt never returns from an upload that the daemon refuses
// after the last byte was sent.

// Numbers of libvirt's remote_protocol.x.
const (
	remoteProgram    = 0x20008086
	procConnectOpen  = 1
	procAuthList     = 66
	procAuthPolkit   = 70
	procVolumeUpload = 208
	authPolkit       = 2
)

// uploadChunk is far below the largest packet that daemons take, 4 MiB.
const uploadChunk = 256 << 10

// answer is a packet of the daemon's.
type answer struct {
	status  uint32
	payload []byte
}

// replies is a [socket.Router] for one call at a time.
type replies chan answer

func (r replies) Route(h *socket.Header, payload []byte) {
	if h.Program == remoteProgram && (h.Type == socket.Reply || h.Type == socket.Stream) {
		select {
		case r <- answer{h.Status, payload}:
		default: // nobody waits
		}
	}
}

type uploader struct {
	ctx     context.Context
	socket  *socket.Socket
	link    *link
	replies replies
	serial  int32
}

func (c *client) upload(ctx context.Context, pool, name string, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	conn, err := c.target.dial(ctx)
	if err != nil {
		return err
	}
	l := newLink(conn)
	u := &uploader{ctx: ctx, link: l, replies: make(replies, 4)}
	u.socket = socket.New(opened{l}, u.replies)
	defer l.Close()
	// Writes know no context.
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	if err := u.run(c.target.driver, pool, name, data); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("upload volume %s: %w", name, err)
	}
	return nil
}

func (u *uploader) run(driver, pool, name string, data []byte) error {
	if err := u.socket.Connect(); err != nil {
		return err
	}
	if err := u.authenticate(); err != nil {
		return err
	}
	var open, upload xdr
	open.uint32(1) // a name follows
	open.text(driver)
	open.uint32(0)
	if _, err := u.call(procConnectOpen, open.Bytes()); err != nil {
		return err
	}
	upload.text(pool)
	upload.text(name)
	upload.text(name) // the key, which the daemon does not look at
	upload.uint64(0)
	upload.uint64(uint64(len(data)))
	upload.uint32(0)
	if _, err := u.call(procVolumeUpload, upload.Bytes()); err != nil {
		return err
	}
	return u.stream(data)
}

// authenticate does what a daemon demands before anything else, SASL left out.
func (u *uploader) authenticate() error {
	list, err := u.call(procAuthList, nil)
	if err != nil {
		return err
	}
	for kinds := list; len(kinds) >= 8; kinds = kinds[4:] { // after their number
		if binary.BigEndian.Uint32(kinds[4:]) == authPolkit {
			_, err = u.call(procAuthPolkit, nil)
			return err
		}
	}
	return nil
}

func (u *uploader) call(procedure uint32, payload []byte) ([]byte, error) {
	u.serial++
	if err := u.socket.SendPacket(u.serial, procedure, remoteProgram, payload, socket.Call, socket.StatusOK); err != nil {
		return nil, errBroken
	}
	return u.wait()
}

// stream sends the data; the daemon answers once, after the end or at an
// error.
func (u *uploader) stream(data []byte) error {
	send := func(status uint32, part []byte) error {
		if u.socket.SendPacket(u.serial, procVolumeUpload, remoteProgram, part, socket.Stream, status) != nil {
			return errBroken
		}
		return nil
	}
	for len(data) > 0 {
		part := data[:min(len(data), uploadChunk)]
		data = data[len(part):]
		if err := send(socket.StatusContinue, part); err != nil {
			return err
		}
	}
	if err := send(socket.StatusOK, nil); err != nil {
		return err
	}
	_, err := u.wait()
	return err
}

func (u *uploader) wait() ([]byte, error) {
	select {
	case a := <-u.replies:
		if a.status == socket.StatusError {
			return nil, decodeError(a.payload)
		}
		return a.payload, nil
	case <-u.link.broken:
		return nil, errBroken
	case <-u.ctx.Done():
		return nil, context.Cause(u.ctx)
	}
}

// xdr encodes as RFC 4506 says.
type xdr struct{ bytes.Buffer }

func (x *xdr) uint32(v uint32) { x.Write(binary.BigEndian.AppendUint32(nil, v)) }
func (x *xdr) uint64(v uint64) { x.Write(binary.BigEndian.AppendUint64(nil, v)) }

func (x *xdr) text(s string) {
	x.uint32(uint32(len(s)))
	x.WriteString(s)
	x.Write(make([]byte, -len(s)&3))
}

// decodeError reads the first fields of a remote_error: code, domain, and a
// message that may be missing.
func decodeError(payload []byte) error {
	if len(payload) < 12 {
		return errBroken
	}
	said := lv.Error{Code: binary.BigEndian.Uint32(payload), Message: "no message"}
	if rest := payload[12:]; binary.BigEndian.Uint32(payload[8:]) == 1 && len(rest) >= 4 {
		length := binary.BigEndian.Uint32(rest)
		said.Message = string(rest[4:min(uint64(len(rest)), 4+uint64(length))])
	}
	return said
}
