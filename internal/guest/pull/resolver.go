// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
)

// resolver is Go's own with identifiers of queries from the kernel. Go draws them from
// random numbers that a process is seeded with at its start, and that start may be part of
// a saved VM: all that were restored from it would use the same ones.
var resolver = &net.Resolver{PreferGo: true, Dial: dialNameServer}

func dialNameServer(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if udp, ok := conn.(*net.UDPConn); ok {
		return &queries{UDPConn: udp}, err
	}
	return conn, err
}

// queries replaces the identifier of each query, and puts it back into the answers
// to the last one. Over TCP there is nothing to guess.
type queries struct {
	*net.UDPConn
	asked, sent [2]byte // the last identifiers, of the resolver and in the packet
}

// Write implements net.Conn with a DNS message, which begins with its identifier (RFC 1035, 4.1.1).
func (q *queries) Write(message []byte) (int, error) {
	if len(message) < len(q.asked) {
		return 0, errors.New("DNS query without an identifier")
	}
	copy(q.asked[:], message)
	rand.Read(q.sent[:])
	return q.UDPConn.Write(append(q.sent[:], message[len(q.sent):]...))
}

// Read implements net.Conn. An answer with another identifier than the query's keeps
// what no query of the resolver has.
func (q *queries) Read(message []byte) (int, error) {
	n, err := q.UDPConn.Read(message)
	switch {
	case err != nil || n < len(q.sent):
	case [2]byte(message) == q.sent:
		copy(message, q.asked[:])
	default:
		message[0], message[1] = ^q.asked[0], q.asked[1]
	}
	return n, err
}
