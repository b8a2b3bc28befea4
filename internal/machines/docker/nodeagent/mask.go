// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outrigger/outrigger/internal/redact"
)

const hidden = redact.Hidden

var (
	// certificateKey opens the private keys that kubeadm has uploaded. A digest
	// looks the same except for what is in front of it.
	certificateKey = regexp.MustCompile(`(sha256:)?\b[0-9a-f]{64}\b`)
	// namedKey and lonelyKey are certificate keys as kubeadm prints them, where
	// other things have 64 digits too, such as containers.
	namedKey  = regexp.MustCompile(`(?i)(certificate[-_ ]?key\W{0,4})[0-9a-f]{64}\b`)
	lonelyKey = regexp.MustCompile(`(?m)^\s*[0-9a-f]{64}\s*$`)
)

// Secrets are what a machine must not print: what looks like kubeadm's, and what
// its bootstrap data have. Its zero value knows the former.
type Secrets struct {
	mu    sync.Mutex
	known func(string) string
}

func (s *Secrets) learn(p *Plan) {
	var secrets []string
	for _, text := range p.texts() {
		secrets = append(secrets, redact.Find(text)...)
		for _, key := range certificateKey.FindAllStringSubmatch(text, -1) {
			if key[1] == "" {
				secrets = append(secrets, key[0])
			}
		}
	}
	slices.Sort(secrets)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = redact.Known(slices.Compact(secrets)...)
}

func (p *Plan) texts() (list []string) {
	for _, f := range p.Files {
		list = append(list, string(f.Content))
	}
	for _, argv := range append(p.Early, p.Commands...) {
		list = append(list, strings.Join(argv, " "))
	}
	return list
}

// hide takes secrets out of a text. Of what a command of the bootstrap prints
// everything goes that may be a certificate key.
func (s *Secrets) hide(text string, ofCommand bool) string {
	s.mu.Lock()
	known := s.known
	s.mu.Unlock()
	if known != nil {
		text = known(text)
	}
	text = redact.BootstrapToken.ReplaceAllString(text, hidden)
	if !ofCommand {
		return lonelyKey.ReplaceAllString(namedKey.ReplaceAllString(text, "${1}"+hidden), hidden)
	}
	return certificateKey.ReplaceAllStringFunc(text, func(match string) string {
		if strings.HasPrefix(match, "sha256:") {
			return match
		}
		return hidden
	})
}

// maxLine is how long a line may be to be shown: it is looked at as a whole.
const maxLine = 64 << 10

// mask is a writer for one source of lines, which it redacts.
type mask struct {
	*Secrets
	ofCommand bool

	mu   sync.Mutex
	out  io.Writer
	line []byte // the beginning of one that has not ended
	long bool   // it was too long already
}

// Write keeps what is not a whole line for later.
func (m *mask) Write(data []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := len(data)
	for len(data) > 0 {
		end := bytes.IndexAny(data, "\n\r")
		if end < 0 {
			m.keep(data)
			return n, nil
		}
		m.keep(data[:end])
		data, end = data[end+1:], int(data[end])
		if err := m.pass(string(rune(end))); err != nil {
			return n, err
		}
	}
	return n, nil
}

func (m *mask) keep(part []byte) {
	if m.long = m.long || len(m.line)+len(part) > maxLine; m.long {
		m.line = m.line[:0]
		return
	}
	m.line = append(m.line, part...)
}

func (m *mask) pass(end string) error {
	text := m.hide(string(m.line), m.ofCommand)
	if m.long {
		text = "[a line of more than 64 KiB, which is not shown]"
	}
	m.line, m.long = m.line[:0], false
	_, err := io.WriteString(m.out, text+end)
	return err
}

func (m *mask) flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.line) > 0 || m.long {
		_ = m.pass("\n")
	}
}

// drain is how long the end of a program's output is waited for, since what it
// has left in the background may keep it.
const drain = time.Second

// pipe returns a file whose writers may outlive the command that was given it,
// and what ends it.
func (m *mask) pipe() (*os.File, func(), error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(m, r)
		_, _ = io.Copy(io.Discard, r) // nothing reads any more, so do not wait
		m.flush()
	}()
	return w, func() {
		w.Close()
		_ = r.SetReadDeadline(time.Now().Add(drain))
		<-done
		r.Close()
	}, nil
}
