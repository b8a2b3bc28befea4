// SPDX-License-Identifier: Apache-2.0

package attester

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Extend adds an event to the runtime log and extends its register. The line is durable before the register is
// extended; a process that is killed between the two leaves a line that recoverLog finds by replay.
func (t *TPM) Extend(_ context.Context, event eventlog.Event) error {
	line, err := event.Line()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	size, err := t.recoverLog()
	if err != nil {
		return err
	}
	if size+int64(len(line))+1 > eventlog.MaxSize {
		return fmt.Errorf("the runtime log is full: it has %d bytes", size)
	}
	if err := appendDurably(t.log, line+"\n"); err != nil {
		return fmt.Errorf("the runtime log: %w", err)
	}
	return t.extend(eventlog.PCR, sha256.Sum256([]byte(line)))
}

func appendDurably(path, text string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = io.WriteString(file, text)
	return errors.Join(err, file.Sync(), file.Close())
}

// recoverLog makes log and register agree, and returns the log's size in bytes. A log that is empty is begun, a
// line that is not complete is removed, and a last line that did not extend the register does it now.
func (t *TPM) recoverLog() (int64, error) {
	data, err := readBounded(t.log, eventlog.MaxSize)
	if err != nil {
		return 0, fmt.Errorf("the runtime log: %w", err)
	}
	value, err := t.readPCR(eventlog.PCR)
	if err != nil {
		return 0, err
	}
	text := string(data[:strings.LastIndexByte(string(data), '\n')+1])
	if text == "" {
		text = eventlog.New(value)
	}
	log, err := eventlog.Parse(text)
	if err != nil {
		return 0, err
	}
	switch n := len(log.Events); {
	case value == log.Replay(n):
	case n > 0 && value == log.Replay(n-1):
		line, _ := log.Events[n-1].Line()
		err = t.extend(eventlog.PCR, sha256.Sum256([]byte(line)))
	default:
		err = fmt.Errorf("PCR %d does not have the value of the runtime log: something else extended it, or %s was changed. Start the VM again", eventlog.PCR, t.log)
	}
	if err == nil && text != string(data) {
		err = wholefile.Replace(t.log, []byte(text), 0o600)
	}
	return int64(len(text)), err
}
