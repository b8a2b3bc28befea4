// SPDX-License-Identifier: Apache-2.0

package netprobe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Sizes in bytes.
const (
	headers4 = 20 + 8 // IPv4 (RFC 791) and UDP (RFC 768)
	headers6 = 40 + 8 // IPv6 (RFC 8200) and UDP
	// leastMTU is what every path has to carry: RFC 791, section 3.2, has 576 for IPv4, and IPv6 has more.
	leastMTU = 576
	// answerTime is how long the answer to one packet is waited for; there are so many tries.
	answerTime = 500 * time.Millisecond
	tries      = 2
)

// route is a UDP socket whose packets nobody may fragment.
type route struct {
	*net.UDPConn
	headers, mtu int
	answerTime   time.Duration
}

func mtu(ctx context.Context, address string) (string, error) {
	return largest(ctx, address, answerTime)
}

func largest(ctx context.Context, address string, answerTime time.Duration) (string, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "udp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	r := &route{UDPConn: conn.(*net.UDPConn), headers: headers4, answerTime: answerTime}
	if err := r.forbidFragments(); err != nil {
		return "", fmt.Errorf("forbid fragments: %w", err)
	}
	if r.carries(r.mtu) {
		return fmt.Sprintf("%d bytes, the MTU of the route", r.mtu), nil
	}
	if !r.carries(leastMTU) {
		return "", fmt.Errorf("no packet of %d bytes comes back from UDP port %s", leastMTU, address)
	}
	fits, lost := leastMTU, r.mtu
	for lost-fits > 1 {
		if middle := (fits + lost) / 2; r.carries(middle) {
			fits = middle
		} else {
			lost = middle
		}
	}
	return "", fmt.Errorf("the route has MTU %d, and packets of more than %d bytes are lost", r.mtu, fits)
}

func (r *route) forbidFragments() error {
	raw, err := r.SyscallConn()
	if err != nil {
		return err
	}
	level, discover, value, ask := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO, unix.IP_MTU
	if r.RemoteAddr().(*net.UDPAddr).IP.To4() == nil {
		r.headers = headers6
		level, discover, value, ask = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_DO, unix.IPV6_MTU
	}
	controlErr := raw.Control(func(fd uintptr) {
		if err = unix.SetsockoptInt(int(fd), level, discover, value); err == nil {
			r.mtu, err = unix.GetsockoptInt(int(fd), level, ask)
		}
	})
	return errors.Join(controlErr, err)
}

// carries reports whether a packet of so many bytes, headers included, comes back.
func (r *route) carries(size int) bool {
	packet, got := make([]byte, size-r.headers), make([]byte, 1<<16)
	for range tries {
		if _, err := r.Write(packet); errors.Is(err, syscall.EMSGSIZE) {
			return false
		}
		r.SetReadDeadline(time.Now().Add(r.answerTime))
		for {
			n, err := r.Read(got)
			if err != nil {
				break
			}
			if n == len(packet) { // a late answer has another length
				return true
			}
		}
	}
	return false
}
