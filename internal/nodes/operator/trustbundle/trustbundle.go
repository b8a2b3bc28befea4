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
	"os"
	"slices"
	"strings"
	"time"
)

// Source is a text with certificates in PEM. Name says whose it is.
type Source struct {
	Name, Text string
}

// Merge puts the sources before the system's bundle, in order, except for one
// that has the same certificates as another. It returns, too, which parts of sources
// are not in it, and why. An error is about the system's bundle: without it there is
// nothing to trust.
func Merge(sources []Source, system string, now time.Time) (merged string, dropped []string, err error) {
	if err := checkSystem(system); err != nil {
		return "", nil, err
	}
	taken := make([]bundle, len(sources))
	for i, s := range sources {
		taken[i] = read(s, now)
		dropped = append(dropped, taken[i].dropped...)
	}
	var texts []string
	for i, b := range taken {
		same := func(o bundle) bool { return slices.Equal(o.certificates, b.certificates) }
		if len(b.certificates) > 0 && !slices.ContainsFunc(taken[i+1:], same) {
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

type bundle struct {
	text string
	// certificates are in order, each once.
	certificates, dropped []string
}

func read(s Source, now time.Time) (b bundle) {
	var kept bytes.Buffer
	for i, block := range split(s.Text) {
		c, err := block.parse()
		if err == nil && now.After(c.NotAfter) {
			err = fmt.Errorf("it expired on %s", c.NotAfter.UTC().Format(time.RFC3339))
		}
		if err != nil {
			subject := ""
			if c != nil {
				subject = " (" + c.Subject.String() + ")"
			}
			b.dropped = append(b.dropped, fmt.Sprintf("%s: certificate %d%s in line %d: %v", s.Name, i+1, subject, block.line, err))
			continue
		}
		b.certificates = append(b.certificates, string(c.Raw))
		_ = pem.Encode(&kept, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes all
	}
	if len(b.certificates) == 0 && len(b.dropped) == 0 {
		b.dropped = []string{s.Name + ": there is no certificate in it"}
	}
	if b.text = s.Text; len(b.dropped) > 0 || count(s.Text) != len(b.certificates) {
		b.text = kept.String()
	}
	slices.Sort(b.certificates)
	b.certificates = slices.Compact(b.certificates)
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

// block is what stands from a BEGIN to its END, or to where that should have
// been. Package pem skips what it cannot read; here nothing goes unnoticed.
type block struct {
	text string
	line int
	open bool
}

func split(text string) []block {
	var (
		blocks  []block
		current *block
	)
	end := func() {
		if current != nil {
			blocks = append(blocks, *current)
			current = nil
		}
	}
	for i, line := range strings.Split(strings.TrimPrefix(text, "\ufeff"), "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "-----BEGIN ") {
			end()
			current = &block{line: i + 1, open: true}
		}
		// Blank lines and comments may stand within a block, too.
		if current == nil || line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		current.text += line + "\n"
		if strings.HasPrefix(line, "-----END ") {
			current.open = false
			end()
		}
	}
	end()
	return blocks
}

func (b block) parse() (*x509.Certificate, error) {
	if b.open {
		return nil, errors.New("its END line is missing")
	}
	p, _ := pem.Decode([]byte(b.text))
	if p == nil {
		return nil, errors.New("it is not PEM: its lines are not base64, or BEGIN and END differ")
	}
	if p.Type != "CERTIFICATE" {
		return nil, fmt.Errorf("it is not a certificate but a block of type %q", p.Type)
	}
	c, err := x509.ParseCertificate(p.Bytes)
	if err != nil {
		return nil, fmt.Errorf("it is broken: %w", err)
	}
	return c, nil
}

// Where systems keep their authorities: those of Red Hat's family and of Debian's.
const (
	RedHatFile = "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
	DebianFile = "/etc/ssl/certs/ca-certificates.crt"
)

// SystemFile returns the file with the system's authorities: the given one, or
// else the first of the usual ones that is there.
func SystemFile(given string) string {
	if given != "" {
		return given
	}
	for _, path := range []string{RedHatFile, DebianFile} {
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return RedHatFile
}
