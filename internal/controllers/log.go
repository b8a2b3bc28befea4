// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"io"
	"log/slog"
	"strconv"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// Log is what is logged. Its flags also take what manifests of programs say that are
// built with controller-runtime.
type Log struct {
	Level  Level  `flag:"log-level" default:"info" usage:"least level that is logged: debug, info, warn or error, or a verbosity"`
	Format Format `flag:"log-format" default:"json" usage:"form of log lines: json, or text or console"`

	ZapLevel   string `flag:"zap-log-level" means:"log-level" usage:"the same as --log-level"`
	ZapEncoder string `flag:"zap-encoder" means:"log-format" usage:"the same as --log-format"`
	ZapDevel   bool   `flag:"zap-devel" means:"log-level=debug,log-format=text" usage:"the same as --log-level debug --log-format text"`
}

// Accepted are flags that such programs have, too.
type Accepted struct {
	StackTraces string `flag:"zap-stacktrace-level" usage:"accepted, without effect"`
	Times       string `flag:"zap-time-encoding" usage:"accepted, without effect"`
}

// Level is a level, or as a number a verbosity, of which 0 is info and each one more is
// a level lower, as in all of Kubernetes.
type Level slog.Level

// UnmarshalText implements encoding.TextUnmarshaler.
func (l *Level) UnmarshalText(text []byte) error {
	if verbosity, err := strconv.Atoi(string(text)); err == nil && verbosity >= 0 {
		*l = Level(-verbosity)
		return nil
	}
	if (*slog.Level)(l).UnmarshalText(text) != nil {
		return errors.New("want debug, info, warn or error, or a verbosity such as 2")
	}
	return nil
}

// String implements fmt.Stringer.
func (l Level) String() string { return slog.Level(l).String() }

// Format is the form of lines: text or json.
type Format string

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *Format) UnmarshalText(text []byte) error {
	switch string(text) {
	case "json", "text":
		*f = Format(text)
	case "console":
		*f = "text"
	default:
		return errors.New("want json or text")
	}
	return nil
}

// Logger returns what writes as the flags say.
func (l *Log) Logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: slog.Level(l.Level)}
	if l.Format == "text" {
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
