// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestExit(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
		text string
	}{
		{nil, ExitOK, ""},
		{UsageError(nil), ExitOK, ""},
		{errors.New("the cloud is away"), ExitError, "tool: the cloud is away\n"},
		{Usagef("-size %d: want more", 0), ExitUsage, "tool: -size 0: want more\n"},
		{fmt.Errorf("settings: %w", UsageError(errors.New("-size"))), ExitUsage, "tool: settings: -size\n"},
	} {
		var stderr bytes.Buffer
		if code := Exit("tool", &stderr, c.err); code != c.code || stderr.String() != c.text {
			t.Errorf("%v: exit code %d, %q; want %d, %q", c.err, code, &stderr, c.code, c.text)
		}
	}
}

// TestUntilSignal ends the context by a signal to this process.
func TestUntilSignal(t *testing.T) {
	err := UntilSignal(func(ctx context.Context) error {
		if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
