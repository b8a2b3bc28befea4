// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

func request(service, method, argument string) []byte {
	var p []byte
	for i, s := range []string{service, method, argument} {
		p = protowire.AppendString(protowire.AppendTag(p, protowire.Number(i+1), protowire.BytesType), s)
	}
	p = protowire.AppendVarint(protowire.AppendTag(p, 4, protowire.VarintType), 60e9) // timeout_nano
	return protowire.AppendString(protowire.AppendTag(p, 5, protowire.BytesType), "metadata")
}

func TestFramesComeBackWhole(t *testing.T) {
	var stream bytes.Buffer
	for _, size := range []int{0, 1, 4096, MaxPayload} {
		frame, err := NewFrame(3, TypeRequest, 1, bytes.Repeat([]byte("x"), size))
		if err != nil {
			t.Fatal(err)
		}
		stream.Write(frame)
	}
	sent := bytes.Clone(stream.Bytes())
	reader, got := NewReader(&stream), []byte{}
	for {
		frame, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if frame.Stream() != 3 || frame.Type() != TypeRequest || frame.Flags() != 1 {
			t.Errorf("header %x", []byte(frame[:headerSize]))
		}
		got = append(got, frame...)
	}
	if !bytes.Equal(got, sent) {
		t.Error("frames were changed on the way")
	}
	if _, err := NewFrame(1, TypeData, 0, make([]byte, MaxPayload+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a frame that is too large: %v", err)
	}
}

func TestBadFrames(t *testing.T) {
	for name, tc := range map[string]struct {
		data []byte
		want error
	}{
		"empty":            {nil, io.EOF},
		"half a header":    {[]byte{0, 0, 0}, ErrTruncated},
		"no payload":       {[]byte{0, 0, 0, 2, 0, 0, 0, 1, 1, 0}, ErrTruncated},
		"half a payload":   {[]byte{0, 0, 0, 2, 0, 0, 0, 1, 1, 0, 'x'}, ErrTruncated},
		"one byte too big": {[]byte{0, 0x40, 0, 1, 0, 0, 0, 1, 1, 0}, ErrTooLarge},
		"type 0":           {[]byte{0, 0, 0, 0, 0, 0, 0, 1, 0, 0}, ErrUnknownType},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := NewReader(bytes.NewReader(tc.data)).Next(); !errors.Is(err, tc.want) {
				t.Errorf("error %v, want %v", err, tc.want)
			}
		})
	}
}

func TestPeekAndRewrite(t *testing.T) {
	payload := request("grpc.AgentService", "CreateContainer", "argument")
	service, method, err := PeekRequest(payload)
	if string(service) != "grpc.AgentService" || string(method) != "CreateContainer" || err != nil {
		t.Errorf("peeked %s %s, %v", service, method, err)
	}
	changed, err := RewriteRequest(payload, func(argument []byte) ([]byte, error) {
		if string(argument) != "argument" {
			t.Errorf("argument %q", argument)
		}
		return []byte("changed"), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	fields := map[protowire.Number]string{}
	eachField(changed, func(n protowire.Number, value, whole []byte) { fields[n] = string(value) })
	if len(fields) != 5 || fields[3] != "changed" || fields[5] != "metadata" {
		t.Errorf("fields %v", fields)
	}
	for _, bad := range [][]byte{{}, {0xff}, payload[:5], request("", "", "")} {
		if _, _, err := PeekRequest(bad); !errors.Is(err, ErrMalformed) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	frame, _ := NewFrame(1, TypeRequest, 0, request("s", "m", "a"))
	f.Add([]byte(frame))
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 1, 1, 0, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		reader, read := NewReader(bytes.NewReader(data)), 0
		for {
			frame, err := reader.Next()
			if err != nil {
				return
			}
			if !bytes.Equal(frame, data[read:read+len(frame)]) {
				t.Fatal("a frame is not what was sent")
			}
			read += len(frame)
		}
	})
}

func FuzzRewrite(f *testing.F) {
	f.Add(request("s", "m", "a"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		service, method, err := PeekRequest(payload)
		if err != nil {
			return
		}
		changed, err := RewriteRequest(payload, func([]byte) ([]byte, error) { return []byte("new"), nil })
		if err != nil {
			t.Fatalf("peeked, but: %v", err)
		}
		again, method2, err := PeekRequest(changed)
		if err != nil || !bytes.Equal(again, service) || !bytes.Equal(method2, method) {
			t.Fatalf("rewriting changed the method to %s %s, %v", again, method2, err)
		}
	})
}
