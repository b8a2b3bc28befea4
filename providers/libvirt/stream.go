// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	lv "github.com/digitalocean/go-libvirt"
	"github.com/digitalocean/go-libvirt/socket"
)

// Volumes are written and read over connections of their own, on which the
// protocol is spoken here: package go-libvirt never returns from an upload that
// the daemon refuses after the last byte was sent, and does not end a download,
// so that the volume stays in use and the connection may lock up.

// Numbers of libvirt's remote_protocol.x.
const (
	remoteProgram      = 0x20008086
	procConnectOpen    = 1
	procAuthList       = 66
	procAuthPolkit     = 70
	procVolumeUpload   = 208
	procVolumeDownload = 209
	authPolkit         = 2
)

// uploadChunk is far below the largest packet that daemons take, 4 MiB.
const uploadChunk = 256 << 10

// packet is one of the daemon's.
type packet struct {
	// streamed packets are of the content, others reply to a call.
	streamed bool
	status   uint32
	payload  []byte
}

// stream is a connection for the transfer of one volume.
type stream struct {
	ctx     context.Context
	socket  *socket.Socket
	link    *link
	packets chan packet
	// early packets of the content have come before the reply to the call: the daemon sends
	// both from different threads.
	early  []packet
	serial int32
}

// Route implements [socket.Router].
func (s *stream) Route(h *socket.Header, payload []byte) {
	if h.Program != remoteProgram || h.Type != socket.Reply && h.Type != socket.Stream {
		return
	}
	select {
	case s.packets <- packet{h.Type == socket.Stream, h.Status, payload}:
	case <-s.link.broken: // by us, when all is said
	}
}

func (c *client) upload(ctx context.Context, pool, name string, from io.Reader, size int64) error {
	return c.transfer(ctx, "write volume "+name, func(s *stream) error {
		if _, err := s.call(procVolumeUpload, transferArguments(pool, name, 0, uint64(size))); err != nil {
			return err
		}
		return s.send(from)
	})
}

func (c *client) download(ctx context.Context, pool, name string, offset, length uint64) (data []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	err = c.transfer(ctx, "read volume "+name, func(s *stream) error {
		if _, err := s.call(procVolumeDownload, transferArguments(pool, name, offset, length)); err != nil {
			return err
		}
		data, err = s.receive()
		return err
	})
	return data, err
}

// transferArguments encodes a handle of the volume, the range and flags. Daemons do
// not use the handle's key.
func transferArguments(pool, name string, offset, length uint64) []byte {
	var args xdr
	args.text(pool)
	args.text(name)
	args.text(name)
	args.uint64(offset)
	args.uint64(length)
	args.uint32(0)
	return args.Bytes()
}

func (c *client) transfer(ctx context.Context, what string, do func(*stream) error) error {
	conn, err := c.target.dial(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	s := &stream{ctx: ctx, link: newLink(conn), packets: make(chan packet)}
	s.socket = socket.New(opened{s.link}, s)
	defer s.link.Close()
	// Writes know no context.
	stop := context.AfterFunc(ctx, func() { s.link.Close() })
	defer stop()
	if err = s.open(c.target.driver); err == nil {
		err = do(s)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return c.explain(what, s.link, err)
}

// open does what a daemon demands before anything else, SASL left out.
func (s *stream) open(driver string) error {
	if err := s.socket.Connect(); err != nil {
		return err
	}
	list, err := s.call(procAuthList, nil)
	if err != nil {
		return err
	}
	for kinds := list; len(kinds) >= 8; kinds = kinds[4:] { // after their number
		if binary.BigEndian.Uint32(kinds[4:]) != authPolkit {
			continue
		}
		if _, err := s.call(procAuthPolkit, nil); err != nil {
			return err
		}
		break
	}
	var args xdr
	args.uint32(1) // a name follows
	args.text(driver)
	args.uint32(0)
	_, err = s.call(procConnectOpen, args.Bytes())
	return err
}

func (s *stream) call(procedure uint32, payload []byte) ([]byte, error) {
	s.serial++
	if err := s.socket.SendPacket(s.serial, procedure, remoteProgram, payload, socket.Call, socket.StatusOK); err != nil {
		return nil, errBroken
	}
	return s.reply()
}

// reply waits for the reply to a call.
func (s *stream) reply() ([]byte, error) {
	for {
		p, err := s.next()
		if err != nil || !p.streamed {
			return p.payload, err
		}
		s.early = append(s.early, p)
	}
}

// next waits for a packet; one with an error is an error.
func (s *stream) next() (packet, error) {
	select {
	case p := <-s.packets:
		if p.status == socket.StatusError {
			return p, decodeError(p.payload)
		}
		return p, nil
	case <-s.link.broken:
		return packet{}, errBroken
	case <-s.ctx.Done():
		return packet{}, context.Cause(s.ctx)
	}
}

func (s *stream) put(procedure, status uint32, part []byte) error {
	if s.socket.SendPacket(s.serial, procedure, remoteProgram, part, socket.Stream, status) != nil {
		return errBroken
	}
	return nil
}

// send writes a volume; the daemon answers once, after the end or at an error.
func (s *stream) send(from io.Reader) error {
	part := make([]byte, uploadChunk)
	for {
		n, readErr := io.ReadFull(from, part)
		if n > 0 {
			if err := s.put(procVolumeUpload, socket.StatusContinue, part[:n]); err != nil {
				return err
			}
		}
		if readErr == io.EOF || readErr == io.ErrUnexpectedEOF {
			break
		}
		if readErr != nil {
			return readErr
		}
	}
	if err := s.put(procVolumeUpload, socket.StatusOK, nil); err != nil {
		return err
	}
	_, err := s.next()
	return err
}

// content waits for the next packet of a volume.
func (s *stream) content() (packet, error) {
	if len(s.early) == 0 {
		return s.next()
	}
	p := s.early[0]
	s.early = s.early[1:]
	return p, nil
}

// receive reads a volume. The daemon ends with an empty packet and waits until
// it is told that this was understood.
func (s *stream) receive() ([]byte, error) {
	var data bytes.Buffer
	for {
		p, err := s.content()
		if err != nil {
			return nil, err
		}
		if p.status == socket.StatusOK {
			return data.Bytes(), nil
		}
		if len(p.payload) > 0 {
			data.Write(p.payload)
			continue
		}
		if err := s.put(procVolumeDownload, socket.StatusOK, nil); err != nil {
			return nil, err
		}
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
	lvErr := lv.Error{Code: binary.BigEndian.Uint32(payload), Message: "no message"}
	if rest := payload[12:]; binary.BigEndian.Uint32(payload[8:]) == 1 && len(rest) >= 4 {
		length := binary.BigEndian.Uint32(rest)
		lvErr.Message = string(rest[4:min(uint64(len(rest)), 4+uint64(length))])
	}
	return lvErr
}
