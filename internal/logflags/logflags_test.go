// SPDX-License-Identifier: Apache-2.0

package logflags

import (
	"bytes"
	"flag"
	"io"
	"log/slog"
	"strings"
	"testing"
)

func parse(args ...string) (Log, error) {
	var l Log
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	l.Add(f)
	err := f.Parse(args)
	return l, err
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]Log{
		"":                                   {},
		"--log-level=debug":                  {Level: slog.LevelDebug},
		"--zap-log-level=0":                  {},
		"--log-level=4 --log-format=console": {Level: -4, Text: true},
		"-zap-log-level=error -zap-encoder=console -zap-encoder=json": {Level: slog.LevelError},
		"--zap-devel":                           {Level: slog.LevelDebug, Text: true},
		"--zap-devel=false --log-level=WARN":    {Level: slog.LevelWarn},
		"--zap-devel=true --zap-log-level=info": {Text: true},
	} {
		if got, err := parse(strings.Fields(args)...); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", args, got, err, want)
		}
	}
	for args, want := range map[string]string{
		"--log-level=loud": "want debug", "--zap-log-level=-1": "want debug", "--zap-encoder=xml": "json or text", "--zap-devel=perhaps": "zap-devel",
	} {
		if _, err := parse(args); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", args, err, want)
		}
	}
}

func TestLogger(t *testing.T) {
	for _, l := range []Log{{}, {Level: slog.LevelWarn}, {Text: true}} {
		var out bytes.Buffer
		l.Logger(&out).Info("hello")
		if got := out.String(); (got == "") != (l.Level > slog.LevelInfo) || got != "" && strings.HasPrefix(got, "{") == l.Text {
			t.Errorf("%+v: %q", l, got)
		}
	}
}
