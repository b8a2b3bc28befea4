// SPDX-License-Identifier: Apache-2.0

// Package netprobe is what runs in the pods of `kubectl outrigger connectivity test`: a server that returns what it is
// sent, and clients that each check one property of the way to it. It is a hidden command of agent-relay, whose image
// is in every installation.
package netprobe

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Command is the command line that Main's arguments are added to.
var Command = []string{"agent-relay", Argument}

// Argument is the first argument of agent-relay that selects this program.
const Argument = "connectivity"

// Port is that of the server, by TCP and UDP.
const Port = "8080"

// Subcommands. All but Serve take an address with a port, Lookup a name. They print one line.
const (
	// Serve returns to clients what they send, until it is killed.
	Serve = "serve"
	// Connect opens a connection.
	Connect = "connect"
	// Echo sends bytes, and wants the same back.
	Echo = "echo"
	// Refused waits until no connection can be opened.
	Refused = "refused"
	// Lookup resolves a name.
	Lookup = "lookup"
	// MTU sends the largest packet of the route without letting anybody fragment it.
	MTU = "mtu"
	// Throughput sends as much as possible and reads it back.
	Throughput = "throughput"
)

const (
	// patience is how long a client tries: rules of Services and policies reach nodes some seconds after their objects.
	patience = 20 * time.Second
	// oneTry bounds a connection: a packet that a policy drops is not answered.
	oneTry = 2 * time.Second
	// again is the time between two tries.
	again = 200 * time.Millisecond
	// measured is how long throughput is.
	measured = 3 * time.Second
)

// Main runs one subcommand and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	said, err := run(args)
	if err != nil {
		fmt.Fprintln(stderr, err)
		return 1
	}
	fmt.Fprintln(stdout, said)
	return 0
}

func run(args []string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if len(args) == 1 && args[0] == Serve {
		return "", serve(net.JoinHostPort("", Port))
	}
	clients := map[string]func(context.Context, string) (string, error){
		Connect: connect, Echo: echo, Refused: refused, Lookup: lookup, MTU: mtu, Throughput: throughput,
	}
	if len(args) != 2 || clients[args[0]] == nil {
		return "", fmt.Errorf("usage: %s serve | (connect | echo | refused | mtu | throughput) ADDRESS:PORT | lookup NAME", strings.Join(Command, " "))
	}
	return clients[args[0]](ctx, args[1])
}

func serve(address string) error {
	packets, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() {
		buffer := make([]byte, 1<<16)
		for {
			if n, from, err := packets.ReadFrom(buffer); err == nil {
				packets.WriteTo(buffer[:n], from)
			}
		}
	}()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn)
		}()
	}
}

// insist repeats what fails until ctx ends, and returns the last error.
func insist(ctx context.Context, do func(context.Context) error) error {
	for {
		one, cancel := context.WithTimeout(ctx, oneTry)
		err := do(one)
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(again):
		}
	}
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", address)
}

// once opens a connection, and wants text back, if there is any.
func once(ctx context.Context, address, text string) error {
	conn, err := dial(ctx, address)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(oneTry))
	got := make([]byte, len(text))
	if _, err := io.WriteString(conn, text); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, got); err != nil {
		return fmt.Errorf("%s accepted the connection and returned nothing: %w", address, err)
	}
	if string(got) != text {
		return fmt.Errorf("%s returned other bytes than it was sent", address)
	}
	return nil
}

func connect(ctx context.Context, address string) (string, error) {
	return exchange(ctx, address, "")
}

func echo(ctx context.Context, address string) (string, error) {
	return exchange(ctx, address, "is anybody there?")
}

func exchange(ctx context.Context, address, text string) (said string, err error) {
	err = insist(ctx, func(ctx context.Context) error {
		began := time.Now()
		err := once(ctx, address, text)
		said = fmt.Sprintf("%s in %.1f ms", address, float64(time.Since(began).Microseconds())/1000)
		return err
	})
	return said, err
}

func refused(all context.Context, address string) (said string, err error) {
	err = insist(all, func(ctx context.Context) error {
		switch err := once(ctx, address, ""); {
		case err == nil:
			return fmt.Errorf("%s can still be reached", address)
		case all.Err() != nil:
			return fmt.Errorf("%s could be reached all the time", address) // the last try was cut short
		default:
			said = err.Error()
			return nil
		}
	})
	return said, err
}

func lookup(ctx context.Context, name string) (said string, err error) {
	err = insist(ctx, func(ctx context.Context) error {
		addresses, err := net.DefaultResolver.LookupHost(ctx, name)
		said = strings.Join(addresses, ", ")
		return err
	})
	return said, err
}

func throughput(ctx context.Context, address string) (string, error) {
	if _, err := connect(ctx, address); err != nil { // the server may just begin
		return "", err
	}
	conn, err := dial(ctx, address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	began := time.Now()
	conn.SetDeadline(began.Add(measured))
	go io.Copy(conn, endless{})
	n, _ := io.Copy(io.Discard, conn) // it ends with the deadline
	if seconds := time.Since(began).Seconds(); n > 0 && seconds >= measured.Seconds() {
		return fmt.Sprintf("%.0f Mbit/s in each direction at once", float64(n)*8/1e6/seconds), nil
	}
	return "", fmt.Errorf("the connection ended after %d bytes", n)
}

// endless reads zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
