// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/provider/config"
)

func parse(args ...string) (Log, error) {
	var l Log
	s := config.Bind(&l)
	f := flag.NewFlagSet("", flag.ContinueOnError)
	f.SetOutput(io.Discard)
	s.AddFlags(f)
	err := errors.Join(f.Parse(args), s.Err())
	return Log{Level: l.Level, Format: l.Format}, err
}

func TestFlags(t *testing.T) {
	for args, want := range map[string]Log{
		"":                                   {Format: "json"},
		"--log-level=debug":                  {Level: Level(slog.LevelDebug), Format: "json"},
		"--zap-log-level=0":                  {Format: "json"},
		"--log-level=4 --log-format=console": {Level: -4, Format: "text"},
		"-zap-log-level=error -zap-encoder=console -zap-encoder=json": {Level: Level(slog.LevelError), Format: "json"},
		"--zap-devel":                           {Level: Level(slog.LevelDebug), Format: "text"},
		"--zap-devel=false --log-level=WARN":    {Level: Level(slog.LevelWarn), Format: "json"},
		"--zap-devel=true --zap-log-level=info": {Format: "text"},
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
	for _, l := range []Log{{}, {Level: Level(slog.LevelWarn)}, {Format: "text"}} {
		var out bytes.Buffer
		l.Logger(&out).Info("hello")
		if got := out.String(); (got == "") != (l.Level > Level(slog.LevelInfo)) || got != "" && strings.HasPrefix(got, "{") == (l.Format == "text") {
			t.Errorf("%+v: %q", l, got)
		}
	}
}
