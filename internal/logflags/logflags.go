// SPDX-License-Identifier: Apache-2.0

// Package logflags has the flags that say what controllers log, and the logger
// that they ask for. They also take what manifests of programs say that are built
// with controller-runtime.
package logflags

import (
	"errors"
	"flag"
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Log is what is logged. Its zero value is what the flags say when they are not
// given: level info, as JSON.
type Log struct {
	Level slog.Level
	Text  bool
}

// Add adds --log-level, --log-format and those of controller-runtime.
func (l *Log) Add(f *flag.FlagSet) {
	l.AddLevel(f, "log-level")
	l.AddLevel(f, "zap-log-level")
	l.AddFormat(f, "log-format")
	l.AddFormat(f, "zap-encoder")
	f.BoolFunc("zap-devel", "same as --log-level debug --log-format text", func(text string) error {
		on, err := strconv.ParseBool(text)
		if on {
			l.Level, l.Text = slog.LevelDebug, true
		}
		return err
	})
}

// AddLevel adds a flag for the level. A number is a verbosity, of which 0 is info
// and each one more is a level lower, as in all of Kubernetes.
func (l *Log) AddLevel(f *flag.FlagSet, name string) {
	f.Func(name, "least `level` that is logged: debug, info, warn or error, or a verbosity (default info)", func(text string) error {
		if verbosity, err := strconv.Atoi(text); err == nil && verbosity >= 0 {
			l.Level = slog.Level(-verbosity)
			return nil
		}
		if l.Level.UnmarshalText([]byte(text)) != nil {
			return errors.New("want debug, info, warn or error, or a verbosity such as 2")
		}
		return nil
	})
}

// AddFormat adds a flag for the form of lines.
func (l *Log) AddFormat(f *flag.FlagSet, name string) {
	f.Func(name, "`form` of log lines: json, or text or console (default json)", func(text string) error {
		switch text {
		case "json":
			l.Text = false
		case "text", "console":
			l.Text = true
		default:
			return errors.New("want json or text")
		}
		return nil
	})
}

// Logger returns what writes as the flags say.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: l.Level}
	if l.Text {
		return slog.New(slog.NewTextHandler(w, o))
	}
	return slog.New(slog.NewJSONHandler(w, o))
}

// Install returns the logger, with which the standard library, controller-runtime and
// client-go in this process write from now on.
func (l *Log) Install(w io.Writer) *slog.Logger {
	logger := l.Logger(w)
	slog.SetDefault(logger)
	log.SetLogger(logr.FromSlogHandler(logger.Handler()))
	klog.SetSlogLogger(logger)
	return logger
}
