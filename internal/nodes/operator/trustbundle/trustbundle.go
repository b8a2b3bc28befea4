// SPDX-License-Identifier: Apache-2.0

// Package trustbundle puts together the authorities that a cloud controller
// manager trusts. It takes files as people write them, with comments, blank
// lines and lines ended as on Windows; of one that is broken in part it takes
// the rest, and says what it left and why.
package trustbundle

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Source is a text with certificates in PEM. Name says whose it is.
type Source struct {
	Name, Text string
}

// Dropped is a part of a source that is not in the bundle. Number counts the
// blocks of the source from 1; 0 is the source as a whole.
type Dropped struct {
	Source       string
	Number, Line int
	// Subject is the certificate's, where it could be read.
	Subject string
	Why     string
}

func (d Dropped) String() string {
	if d.Number == 0 {
		return d.Source + ": " + d.Why
	}
	subject := ""
	if d.Subject != "" {
		subject = " (" + d.Subject + ")"
	}
	return fmt.Sprintf("%s: certificate %d%s in line %d: %s", d.Source, d.Number, subject, d.Line, d.Why)
}

// Merge puts the sources before the system's bundle, in order, except for one
// that has the same certificates as another. An error is about the system's
// bundle: without it there is nothing to trust.
func Merge(sources []Source, system string, now time.Time) (string, []Dropped, error) {
	if err := checkSystem(system); err != nil {
		return "", nil, err
	}
	var (
		texts   []string
		dropped []Dropped
		taken   []bundle
	)
	for _, b := range readAll(sources, now) {
		dropped = append(dropped, b.dropped...)
		taken = append(taken, b)
	}
	for i, b := range taken {
		if len(b.certificates) > 0 && !b.repeatedIn(taken[i+1:]) {
			texts = append(texts, b.text)
		}
	}
	return strings.Join(append(texts, system), "\n"), dropped, nil
}

// Begins reports whether a bundle has the certificates of another at its beginning, and
// more after them.
func Begins(bundle, with string) bool {
	all, some := certificates(bundle), certificates(with)
	return len(all) > len(some) && slices.Equal(all[:len(some)], some)
}

// certificates returns the certificates of a text that can be parsed.
func certificates(text string) (all []string) {
	for _, b := range split(text) {
		if c, err := b.parse(); err == nil {
			all = append(all, string(c.Raw))
		}
	}
	return all
}

func readAll(sources []Source, now time.Time) []bundle {
	bundles := make([]bundle, len(sources))
	for i, s := range sources {
		bundles[i] = read(s, now)
	}
	return bundles
}

// checkSystem wants a certificate that can be read. What else is in the
// system's bundle is the system's concern: it is taken as it is.
func checkSystem(text string) error {
	var last error
	for _, b := range split(text) {
		if _, last = b.parse(); last == nil {
			return nil
		}
	}
	if last != nil {
		return fmt.Errorf("no certificate in it can be read: %w", last)
	}
	return errors.New("there is no certificate in it")
}

// bundle is a source that was read.
type bundle struct {
	text         string
	certificates []*x509.Certificate
	dropped      []Dropped
}

func read(s Source, now time.Time) bundle {
	var (
		b    bundle
		kept bytes.Buffer
	)
	for i, block := range split(s.Text) {
		c, err := block.parse()
		if err == nil && now.After(c.NotAfter) {
			err = fmt.Errorf("it expired on %s", c.NotAfter.UTC().Format(time.RFC3339))
		}
		if err != nil {
			b.dropped = append(b.dropped, Dropped{s.Name, i + 1, block.line, subject(c), err.Error()})
			continue
		}
		b.certificates = append(b.certificates, c)
		_ = pem.Encode(&kept, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes all
	}
	if len(b.certificates) == 0 && len(b.dropped) == 0 {
		b.dropped = []Dropped{{Source: s.Name, Why: "there is no certificate in it"}}
	}
	if b.text = s.Text; len(b.dropped) > 0 || count(s.Text) != len(b.certificates) {
		b.text = kept.String()
	}
	return b
}

// count returns how many certificates those who read a bundle see.
func count(text string) int {
	n := 0
	for p, rest := pem.Decode([]byte(text)); p != nil; p, rest = pem.Decode(rest) {
		n++
	}
	return n
}

func subject(c *x509.Certificate) string {
	if c == nil {
		return ""
	}
	return c.Subject.String()
}

// repeatedIn reports whether another bundle has these certificates and no others.
func (b bundle) repeatedIn(others []bundle) bool {
	for _, o := range others {
		if b.within(o) && o.within(b) {
			return true
		}
	}
	return false
}

func (b bundle) within(o bundle) bool {
	have := map[string]bool{}
	for _, c := range o.certificates {
		have[string(c.Raw)] = true
	}
	for _, c := range b.certificates {
		if !have[string(c.Raw)] {
			return false
		}
	}
	return true
}
