// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// maxLine is the longest line in bytes that reaches the log whole: room for the
// user-data of a pod, which clouds take up to 16 to 64 KiB of.
const maxLine = 64 << 10

// lines merges what a plugin writes into the host's log.
type lines struct {
	log   *slog.Logger
	limit int // a second, for warnings and errors and for the rest
	now   func() time.Time

	mu      sync.Mutex
	second  time.Time // when the current second began
	count   [2]int    // lines in it: the rest, warnings and errors
	dropped int       // of them
	last    string
	fatal   bool // last is the line that says why the process died
}

func newLines(log *slog.Logger, limit int) *lines {
	return &lines{log: log, limit: limit, now: time.Now}
}

// read takes lines until the end of the file.
func (l *lines) read(r io.Reader) {
	in := bufio.NewReaderSize(r, maxLine)
	for {
		line, err := in.ReadSlice('\n')
		cut := errors.Is(err, bufio.ErrBufferFull)
		if text := strings.TrimSpace(strings.ToValidUTF8(string(line), "\uFFFD")); text != "" {
			l.take(text, cut)
		}
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of an overlong line
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

func (l *lines) take(text string, cut bool) {
	if cut {
		text += " (cut)"
	}
	record := parse(text)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remember(record.message)
	if now := l.now(); now.Sub(l.second) >= time.Second {
		l.reportDropped()
		l.second, l.count = now, [2]int{}
	}
	count := &l.count[0]
	if record.level >= slog.LevelWarn { // chatter must not drown them
		count = &l.count[1]
	}
	if *count++; *count > l.limit {
		l.dropped++
		return
	}
	l.log.LogAttrs(context.Background(), record.level, record.message, record.attrs...)
}

// reportDropped is called with the lock held.
func (l *lines) reportDropped() {
	if l.dropped > 0 {
		l.log.Warn("lines of the provider plugin were dropped: it writes too many", "dropped", l.dropped, "limit_per_second", l.limit)
	}
	l.dropped = 0
}

// flush is called after the last line.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reportDropped()
}

// remember keeps the line that tells best why the process ends: the last, or
// the first of a Go panic, after which only the stack comes.
func (l *lines) remember(text string) {
	if l.fatal {
		return
	}
	l.last = text
	l.fatal = strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")
}

// maxLastWords keeps errors readable.
const maxLastWords = 300

func (l *lines) lastWords() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) > maxLastWords {
		return strings.ToValidUTF8(l.last[:maxLastWords], "") + " (cut)"
	}
	return l.last
}

// quote returns the last output, for the end of a sentence.
func (l *lines) quote() string {
	if last := l.lastWords(); last != "" {
		return fmt.Sprintf(" (its last words: %s)", last)
	}
	return ""
}

type record struct {
	level   slog.Level
	message string
	attrs   []slog.Attr
}

// parse understands the lines of slog's JSON handler; anything else is a
// message.
func parse(text string) record {
	asText := record{level: slog.LevelInfo, message: text}
	if !strings.HasPrefix(text, "{") {
		return asText
	}
	var fields map[string]any
	decoder := json.NewDecoder(bytes.NewReader([]byte(text)))
	decoder.UseNumber()
	if err := decoder.Decode(&fields); err != nil {
		return asText
	}
	message, ok := fields[slog.MessageKey].(string)
	if !ok {
		return asText
	}
	r := record{level: levelOf(fields[slog.LevelKey]), message: message}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		switch key {
		case slog.MessageKey, slog.LevelKey, slog.TimeKey:
		default:
			r.attrs = append(r.attrs, slog.Any(key, fields[key]))
		}
	}
	return r
}

func levelOf(value any) slog.Level {
	var level slog.Level
	text, _ := value.(string)
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return slog.LevelInfo
	}
	return level
}
