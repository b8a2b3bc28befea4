// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/term"

	"github.com/outrigger/outrigger/test/pty"
)

func TestInteractiveTerminal(t *testing.T) {
	s := newStand(t)
	keyboard, tty := pty.Open(t)
	pty.SetSize(t, tty, 20, 70)
	before, err := term.GetState(int(tty.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	screen := &buffer{}
	go io.Copy(screen, keyboard)
	done := make(chan int, 1)
	args := append([]string{"--root", s.root, "--socket", s.node.Socket}, s.sh("trap 'echo got INT' INT; stty size; read a; stty size; read b; exit 9", "-it")...)
	go func() { done <- s.app(tty, tty, io.Discard).Run(args) }()
	eventually(t, "the first size", func() bool { return strings.Contains(screen.String(), "20 70") })
	pty.SetSize(t, tty, 33, 111)
	syscall.Kill(os.Getpid(), syscall.SIGWINCH)
	eventually(t, "the resize", func() bool { return strings.Contains(strings.Join(s.node.Calls(), ","), "TtyWinResize 33x111") })
	io.WriteString(keyboard, "x\n")
	eventually(t, "the new size", func() bool { return strings.Contains(screen.String(), "33 111") })
	io.WriteString(keyboard, "\x03") // the container's terminal makes SIGINT of it
	eventually(t, "ctrl-C in the container", func() bool { return strings.Contains(screen.String(), "got INT") })
	io.WriteString(keyboard, "y\n")
	if got := <-done; got != 9 {
		t.Errorf("code %d, want 9; screen %q", got, screen.String())
	}
	after, err := term.GetState(int(tty.Fd()))
	if err != nil || *after != *before {
		t.Errorf("the terminal was not restored: %v", err)
	}
}

func TestTerminalIsRestoredWhenThePodDies(t *testing.T) {
	s := newStand(t)
	keyboard, tty := pty.Open(t)
	before, _ := term.GetState(int(tty.Fd()))
	screen := &buffer{}
	go io.Copy(screen, keyboard)
	done := make(chan int, 1)
	args := append([]string{"--root", s.root, "--socket", s.node.Socket}, s.sh("echo up; sleep 1000", "-it")...)
	go func() { done <- s.app(tty, tty, io.Discard).Run(args) }()
	eventually(t, "the container is up", func() bool { return strings.Contains(screen.String(), "up") })
	s.node.Agents()[0].Drop()
	if got := <-done; got != 125 {
		t.Errorf("code %d, want 125", got)
	}
	if after, err := term.GetState(int(tty.Fd())); err != nil || *after != *before {
		t.Errorf("the terminal was not restored: %v", err)
	}
}
