// SPDX-License-Identifier: Apache-2.0

// Package ttrpcframe passes ttrpc connections on, frame by frame, as bytes. It
// decodes no call; by name it can change selected calls, chosen by name.
package ttrpcframe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

const (
	// headerSize is the size of a frame's header: length (4 bytes), stream id
	// (4), type (1), flags (1), big endian (ttrpc PROTOCOL.md).
	headerSize = 10
	// MaxPayload is the most bytes that a frame may carry after its header,
	// the limit of the ttrpc library: 4 MiB.
	MaxPayload = 4 << 20
	// keepBuffer is what a reader keeps of its buffer after a large frame, so
	// that an idle connection holds little memory.
	keepBuffer = 64 << 10
)

// Type is the kind of a frame.
type Type byte

// Frame types of the protocol.
const (
	TypeRequest  Type = 1
	TypeResponse Type = 2
	TypeData     Type = 3
)

// Errors that end a connection.
var (
	ErrTooLarge    = errors.New("frame is larger than 4 MiB")
	ErrTruncated   = errors.New("connection ended within a frame")
	ErrUnknownType = errors.New("unknown frame type")
)

// Frame is one whole frame, header included. Its bytes are valid until the
// next read.
type Frame []byte

// Type of the frame.
func (f Frame) Type() Type { return Type(f[8]) }

// Stream returns the id that ties a response to its request.
func (f Frame) Stream() uint32 { return binary.BigEndian.Uint32(f[4:8]) }

func (f Frame) setStream(id uint32) { binary.BigEndian.PutUint32(f[4:8], id) }

// Flags of the frame.
func (f Frame) Flags() byte { return f[9] }

// Payload returns the bytes after the header.
func (f Frame) Payload() []byte { return f[headerSize:] }

// NewFrame makes a frame. The payload must not exceed [MaxPayload].
func NewFrame(stream uint32, kind Type, flags byte, payload []byte) (Frame, error) {
	if len(payload) > MaxPayload {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(payload))
	}
	f := make(Frame, headerSize, headerSize+len(payload))
	binary.BigEndian.PutUint32(f[0:4], uint32(len(payload)))
	binary.BigEndian.PutUint32(f[4:8], stream)
	f[8], f[9] = byte(kind), flags
	return append(f, payload...), nil
}

// Reader reads frames.
type Reader struct {
	r   io.Reader
	buf []byte
}

// NewReader reads from r, which should be buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next returns the next frame. At the end between two frames it returns
// io.EOF. [ErrTooLarge], [ErrTruncated] and [ErrUnknownType] are final: what
// follows cannot be told apart.
func (r *Reader) Next() (Frame, error) {
	if cap(r.buf) > keepBuffer {
		r.buf = nil
	}
	r.buf = grow(r.buf[:0], headerSize)
	if _, err := io.ReadFull(r.r, r.buf); err != nil {
		return nil, truncated(err)
	}
	length := binary.BigEndian.Uint32(r.buf)
	if length > MaxPayload {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, length)
	}
	if t := Type(r.buf[8]); t < TypeRequest || t > TypeData {
		return nil, fmt.Errorf("%w: %d", ErrUnknownType, t)
	}
	r.buf = grow(r.buf, headerSize+int(length))
	if _, err := io.ReadFull(r.r, r.buf[headerSize:]); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, truncated(err)
	}
	return Frame(r.buf), nil
}

func truncated(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return err
}

// grow returns buf with length n and its content kept.
func grow(buf []byte, n int) []byte {
	if cap(buf) >= n {
		return buf[:n]
	}
	bigger := make([]byte, n, max(n, 4<<10))
	copy(bigger, buf)
	return bigger
}

// Field numbers of the protocol's Request and Response messages.
const (
	requestService = 1
	requestMethod  = 2
	requestPayload = 3
	responseStatus = 1
)

// ErrMalformed means that a request's envelope is not what the protocol says.
var ErrMalformed = errors.New("malformed request")

// PeekRequest returns which method a request's payload calls, without copying.
func PeekRequest(payload []byte) (service, method []byte, err error) {
	err = eachField(payload, func(number protowire.Number, value, _ []byte) {
		switch number {
		case requestService:
			service = value
		case requestMethod:
			method = value
		}
	})
	if err == nil && (len(service) == 0 || len(method) == 0) {
		err = fmt.Errorf("%w: no service or method", ErrMalformed)
	}
	return service, method, err
}

// RewriteRequest returns the payload of a request with its argument changed;
// time-out, metadata and fields that this package does not know are kept as
// they are, in their order.
func RewriteRequest(payload []byte, change func(argument []byte) ([]byte, error)) ([]byte, error) {
	var argument []byte
	out := make([]byte, 0, len(payload)+256)
	err := eachField(payload, func(number protowire.Number, value, whole []byte) {
		if number == requestPayload {
			argument = value
			return
		}
		out = append(out, whole...)
	})
	if err != nil {
		return nil, err
	}
	changed, err := change(argument)
	if err != nil {
		return nil, err
	}
	out = protowire.AppendTag(out, requestPayload, protowire.BytesType)
	return protowire.AppendBytes(out, changed), nil
}

// eachField visits the fields of a message: value is that of a field of bytes,
// whole is the field with its tag.
func eachField(message []byte, visit func(number protowire.Number, value, whole []byte)) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		m := protowire.ConsumeFieldValue(number, kind, message[n:])
		if m < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(m))
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message[n:])
		}
		visit(number, value, message[:n+m])
		message = message[n+m:]
	}
	return nil
}

// ErrorResponse returns the frame that replies to a request with an error: with the
// error's status if it has one, else as Internal.
func ErrorResponse(stream uint32, err error) (Frame, error) {
	st, ok := status.FromError(err)
	if !ok {
		st = status.New(codes.Internal, err.Error())
	}
	encoded, merr := proto.Marshal(st.Proto())
	if merr != nil {
		return nil, merr
	}
	payload := protowire.AppendTag(nil, responseStatus, protowire.BytesType)
	return NewFrame(stream, TypeResponse, 0, protowire.AppendBytes(payload, encoded))
}
