// SPDX-License-Identifier: Apache-2.0

package ttrpcframe

import (
	"bytes"
	"net"
	"testing"
)

// writes keeps what each call to Write was given.
type writes struct {
	net.Conn
	calls [][]byte
}

func (w *writes) Write(p []byte) (int, error) {
	w.calls = append(w.calls, bytes.Clone(p))
	return len(p), nil
}

func TestWholeFrames(t *testing.T) {
	var frames [][]byte
	for _, size := range []int{0, 1, 4000, 40000, keepBuffer, 7} {
		f, err := NewFrame(uint32(size), TypeResponse, 0, bytes.Repeat([]byte{byte(size)}, size))
		if err != nil {
			t.Fatal(err)
		}
		frames = append(frames, f)
	}
	for _, piece := range []int{1, 3, headerSize, 4096, 1 << 20} {
		got := &writes{}
		conn := &wholeConn{Conn: got}
		for _, f := range frames {
			for rest := f; len(rest) > 0; {
				n := min(piece, len(rest))
				if m, err := conn.Write(rest[:n]); m != n || err != nil {
					t.Fatalf("wrote %d of %d: %v", m, n, err)
				}
				rest = rest[n:]
			}
		}
		if len(got.calls) != len(frames) {
			t.Fatalf("in pieces of %d: %d writes for %d frames", piece, len(got.calls), len(frames))
		}
		for i, call := range got.calls {
			if !bytes.Equal(call, frames[i]) {
				t.Errorf("in pieces of %d: frame %d has changed", piece, i)
			}
		}
	}
}

func TestFramesInOneWriteStayTogether(t *testing.T) {
	f, err := NewFrame(1, TypeData, 0, []byte("data"))
	if err != nil {
		t.Fatal(err)
	}
	got := &writes{}
	both := append(bytes.Clone(f), f...)
	if _, err := (&wholeConn{Conn: got}).Write(both); err != nil || len(got.calls) != 1 || !bytes.Equal(got.calls[0], both) {
		t.Errorf("%d writes, %v", len(got.calls), err)
	}
}
