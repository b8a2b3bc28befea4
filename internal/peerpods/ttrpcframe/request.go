// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

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
