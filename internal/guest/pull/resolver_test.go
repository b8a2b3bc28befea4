// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"net"
	"slices"
	"testing"
)

// TestQueriesHaveIdentifiersOfTheirOwn has the resolver ask a name server that notes the
// identifiers, and an answer for each identifier that the resolver itself drew.
func TestQueriesHaveIdentifiersOfTheirOwn(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	answers := make(chan [2]byte, 64)
	go serveNames(server, answers)
	var drawn, used [][2]byte
	r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		conn, err := dialNameServer(ctx, network, server.LocalAddr().String())
		if err != nil {
			return nil, err
		}
		return &noting{conn.(*queries), &drawn}, nil
	}}
	for range 8 {
		if got, err := r.LookupNetIP(t.Context(), "ip4", "registry.example."); err != nil || len(got) != 1 || got[0].String() != "198.51.100.2" {
			t.Fatalf("LookupNetIP: %v, %v", got, err)
		}
		used = append(used, <-answers)
	}
	if slices.Equal(drawn, used) {
		t.Errorf("the queries have the resolver's own identifiers %v", drawn)
	}
}

// noting records the identifiers that the resolver drew.
type noting struct {
	*queries
	drawn *[][2]byte
}

func (n *noting) Write(message []byte) (int, error) {
	*n.drawn = append(*n.drawn, [2]byte(message))
	return n.queries.Write(message)
}

// serveNames says to every query that the address is 198.51.100.2, after an answer
// of somebody who guesses the identifier.
func serveNames(server net.PacketConn, asked chan<- [2]byte) {
	query := make([]byte, 512)
	for {
		n, from, err := server.ReadFrom(query)
		if err != nil {
			return
		}
		asked <- [2]byte(query)
		forged := address(query[:n], 203, 0, 113, 66)
		forged[0] ^= 0xff
		server.WriteTo(forged, from)
		server.WriteTo(address(query[:n], 198, 51, 100, 2), from)
	}
}

// address returns an answer with one A record that refers to the question's name.
func address(query []byte, ip ...byte) []byte {
	answer := slices.Clone(query)
	answer[2], answer[3], answer[7] = 0x81, 0x80, 1
	answer[10], answer[11] = 0, 0 // without the query's EDNS record
	if at := endOfQuestion(answer); at < len(answer) {
		answer = answer[:at]
	}
	return append(append(answer, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4), ip...)
}

func endOfQuestion(message []byte) int {
	at := 12
	for message[at] != 0 {
		at += 1 + int(message[at])
	}
	return at + 5
}

// TestAnswerWithTheDrawnIdentifier sends the identifier that the resolver drew, which
// somebody may know who has restored the same VM.
func TestAnswerWithTheDrawnIdentifier(t *testing.T) {
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	conn, err := dialNameServer(t.Context(), "udp", server.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	query, got := []byte{1, 2, 3, 4}, make([]byte, 16)
	for range 3 { // by chance the identifier is the same once in 65,536
		if _, err := conn.Write(query); err != nil {
			t.Fatal(err)
		}
		n, from, err := server.ReadFrom(got)
		if err != nil || n != len(query) {
			t.Fatal(n, err)
		}
		server.WriteTo(got[:n], from)
		server.WriteTo(query, from)
		if n, err = conn.Read(got); err != nil || !slices.Equal(got[:n], query) {
			t.Fatalf("answer %v, %v; want %v", got[:n], err, query)
		}
		if _, err = conn.Read(got); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got[:2], query[:2]) {
			return
		}
	}
	t.Error("an answer with the identifier that was drawn and not sent was taken")
}
