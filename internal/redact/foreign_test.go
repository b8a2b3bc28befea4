// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestForeign(t *testing.T) {
	body := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("#cloud-config key ", 20)))
	for text, want := range map[string]string{
		"Invalid input for field user_data: '" + body + "' is too long": "Invalid input for field user_data: '[hidden]' is too long",
		"cut: " + body[:150]:         "cut: [hidden]",
		"a\x1b[31mb\r\nc\u202ed\x00": "a [31mb  c d ",
		"bad \xff":                   "bad \uFFFD",
		"image sha256:f8902e114ef118304e561c3ecd4d0b543adc226b7a07f675f56564185ffe0c07 is not there": "image sha256:f8902e114ef118304e561c3ecd4d0b543adc226b7a07f675f56564185ffe0c07 is not there",
	} {
		if got := Foreign(text); got != want {
			t.Errorf("%q\nis shown as %q\nwant        %q", text, got, want)
		}
	}
	if got := Foreign(strings.Repeat("a ä ", 4000)); len(got) > maxForeign+30 || !strings.HasSuffix(got, "… (20000 bytes)") {
		t.Errorf("a long text has %d bytes and ends with %q", len(got), got[len(got)-20:])
	}
}

func TestErrorKeepsItsClass(t *testing.T) {
	err := Error(errors.Join(io.ErrUnexpectedEOF, errors.New("refused hunter22")), Known("hunter22"))
	if !errors.Is(err, io.ErrUnexpectedEOF) || err.Error() != "unexpected EOF refused [hidden]" {
		t.Errorf("%q", err)
	}
	if Error(nil, nil) != nil {
		t.Error("an error of nothing")
	}
}
