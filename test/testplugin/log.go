// SPDX-License-Identifier: Apache-2.0

package testplugin

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

// Log is one that several goroutines write.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns all of it.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Says fails the test for each text that the log does not have.
func (l *Log) Says(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(l.String(), text) {
			t.Errorf("the log does not say %q:\n%s", text, l)
		}
	}
}
