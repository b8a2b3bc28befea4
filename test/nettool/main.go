// SPDX-License-Identifier: Apache-2.0

// Command nettool is what network tests run inside a pod, where there is only
// busybox: it moves bytes and says what arrived.
//
//	nettool send HOST:PORT BYTES     send zeros by TCP
//	nettool receive HOST:PORT        dial, print "BYTES SHA256" of what comes
//	nettool listen PORT              print "listening", take one connection, print "BYTES SHA256"
//	nettool datagram HOST:PORT SIZE  print "echoed" when a UDP datagram of SIZE bytes, never fragmented, comes back
//	nettool echo PORT                send back what comes by TCP and UDP, for ever
//	nettool lookup NAME              print the addresses
//	nettool lock FILE                lock it or fail at once, print "locked", unlock it when standard input ends
//	nettool pattern BYTES            write blocks of 1024 bytes that begin with their number
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "nettool:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return errors.New("usage: nettool send|receive|listen|datagram|echo|lookup|lock|pattern ARGUMENTS")
	}
	switch args[0] {
	case "send":
		return send(args[1], args[2])
	case "receive":
		return receive(args[1])
	case "listen":
		return listen(args[1])
	case "datagram":
		return datagram(args[1], args[2])
	case "echo":
		return echo(args[1])
	case "lookup":
		return lookup(args[1])
	case "lock":
		return lock(args[1])
	case "pattern":
		return pattern(args[1])
	}
	return fmt.Errorf("no command %q", args[0])
}

func lock(name string) error {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return os.NewSyscallError("flock", err)
	}
	fmt.Println("locked")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func send(address, size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := io.Copy(conn, io.LimitReader(zeros{}, n)); err != nil {
		return err
	}
	// The peer's end of file says that it has read all.
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, conn)
	return err
}

func receive(address string) error {
	conn, err := net.DialTimeout("tcp", address, time.Minute)
	if err != nil {
		return err
	}
	defer conn.Close()
	return sum(conn)
}

func listen(port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	fmt.Println("listening")
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	return sum(conn)
}

func sum(r io.Reader) error {
	hash := sha256.New()
	n, err := io.Copy(hash, r)
	fmt.Printf("%d %x\n", n, hash.Sum(nil))
	return err
}

// datagram forbids fragmentation on the way out (ip(7), IP_PMTUDISC_DO), so
// that what passes has fitted every link.
func datagram(address, size string) error {
	n, err := strconv.Atoi(size)
	if err != nil {
		return err
	}
	conn, err := net.Dial("udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := forbidFragments(conn.(*net.UDPConn)); err != nil {
		return err
	}
	data, buf := bytes.Repeat([]byte("x"), n), make([]byte, 64<<10)
	for range 20 {
		if _, err := conn.Write(data); err != nil {
			return err
		}
		conn.SetReadDeadline(time.Now().Add(2 * time.Second))
		got, err := conn.Read(buf)
		if err == nil && bytes.Equal(buf[:got], data) {
			fmt.Println("echoed")
			return nil
		}
	}
	return errors.New("no answer")
}

func forbidFragments(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		if conn.RemoteAddr().(*net.UDPAddr).IP.To4() != nil {
			serr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IP, syscall.IP_MTU_DISCOVER, syscall.IP_PMTUDISC_DO)
			return
		}
		serr = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_IPV6, syscall.IPV6_MTU_DISCOVER, syscall.IP_PMTUDISC_DO)
	})
	return errors.Join(err, serr)
}

func echo(port string) error {
	datagrams, err := net.ListenPacket("udp", ":"+port)
	if err != nil {
		return err
	}
	go func() {
		buf := make([]byte, 1500)
		for {
			n, from, err := datagrams.ReadFrom(buf)
			if err != nil {
				return
			}
			datagrams.WriteTo(buf[:n], from)
		}
	}()
	l, err := net.Listen("tcp", ":"+port)
	for err == nil {
		var c net.Conn
		if c, err = l.Accept(); err == nil {
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}
	return err
}

func lookup(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addresses, err := (&net.Resolver{PreferGo: true}).LookupHost(ctx, name)
	for _, a := range addresses {
		fmt.Println(a)
	}
	return err
}

func pattern(size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(os.Stdout, 64<<10)
	block := make([]byte, 1024)
	for i := int64(0); i*1024 < n; i++ {
		copy(block, fmt.Sprintf("%016d", i))
		if _, err := out.Write(block); err != nil {
			return err
		}
	}
	return out.Flush()
}
