// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Summary counts results.
type Summary struct {
	Passed, Failed, Skipped int
	Took                    time.Duration
}

// Summarize counts results.
func Summarize(results []Result) Summary {
	var s Summary
	for _, result := range results {
		switch result.Status {
		case Passed:
			s.Passed++
		case Skipped:
			s.Skipped++
		default:
			s.Failed++
		}
		s.Took += result.Took
	}
	return s
}

// String returns the last line of a report.
func (s Summary) String() string {
	return fmt.Sprintf("%d checks: %d passed, %d failed, %d skipped, %.1fs",
		s.Passed+s.Failed+s.Skipped, s.Passed, s.Failed, s.Skipped, s.Took.Seconds())
}

// WriteText writes a line for each check, what those that did not pass said,
// and a summary.
func WriteText(w io.Writer, results []Result) error {
	for _, result := range results {
		if err := WriteResult(w, result); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, Summarize(results))
	return err
}

// WriteResult writes the part of [WriteText] that is about one check.
func WriteResult(w io.Writer, result Result) error {
	text := fmt.Sprintf("%-7s %s (%.2fs)", result.Status, result.Name, result.Took.Seconds())
	switch result.Status {
	case Skipped:
		text += ": " + strings.Join(result.Messages, "; ")
	case Failed:
		text += "\n        contract: " + result.Contract
		for _, message := range result.Messages {
			text += "\n        " + strings.ReplaceAll(message, "\n", "\n        ")
		}
	}
	_, err := fmt.Fprintln(w, text)
	return err
}

// The elements of JUnit's report, as far as the schemas of its many readers
// agree.
type (
	junitSuites struct {
		XMLName  xml.Name   `xml:"testsuites"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Time     string     `xml:"time,attr"`
		Suite    junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		Time    string        `xml:"time,attr"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// WriteJUnit writes the results as JUnit XML: a test suite of that name with a
// test case for each check. What a check that passed has said is its output.
func WriteJUnit(w io.Writer, suite string, results []Result) error {
	s := Summarize(results)
	all := junitSuite{Name: suite, Tests: len(results), Failures: s.Failed, Skipped: s.Skipped, Time: seconds(s.Took)}
	for _, result := range results {
		all.Cases = append(all.Cases, junitCaseOf(suite, result))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Tests: all.Tests, Failures: all.Failures, Time: all.Time, Suite: all}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func junitCaseOf(suite string, result Result) junitCase {
	c := junitCase{Name: result.Name, Class: suite, Time: seconds(result.Took)}
	output := strings.Join(result.Messages, "\n")
	switch result.Status {
	case Failed:
		c.Failure = &junitMessage{Message: "contract: " + result.Contract, Text: output}
	case Skipped:
		c.Skipped = &junitMessage{Message: output}
	default:
		c.Output = output
	}
	return c
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 3, 64) }
