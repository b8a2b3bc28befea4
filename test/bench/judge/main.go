// SPDX-License-Identifier: Apache-2.0

// The command judge compares what the benchmarks have measured with what
// SPECIFICATION.md promises. test/bench.sh runs it behind them, and with -plot
// or -list without them.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/test/bench/promises"
)

const usage = `judge -figures FILE -history FILE [-output docs/benchmarks.md]
judge -plot NAME -history FILE
judge -list -history FILE

Compares the figures of a run of the benchmarks with their promises, writes the
document and its pictures, adds a line to the history and lists the promises that are not kept.
Exit status: 0 all are kept; 1 one is not kept or did not run, or what was asked
for cannot be done; 3 none is known to be broken, but one that wants an idle
machine was not kept on a busy one.
`

type options struct {
	figures, output, history, plot string
	list                           bool
}

func main() {
	status, err := run(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		status = 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		status = promises.StatusNotKept
	}
	os.Exit(status)
}

func run(args []string, stdout io.Writer) (int, error) {
	var o options
	flags := flag.NewFlagSet("judge", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage); flags.PrintDefaults() }
	flags.StringVar(&o.figures, "figures", "", "file that the benchmarks have written")
	flags.StringVar(&o.output, "output", "", "write the document to this file")
	flags.StringVar(&o.history, "history", "", "file with a line for each run")
	flags.StringVar(&o.plot, "plot", "", "draw all runs of the promise with this name")
	flags.BoolVar(&o.list, "list", false, "list all promises with what was measured last")
	if err := flags.Parse(args); err != nil {
		return promises.StatusNotKept, err
	}
	if o.history == "" {
		return promises.StatusNotKept, errors.New("-history FILE is missing")
	}
	if o.plot != "" || o.list {
		return promises.StatusKept, o.show(stdout)
	}
	return o.judge(stdout)
}

func (o options) judge(stdout io.Writer) (int, error) {
	all := promises.All()
	r, err := promises.ReadRun(o.figures, all)
	if err != nil {
		return promises.StatusNotKept, err
	}
	if err := o.document(stdout, r); err != nil {
		return promises.StatusNotKept, err
	}
	if err := r.Append(o.history, all); err != nil {
		return promises.StatusNotKept, fmt.Errorf("history: %w", err)
	}
	results := r.Judge(all)
	promises.Report(stdout, results)
	return promises.Status(results), nil
}

// document prints the document, and writes it if there is a file for it.
func (o options) document(stdout io.Writer, r *promises.Run) error {
	if o.output == "" {
		_, err := fmt.Fprintln(stdout, r.Document(promises.All(), ""))
		return err
	}
	old, err := os.ReadFile(o.output)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := r.Document(promises.All(), string(old))
	fmt.Fprintln(stdout, text)
	for name, picture := range r.Pictures {
		if err := os.WriteFile(filepath.Join(filepath.Dir(o.output), "pictures", filepath.Base(name)), []byte(picture), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(o.output, []byte(text), 0o644)
}

func (o options) show(stdout io.Writer) error {
	all := promises.All()
	p, ok := promises.Find(all, o.plot)
	if o.plot != "" && !ok {
		return fmt.Errorf("-plot %s: no such promise; there are %s", o.plot, strings.Join(promises.Names(all), ", "))
	}
	history, err := promises.ReadHistory(o.history)
	if err != nil {
		return err
	}
	if o.list {
		promises.Summary(stdout, all, history)
		return nil
	}
	return promises.Plot(stdout, p, history)
}
