// SPDX-License-Identifier: Apache-2.0

// Package hold lets PID 1 of a VM that is to be saved start programs before
// they may do anything: a program's own start, most of which is Go's
// packages initializing themselves, is then in what was saved.
package hold

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// variable is in the environment of a program that is held.
const variable = "OUTRIGGER_HELD"

// fd is the descriptor of the socket that holds it.
const fd = 3

// Program is what holds a program: it has to be given Env and, as its descriptor 3, Child.
type Program struct {
	Child *os.File
	own   *os.File
}

// Env is one more variable of a held program's environment.
func Env() string { return variable + "=1" }

// New makes the means to hold one program. The caller closes Child once it has been started.
func New() (*Program, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socketpair", err)
	}
	return &Program{Child: os.NewFile(uintptr(pair[0]), "held"), own: os.NewFile(uintptr(pair[1]), "hold")}, nil
}

// Await returns when the program waits, with an error if it has ended.
func (p *Program) Await() error {
	_, err := io.ReadFull(p.own, make([]byte, 1))
	return err
}

// LetGo lets the program go on. Another call does nothing.
func (p *Program) LetGo() { p.own.Close() }

// Wait returns at once in a program that is not held, else when it is let go, or whoever
// holds it has ended.
func Wait() {
	if os.Getenv(variable) == "" {
		return
	}
	os.Unsetenv(variable)
	socket := os.NewFile(fd, "held")
	socket.Write([]byte{1})
	io.Copy(io.Discard, socket)
	socket.Close()
}
