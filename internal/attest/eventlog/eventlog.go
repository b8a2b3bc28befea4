// SPDX-License-Identifier: Apache-2.0

// Package eventlog has the log of what happened in a VM since it booted: text, a line for each event, whose
// digests extend a register of the TPM. Who has the log and a quote of the register knows that no line was
// changed or left out. The format is the Attestation Agent event log of Confidential Containers.
package eventlog

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/outrigger/outrigger/internal/attest"
)

// PCR is the register of the log. The format's default, 17, and those to 22 cannot be extended by an
// operating system (locality 0), 16 and 23 can be reset by it (TCG PC Client Platform TPM Profile 1.05,
// table 4), and the others below have other users; 15 is that of the system's identity (UAPI group, Linux
// TPM PCR Registry).
const PCR = 15

// Bounds of a log: what [Parse] accepts, in bytes with the line feed.
const (
	MaxSize = attest.MaxRuntimeLog
	MaxLine = 8 << 10
)

// Domain is that of events of Confidential Containers.
const Domain = "github.com/confidential-containers"

// Event is a line.
type Event struct {
	Domain    string `json:"domain"`
	Operation string `json:"operation"`
	Content   string `json:"content"`
}

// PullImage returns the event of a container image that the VM uses: a reference, and the digest of its
// manifest as ALGORITHM:HEX.
func PullImage(image, digest string) (Event, error) {
	// Keys in order, no white space and no escapes for HTML are the canonical form (RFC 8785) of text that
	// [Event.Line] accepts.
	var content strings.Builder
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(struct {
		Digest string `json:"digest"`
		Image  string `json:"image"`
	}{digest, image})
	return Event{Domain, "PullImage", strings.TrimSuffix(content.String(), "\n")}, err
}

// Line returns the event as the log has it, without the line feed, or an error if it is not one line of
// three fields.
func (e Event) Line() (string, error) {
	line := e.Domain + " " + e.Operation + " " + e.Content
	parsed, err := parseLine(line)
	if err == nil && parsed != e {
		err = errors.New("domain and operation of an event have no spaces")
	}
	return line, err
}

func parseLine(line string) (Event, error) {
	if len(line)+1 > MaxLine {
		return Event{}, fmt.Errorf("an event of %d bytes is longer than the bound, %d", len(line)+1, MaxLine)
	}
	for _, c := range []byte(line) {
		if c < ' ' || c > '~' {
			return Event{}, errors.New("an event has a character that is not printable ASCII")
		}
	}
	domain, rest, _ := strings.Cut(line, " ")
	operation, content, _ := strings.Cut(rest, " ")
	if domain == "" || operation == "" || content == "" {
		return Event{}, errors.New("an event is not of the form DOMAIN OPERATION CONTENT")
	}
	return Event{domain, operation, content}, nil
}

// Log is a log, read.
type Log struct {
	// Start is the register's value when the log began.
	Start  [sha256.Size]byte
	Events []Event
}

const start = "INIT/sha256 "

// New returns a log, as text, that begins when the register has a value.
func New(value [sha256.Size]byte) string { return start + hex.EncodeToString(value[:]) + "\n" }

// Parse reads a log: that the text has the format, not that it is true, for which see [Log.Replay].
func Parse(text string) (*Log, error) {
	if len(text) > MaxSize {
		return nil, fmt.Errorf("the runtime log has %d bytes, more than the bound, %d", len(text), MaxSize)
	}
	text, complete := strings.CutSuffix(text, "\n")
	if !complete {
		return nil, errors.New("the runtime log does not end with a line feed")
	}
	first, rest, more := strings.Cut(text, "\n")
	log := &Log{}
	value, is := strings.CutPrefix(first, start)
	digest, err := hex.DecodeString(value)
	if !is || err != nil || len(digest) != len(log.Start) {
		return nil, fmt.Errorf("the runtime log does not begin with %q and a register's value in hex", start)
	}
	copy(log.Start[:], digest)
	if !more {
		return log, nil
	}
	for i, line := range strings.Split(rest, "\n") {
		event, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d of the runtime log: %w", i+2, err)
		}
		log.Events = append(log.Events, event)
	}
	return log, nil
}

// Replay returns the register's value after the first events.
func (l *Log) Replay(events int) [sha256.Size]byte {
	value := l.Start
	for _, e := range l.Events[:events] {
		value = Extend(value, sha256.Sum256([]byte(e.Domain+" "+e.Operation+" "+e.Content)))
	}
	return value
}

// Extend returns the value of a register after it was extended with a digest.
func Extend(value, digest [sha256.Size]byte) [sha256.Size]byte {
	return sha256.Sum256(append(value[:], digest[:]...))
}
