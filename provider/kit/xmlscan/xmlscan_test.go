// SPDX-License-Identifier: Apache-2.0

package xmlscan

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"testing"
)

// paths returns the texts of all elements without elements in them, with their names.
func paths(document []byte) (list []string, err error) {
	s := New(document)
	var walk func(string) error
	walk = func(name string) error {
		before := *s
		text, err := s.Text()
		if err == nil {
			list = append(list, name+"="+text)
			return nil
		}
		*s = before
		return s.Each(walk)
	}
	return list, s.Each(walk)
}

func TestScanner(t *testing.T) {
	const document = `<?xml version="1.0"?>
<r xmlns="urn:x"><a>1 &lt; 2 &amp; &#34;</a><b/><c k="v" /><d> <a></a>` + "\n" + `</d><e>é</e><f>1<!-- </f> -->2<![CDATA[<&amp;>]]>3</f><!-- --><g><![CDATA[]]></g></r>` + "\n"
	got, err := paths([]byte(document))
	if want := []string{`a=1 < 2 & "`, "b=", "c=", "a=", "e=é", "f=12<&amp;>3", "g="}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q: %v", got, err)
	}
}

func TestElementsAreSkipped(t *testing.T) {
	s := New([]byte(`<r><x><y><y/>1</y></x><a>2</a><x/></r>`))
	var names []string
	err := s.Each(func(string) error {
		return s.Each(func(name string) error { names = append(names, name); return nil })
	})
	if err != nil || !slices.Equal(names, []string{"x", "a", "x"}) {
		t.Errorf("%q: %v", names, err)
	}
}

func TestBadDocuments(t *testing.T) {
	for _, document := range []string{
		"<r>", "<r", "<r><a></r>", "<r><a></b></r>", "<r></r", "<></>", "<r><![CDATA[x]]", "<!DOCTYPE r><r/>", "<r><!-- -></r>", "<r><a>1", "<r>1</a></r>", "</r>",
	} {
		if got, err := paths([]byte(document)); !errors.Is(err, errSyntax) {
			t.Errorf("%s: %q, %v", document, got, err)
		}
		s := New([]byte(document))
		if err := s.Each(func(string) error { return nil }); document != "</r>" && !errors.Is(err, errSyntax) {
			t.Errorf("%s, skipped: %v", document, err)
		}
	}
}

// FuzzScanner compares what both can read.
func FuzzScanner(f *testing.F) {
	f.Add([]byte(`<r><a x="1">2</a><b/>&amp;</r>`))
	f.Fuzz(func(t *testing.T, document []byte) {
		_, err := paths(document)
		if err == nil || bytes.ContainsAny(document, "!") {
			return
		}
		for d := xml.NewDecoder(bytes.NewReader(document)); ; {
			token, xmlErr := d.Token()
			switch start, ok := token.(xml.StartElement); {
			case xmlErr == io.EOF:
				t.Errorf("%q: %v", document, err)
				return
			case xmlErr != nil, ok && len(start.Attr) > 0: // we take no > in attributes
				return
			}
		}
	})
}
