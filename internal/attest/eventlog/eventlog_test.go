// SPDX-License-Identifier: Apache-2.0

package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
)

func TestParseAndReplay(t *testing.T) {
	pull, err := PullImage("alpine", "sha256:"+strings.Repeat("0c", 32))
	if err != nil {
		t.Fatal(err)
	}
	line, err := pull.Line()
	if err != nil {
		t.Fatal(err)
	}
	if want := `github.com/confidential-containers PullImage {"digest":"sha256:` + strings.Repeat("0c", 32) + `","image":"alpine"}`; line != want {
		t.Errorf("got %s, want %s", line, want)
	}
	var start [32]byte
	log, err := Parse(New(start) + line + "\nd o several words\n")
	if err != nil || len(log.Events) != 2 || log.Events[0] != pull || log.Events[1].Content != "several words" {
		t.Fatalf("got %v, %v", log, err)
	}
	digest := sha256.Sum256([]byte(line))
	if want := sha256.Sum256(append(make([]byte, 32), digest[:]...)); log.Replay(1) != want || log.Replay(0) != start {
		t.Errorf("the first event leads to %x, want %x", log.Replay(1), want)
	}
}

func TestParseRefuses(t *testing.T) {
	begin := New([32]byte{})
	for name, c := range map[string]struct{ text, err string }{
		"nothing":                 {"", "line feed"},
		"no begin":                {"a b c\n", "does not begin"},
		"other algorithm":         {"INIT/sha384 " + strings.Repeat("0", 96) + "\n", "does not begin"},
		"short digest":            {begin[:20] + "\n", "does not begin"},
		"no end":                  {begin + "a b c", "line feed"},
		"an empty line":           {begin + "\n", "line 2"},
		"two fields":              {begin + "a b c\na b\n", "line 3"},
		"no operation":            {begin + "a  c\n", "DOMAIN OPERATION CONTENT"},
		"carriage return":         {begin + "a b c\r\n", "not printable"},
		"a line that is too long": {begin + "a b " + strings.Repeat("c", MaxLine) + "\n", "longer than the bound"},
		"too long":                {begin + strings.Repeat("a b c\n", MaxSize/6), "more than the bound"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: got %v, want %q", name, err, c.err)
		}
	}
}

func FuzzEventLog(f *testing.F) {
	f.Add(New([32]byte{}) + "a b c\nd e {}\n")
	f.Add("INIT/sha256 \n")
	f.Fuzz(func(t *testing.T, text string) {
		log, err := Parse(text)
		if err != nil {
			return
		}
		// What was read is what was written: no two texts lead to one log.
		again := start + hex.EncodeToString(log.Start[:]) + "\n"
		for _, e := range log.Events {
			line, err := e.Line()
			if err != nil {
				t.Fatalf("an event that was read is refused: %v", err)
			}
			again += line + "\n"
		}
		if !strings.EqualFold(again, text) {
			t.Errorf("%q became %q", text, again)
		}
		log.Replay(len(log.Events))
	})
}
