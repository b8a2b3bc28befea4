// SPDX-License-Identifier: Apache-2.0

//go:build integration

// Package contract replays what a real Kata shim was recorded to send, from
// CreateVM to StopVM, against our adaptor, relay, forwarder and agent, and
// checks every answer that the recording shows.
package contract

import (
	"bufio"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// call is one request of the recording.
type call struct {
	number   int
	service  string
	method   string
	deadline time.Duration // 0: the shim set none
	body     string        // protojson
}

// answer is a reply that the recorder kept: errors, and WaitProcess.
type answer struct {
	after  int // number of the call it was logged after
	method string
	text   string
}

var (
	requestLine = regexp.MustCompile(`^(\d+) \+ *\d+ms --> ([\w.]+)/(\w+) (?:\[deadline ([\d.]+)s\] )?(\{.*\})$`)
	replyLine   = regexp.MustCompile(`^(\d+) \+ *\d+ms <-- /[\w.]+/(\w+) (.*)$`)
)

// readRun returns one run ("A" or "B") of the recording.
func readRun(t *testing.T, path, run string) (calls []call, answers []answer) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	inRun := false
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line := scanner.Text()
		if name, ok := strings.CutPrefix(line, "#### Run "); ok {
			inRun = name == run
		}
		if !inRun {
			continue
		}
		if m := requestLine.FindStringSubmatch(line); m != nil {
			calls = append(calls, call{number: number(t, m[1]), service: m[2], method: m[3], deadline: seconds(t, m[4]), body: m[5]})
		} else if m := replyLine.FindStringSubmatch(line); m != nil {
			answers = append(answers, answer{after: number(t, m[1]), method: m[2], text: m[3]})
		}
	}
	if err := scanner.Err(); err != nil {
		t.Fatal(err)
	}
	if len(calls) == 0 {
		t.Fatalf("%s has no run %s", path, run)
	}
	return calls, answers
}

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func seconds(t *testing.T, s string) time.Duration {
	t.Helper()
	if s == "" {
		return 0
	}
	d, err := time.ParseDuration(s + "s")
	if err != nil {
		t.Fatal(err)
	}
	return d
}
