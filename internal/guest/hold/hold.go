// SPDX-License-Identifier: Apache-2.0

// Package hold lets PID 1 start programs that then wait until they are released: a
// program's start-up, most of which is the initialization of Go packages, is then part
// of a template that is saved, or over before a VM of a pool has its pod.
package hold

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// variable is set in the environment of a held program.
const variable = "OUTRIGGER_HELD"

// fd is the descriptor of the socket on which it waits.
const fd = 3

// Program holds one program, which has to be started with Env and, as descriptor 3, Child.
type Program struct {
	Child *os.File
	own   *os.File
}

// Env returns the variable to add to a held program's environment.
func Env() string { return variable + "=1" }

// New prepares to hold one program. The caller closes Child once the program has been
// started.
func New() (*Program, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	return &Program{Child: os.NewFile(uintptr(pair[0]), "held"), own: os.NewFile(uintptr(pair[1]), "hold")}, nil
}

// Await returns when the program waits, or with an error if it has ended.
func (p *Program) Await() error {
	_, err := io.ReadFull(p.own, make([]byte, 1))
	return err
}

// LetGo releases the program. Another call does nothing.
func (p *Program) LetGo() { p.own.Close() }

// Wait returns at once in a program that is not held, else when it is released or its
// holder has ended. It reports whether the program was held. A held program calls
// prepare before it waits: what that makes is part of a template, so it may have no
// secret and nothing of the pod.
func Wait(prepare ...func()) bool {
	if os.Getenv(variable) == "" {
		return false
	}
	os.Unsetenv(variable)
	for _, f := range prepare {
		f()
	}
	socket := os.NewFile(fd, "held")
	socket.Write([]byte{1})
	io.Copy(io.Discard, socket)
	socket.Close()
	return true
}
