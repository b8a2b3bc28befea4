// SPDX-License-Identifier: Apache-2.0

// Package program is the frame of programs that run until a signal: their exit codes,
// mistakes in their command lines, and the signals.
package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"syscall"
)

// Exit codes. Go's package flag has the same for mistakes in the command line.
const (
	ExitOK    = 0
	ExitError = 1
	ExitUsage = 2
)

type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// UsageError marks err, if there is one, as a mistake in the command line or the environment.
func UsageError(err error) error {
	if err == nil {
		return nil
	}
	return usageError{err}
}

// Usagef is [UsageError] of a new error.
func Usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Exit prints err, if there is one, after the program's name, and returns the exit code.
func Exit(name string, stderr io.Writer, err error) int {
	if err == nil {
		return ExitOK
	}
	fmt.Fprintf(stderr, "%s: %v\n", name, err)
	if errors.As(err, new(usageError)) {
		return ExitUsage
	}
	return ExitError
}

// UntilSignal returns what run returns, whose context ends with SIGINT or SIGTERM. A second
// signal ends the process at once.
func UntilSignal[T any](run func(context.Context) T) T {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	return run(ctx)
}
