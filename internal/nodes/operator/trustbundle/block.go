// SPDX-License-Identifier: Apache-2.0

package trustbundle

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
)

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

// parse returns the certificate in a block.
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
