// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// module is the prefix that all packages share.
const module = "github.com/outrigger/outrigger/"

// event is a line of `go test -json` (go doc test2json).
type event struct {
	Action, Package, Test, Output string
	Elapsed                       float64 // seconds
}

// action is a step of `go test -debug-actiongraph`.
type action struct {
	Mode, Package    string
	CmdUser, CmdSys  int64 // nanoseconds of processor time
	CmdReal          int64 // nanoseconds
	TimeStart, Error string
}

// timing is what one package or test took, in seconds.
type timing struct {
	name               string
	elapsed, processor float64
	link               float64
}

// wait is the time in which nothing of it ran on any processor, at least.
func (t timing) wait() float64 { return max(0, t.elapsed-t.processor) }

// suite is a test run as its files tell it.
type suite struct {
	packages map[string]*timing
	tests    []timing
	skipped  []string
	compile  float64
}

func report(args []string, out io.Writer) error {
	fs := flag.NewFlagSet("times report", flag.ContinueOnError)
	events := fs.String("json", "", "`files` of go test -json, with commas")
	processor := fs.String("processor", "", "`file` that times run has written")
	actions := fs.String("actions", "", "`file` of go test -debug-actiongraph")
	most := fs.Int("most", 40, "how many packages and tests to show")
	skips := fs.Bool("skipped", false, "show only which tests did not run, and why")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *events == "" {
		return errors.New("times report: -json is missing")
	}
	s := &suite{packages: map[string]*timing{}}
	for file := range strings.SplitSeq(*events, ",") {
		if err := s.readEvents(file); err != nil {
			return err
		}
	}
	if *skips {
		return s.printSkipped(out)
	}
	if err := errors.Join(s.readProcessor(*processor), s.readActions(*actions)); err != nil {
		return err
	}
	return s.print(out, *most)
}

func (s *suite) of(name string) *timing {
	name = strings.TrimPrefix(name, module)
	if s.packages[name] == nil {
		s.packages[name] = &timing{name: name}
	}
	return s.packages[name]
}

// lines calls f with each line of a file; no name is not a file.
func lines(file string, f func(line []byte) error) error {
	if file == "" {
		return nil
	}
	r, err := os.Open(file)
	if err != nil {
		return err
	}
	defer r.Close()
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		if err := f(sc.Bytes()); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return sc.Err()
}

func (s *suite) readEvents(file string) error {
	output := map[string]string{}
	return lines(file, func(line []byte) error {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			return nil // an interrupted run ends within a line
		}
		key := e.Package + " " + e.Test
		switch {
		case e.Action == "output":
			if e.Test != "" && !strings.HasPrefix(strings.TrimSpace(e.Output), "---") && !strings.HasPrefix(e.Output, "===") {
				output[key] = strings.TrimSpace(e.Output)
			}
		case e.Test == "":
			if e.Action == "pass" || e.Action == "fail" {
				s.of(e.Package).elapsed += e.Elapsed
			}
		case e.Action == "skip":
			s.skipped = append(s.skipped, fmt.Sprintf("%s %s: %s", strings.TrimPrefix(e.Package, module), e.Test, output[key]))
		case e.Action == "pass" || e.Action == "fail":
			s.tests = append(s.tests, timing{name: strings.TrimPrefix(e.Package, module) + " " + e.Test, elapsed: e.Elapsed})
		}
		return nil
	})
}

func (s *suite) readProcessor(file string) error {
	return lines(file, func(line []byte) error {
		var p spent
		if err := json.Unmarshal(line, &p); err != nil {
			return err
		}
		if t := s.inFolder(p.Folder); t != nil {
			t.processor += p.Processor
		}
		return nil
	})
}

// inFolder returns the package of a folder, wherever the checkout is: that with
// the longest name that fits.
func (s *suite) inFolder(folder string) (best *timing) {
	for name, t := range s.packages {
		if strings.HasSuffix(folder, "/"+name) && (best == nil || len(name) > len(best.name)) {
			best = t
		}
	}
	return best
}

func (s *suite) readActions(file string) error {
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var list []action
	if err := json.Unmarshal(data, &list); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	for _, a := range list {
		took := float64(a.CmdUser+a.CmdSys) / 1e9
		if a.Mode != "link" {
			s.compile += took
			continue
		}
		name := strings.TrimSuffix(strings.TrimPrefix(a.Package, module), ".test")
		if t := s.packages[name]; t != nil {
			t.link = cmp.Or(took, float64(a.CmdReal)/1e9)
		}
	}
	return nil
}

func (s *suite) print(w io.Writer, most int) error {
	out := bufio.NewWriter(w)
	var packages []timing
	var elapsed, processor, link float64
	for _, t := range s.packages {
		packages = append(packages, *t)
		elapsed += t.elapsed
		processor += t.processor
		link += t.link
	}
	fmt.Fprintf(out, "%d packages: %.0f s one after the other, %.0f s of processor time in tests, %.0f s in links, %.0f s in compilers.\n\n",
		len(packages), elapsed, processor, link, s.compile)
	fmt.Fprintf(out, "| package | elapsed s | processor s | wait s | link s |\n|---|---|---|---|---|\n")
	for _, t := range slowest(packages, most) {
		fmt.Fprintf(out, "| `%s` | %.1f | %.1f | %.1f | %.1f |\n", t.name, t.elapsed, t.processor, t.wait(), t.link)
	}
	fmt.Fprintf(out, "\n| test | elapsed s |\n|---|---|\n")
	for _, t := range slowest(s.tests, most) {
		fmt.Fprintf(out, "| `%s` | %.1f |\n", t.name, t.elapsed)
	}
	return out.Flush()
}

func slowest(list []timing, most int) []timing {
	slices.SortFunc(list, func(a, b timing) int {
		return cmp.Or(cmp.Compare(max(b.elapsed, b.processor), max(a.elapsed, a.processor)), cmp.Compare(a.name, b.name))
	})
	return list[:min(most, len(list))]
}

func (s *suite) printSkipped(w io.Writer) error {
	slices.Sort(s.skipped)
	for _, line := range slices.Compact(s.skipped) {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
