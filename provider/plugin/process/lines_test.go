// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// merge returns what the host's log has of what a plugin wrote. A second
// passes with each line that is "tick".
func merge(t *testing.T, limit int, text string) (log string, l *lines) {
	t.Helper()
	var out bytes.Buffer
	now := time.Unix(1000, 0)
	l = newLines(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})), limit)
	l.now = func() time.Time { return now }
	for part := range strings.SplitSeq(text, "tick\n") {
		l.read(strings.NewReader(part))
		now = now.Add(time.Second)
	}
	l.flush()
	return out.String(), l
}

func TestLines(t *testing.T) {
	for name, tc := range map[string]struct{ in, want string }{
		"plain":        {"hello\n", "level=INFO msg=hello\n"},
		"no newline":   {"hello", "level=INFO msg=hello\n"},
		"empty":        {"\n\n  \n", ""},
		"slog":         {`{"time":"2026-01-01T00:00:00Z","level":"ERROR","msg":"no","instance":"i","big":9007199254740993}` + "\n", "level=ERROR msg=no big=9007199254740993 instance=i\n"},
		"other level":  {`{"level":"strange","msg":"x"}`, "level=INFO msg=x\n"},
		"lower case":   {`{"level":"warn","msg":"x"}`, "level=WARN msg=x\n"},
		"no message":   {`{"a":1}`, `level=INFO msg="{\"a\":1}"` + "\n"},
		"broken JSON":  {`{"msg":`, `level=INFO msg="{\"msg\":"` + "\n"},
		"number as it": {`{"msg":7}`, `level=INFO msg="{\"msg\":7}"` + "\n"},
		"no UTF-8":     {"a\xffb\n", "level=INFO msg=\"a\uFFFDb\"\n"},
		"two a second": {"1\n2\n3\n4\ntick\n5\n", "level=INFO msg=1\nlevel=INFO msg=2\nlevel=WARN msg=\"lines of the provider plugin were dropped: it writes too many\" dropped=2 limit_per_second=2\nlevel=INFO msg=5\n"},
		"warnings too": {"1\n2\n3\n" + `{"level":"WARN","msg":"w"}`, "level=INFO msg=1\nlevel=INFO msg=2\nlevel=WARN msg=w\nlevel=WARN msg=\"lines of the provider plugin were dropped: it writes too many\" dropped=1 limit_per_second=2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if got, _ := merge(t, 2, tc.in); got != tc.want {
				t.Errorf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
}

func TestOverlongLine(t *testing.T) {
	got, _ := merge(t, 10, strings.Repeat("x", 3*maxLine)+"\nnext\n")
	if len(got) > maxLine+100 || !strings.Contains(got, "xx (cut)") || !strings.HasSuffix(got, "msg=next\n") {
		t.Errorf("%d bytes: …%s", len(got), got[max(0, len(got)-100):])
	}
}

func TestLastWords(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "a\nb\n": "b", `{"msg":"gone"}`: "gone",
		"x\npanic: no luck\n\ngoroutine 1 [running]:\nmain.main()\n\tx.go:1\n": "panic: no luck",
		strings.Repeat("y", 500): strings.Repeat("y", 300) + " (cut)",
	} {
		if _, l := merge(t, 10, in); l.lastWords() != want {
			t.Errorf("%.20q: last words %q, want %q", in, l.lastWords(), want)
		}
	}
}
