// SPDX-License-Identifier: Apache-2.0

// Package xmlscan reads the elements that are wanted out of XML that a cloud's API has made, and skips the others.
// encoding/xml checks each name, attribute and name space, at a tenth of the speed: a second for a list of
// twenty thousand instances.
package xmlscan

import (
	"bytes"
	"errors"
	"fmt"
	"html"
)

// Scanner stands in an element of a document.
type Scanner struct {
	data []byte
	at   int
	// name is that of the element whose content begins at at, and inside reports whether its content was not read yet.
	name   []byte
	inside bool
	// closed is set for an element without content, <name/>.
	closed bool
}

// New returns a scanner of a document. [Scanner.Each] calls its function for the root first.
func New(document []byte) *Scanner { return &Scanner{data: document, inside: true} }

var errSyntax = errors.New("not the XML of an API")

// maxDepth bounds how deep elements are nested.
const maxDepth = 64

// Each calls f for each element in the current one. f reads the element by Each or Text, or leaves
// it, and then it is skipped.
func (s *Scanner) Each(f func(name string) error) error {
	if !s.inside {
		return fmt.Errorf("%w: element %q was read before", errSyntax, s.name)
	}
	parent := s.name
	s.inside = false
	if s.closed {
		s.closed = false
		return nil
	}
	for {
		tag, err := s.tag()
		switch {
		case err != nil:
			return err
		case tag == nil && parent == nil: // behind the root
			return nil
		case tag == nil, tag[0] == '/' && !bytes.Equal(tag[1:], parent):
			return fmt.Errorf("%w: element %q does not end", errSyntax, parent)
		case tag[0] == '/':
			return nil
		}
		s.name, s.inside = tag, true
		if err := f(string(tag)); err != nil {
			return err
		}
		if s.inside {
			if err := s.skip(tag); err != nil {
				return err
			}
		}
	}
}

// Text returns the text of the current element, which has no others in it.
func (s *Scanner) Text() (string, error) {
	name := s.name
	if !s.inside {
		return "", fmt.Errorf("%w: element %q was read before", errSyntax, name)
	}
	s.inside = false
	if s.closed {
		s.closed = false
		return "", nil
	}
	var text string
	for {
		end := bytes.IndexByte(s.data[s.at:], '<')
		if end < 0 {
			return "", fmt.Errorf("%w: element %q does not end", errSyntax, name)
		}
		text += html.UnescapeString(string(s.data[s.at : s.at+end])) // knows what XML has, and more
		s.at += end
		more, found, err := s.section()
		if err != nil {
			return "", err
		}
		if !found {
			break
		}
		text += string(more)
	}
	if tag, err := s.tag(); err != nil || tag == nil || tag[0] != '/' || !bytes.Equal(tag[1:], name) {
		return "", fmt.Errorf("%w: element %q is not a text", errSyntax, name)
	}
	return text, nil
}

// skip reads to the end of the element.
func (s *Scanner) skip(name []byte) error {
	s.inside = false
	if s.closed {
		s.closed = false
		return nil
	}
	var open [maxDepth][]byte
	open[0] = name
	for depth := 1; depth > 0; {
		tag, err := s.tag()
		switch {
		case err != nil:
			return err
		case tag == nil, depth == maxDepth, tag[0] == '/' && !bytes.Equal(tag[1:], open[depth-1]):
			return fmt.Errorf("%w: element %q does not end", errSyntax, open[depth-1])
		case tag[0] == '/':
			depth--
		case s.closed:
			s.closed = false
		default:
			open[depth] = tag
			depth++
		}
	}
	return nil
}

// What begins a comment and a CDATA section.
const comment, cdata = "<!--", "<![CDATA["

// section goes behind a comment or CDATA section that begins here, and returns its text, which a comment does not have.
func (s *Scanner) section() (text []byte, found bool, err error) {
	rest, begin, end := s.data[s.at:], comment, "-->"
	if bytes.HasPrefix(rest, []byte(cdata)) {
		begin, end = cdata, "]]>"
	} else if !bytes.HasPrefix(rest, []byte(comment)) {
		return nil, false, nil
	}
	text, _, ok := bytes.Cut(rest[len(begin):], []byte(end))
	if !ok {
		return nil, false, fmt.Errorf("%w: %s does not end", errSyntax, begin)
	}
	s.at += len(begin) + len(text) + len(end)
	if begin == comment {
		text = nil
	}
	return text, true, nil
}

// tag reads up to the end of the next tag and returns its name, with the / of an end; nil at the end of the document.
func (s *Scanner) tag() ([]byte, error) {
	for {
		begin := bytes.IndexByte(s.data[s.at:], '<')
		if begin < 0 {
			return nil, nil
		}
		s.at += begin
		if _, found, err := s.section(); err != nil {
			return nil, err
		} else if found {
			continue
		}
		s.at++
		length := bytes.IndexByte(s.data[s.at:], '>')
		if length < 1 {
			return nil, fmt.Errorf("%w: a tag does not end", errSyntax)
		}
		tag := s.data[s.at : s.at+length]
		s.at += length + 1
		switch tag[0] {
		case '?': // the declaration
			continue
		case '!': // DOCTYPE, of which no API makes use
			return nil, fmt.Errorf("%w: <%.16s", errSyntax, tag)
		}
		if tag[len(tag)-1] == '/' && tag[0] != '/' {
			s.closed, tag = true, tag[:len(tag)-1]
		}
		for i, c := range tag {
			if c <= ' ' { // attributes; a > in one of them is &gt;
				tag = tag[:i]
				break
			}
		}
		if len(tag) == 0 || len(tag) == 1 && tag[0] == '/' {
			return nil, fmt.Errorf("%w: a tag without a name", errSyntax)
		}
		return tag, nil
	}
}
