// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/version"
)

// socketFD is the listening socket that spawn passes on.
const socketFD = 3

// ttrpcVar is where containerd says its ttrpc socket is, which takes events.
const ttrpcVar = "TTRPC_ADDRESS"

// serve runs the shim itself.
func (a *arguments) serve() error {
	log, err := openLog(a.debug)
	if err != nil {
		return err
	}
	log = log.With("sandbox", a.id, "namespace", a.namespace)
	if err := a.serveTasks(log); err != nil {
		log.Error("the shim ends", "error", err)
		return err
	}
	return nil
}

func (a *arguments) serveTasks(log *slog.Logger) error {
	listener, err := net.FileListener(os.NewFile(socketFD, "socket"))
	if err != nil {
		return fmt.Errorf("descriptor %d is not a socket: use the command start: %w", socketFD, err)
	}
	address := os.Getenv(ttrpcVar)
	if address == "" {
		return fmt.Errorf("variable %s is empty: containerd 1.3 or newer sets it", ttrpcVar)
	}
	server, err := ttrpc.NewServer(ttrpc.WithServerHandshaker(ttrpc.UnixSocketRequireSameUser()))
	if err != nil {
		return err
	}
	events := NewPublisher(address, a.namespace, log)
	done := make(chan struct{})
	service := New(Options{Log: log, Events: events, Getenv: os.Getenv, Exit: func() { close(done) }})
	taskapi.RegisterTTRPCTaskService(server, service)
	go terminateOnSignal(log, service)
	log.Info("shim starts", "version", version.Version, "pid", os.Getpid())
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(context.Background(), listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving tasks: %w", err)
	case <-done:
	}
	return a.end(log, server, events)
}

// end waits until the reply to Shutdown and the last events have been sent.
func (a *arguments) end(log *slog.Logger, server *ttrpc.Server, events *Publisher) error {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	events.Close(ctx)
	os.Remove(socketPath(a.address, a.namespace, a.id))
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // a caller still waits for something; it will see the end
	}
	log.Info("shim ends")
	return err
}

// terminateOnSignal removes the VM before the shim ends. The end of containerd
// and SIGHUP are ignored.
func terminateOnSignal(log *slog.Logger, s *Service) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	log.Warn("received a signal: removing the pod's VM", "signal", (<-signals).String())
	s.Terminate()
}

// logFIFO is in the bundle; containerd reads it and writes what comes to its
// own log.
const logFIFO = "log"

// fifo drops what nobody takes: a log must never hold up a pod. A reader that
// comes back after containerd's restart gets what still is in the pipe.
type fifo int

func (f fifo) Write(data []byte) (int, error) {
	if _, err := unix.Write(int(f), data); err != nil && err != unix.EAGAIN {
		return 0, err
	}
	return len(data), nil
}

// openLog opens containerd's FIFO for both directions, so that writes do not
// fail while containerd is down. A panic's trace goes there as well.
func openLog(debug bool) (*slog.Logger, error) {
	fd, err := unix.Open(logFIFO, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("containerd's log FIFO %q in the bundle: %w", logFIFO, err)
	}
	if err := unix.Dup3(fd, 2, 0); err != nil {
		return nil, fmt.Errorf("standard error to the log: %w", err)
	}
	level := slog.LevelInfo
	if debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(fifo(fd), &slog.HandlerOptions{Level: level})), nil
}
