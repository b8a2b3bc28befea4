// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// generator counts how often it is asked.
type generator struct {
	text  string
	err   error
	calls atomic.Int32
}

func (g *generator) Generate() (string, error) {
	g.calls.Add(1)
	return g.text, g.err
}

func checkUserDataOnce(r *run) {
	c, g := r.creation(newKey()), &generator{text: r.subject.UserData}
	c.config = g
	r.mustDo(c)
	if n := g.calls.Load(); n != 1 {
		r.Errorf("the user-data was generated %d times", n)
	}
}

func checkUserDataError(r *run) {
	c, cause := r.creation(newKey()), errors.New("no entropy")
	c.config = &generator{err: cause}
	if err := r.checkRefused(c, provider.ErrInvalidArgument); !errors.Is(err, cause) {
		r.Errorf("the error does not wrap that of the user-data: %v", err)
	}
}

// checkUserDataNone makes an instance without a generator.
func checkUserDataNone(r *run) {
	c := r.creation(newKey())
	c.config = nil
	r.compareUserData(r.mustDo(c).ID, "")
}

func checkUserDataEmpty(r *run) { r.checkTaken("") }

func checkUserDataLimit(r *run) { r.checkTaken(comment(provider.MinUserData)) }

func checkUserDataExact(r *run) { r.checkTaken(everyCharacter()) }

// beyondLimits is more user-data than clouds take, and less than a message of
// gRPC holds by default (4 MiB).
const beyondLimits = 2 << 20

func checkUserDataHuge(r *run) {
	c, text := r.creation(newKey()), comment(beyondLimits)
	c.config = cloudinit.Raw(text)
	instance, err := r.attempt(c)
	if err != nil {
		r.checkClass("CreateInstance", err, provider.ErrInvalidArgument)
		return
	}
	if instance == nil {
		r.Fatalf("CreateInstance returned neither an instance nor an error")
	}
	r.compareUserData(instance.ID, text)
}

// checkTaken makes an instance with that user-data and looks what arrives.
func (r *run) checkTaken(text string) {
	r.Helper()
	c := r.creation(newKey())
	c.config = cloudinit.Raw(text)
	r.compareUserData(r.mustDo(c).ID, text)
}

func (r *run) compareUserData(id, want string) {
	r.Helper()
	if r.subject.ReadUserData == nil {
		return
	}
	got, err := call(r, "Subject.ReadUserData", func(ctx context.Context) (string, error) {
		return r.subject.ReadUserData(ctx, id)
	})
	if err != nil {
		r.Fatalf("Subject.ReadUserData(%q): %v", id, err)
	}
	if got != want {
		at := difference(got, want)
		r.Errorf("instance %s has %d bytes of user-data, was given %d; they differ from byte %d on: %q instead of %q",
			id, len(got), len(want), at, cut(got[at:]), cut(want[at:]))
	}
}

// difference returns the position of the first difference of two texts.
func difference(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func cut(text string) string { return text[:min(len(text), 20)] }

const emptyConfig = "#cloud-config\nwrite_files: []\n"

// comment returns a #cloud-config of size bytes that contains only comments. It does
// not shrink much when it is compressed: each line has another key.
func comment(size int) string {
	var text strings.Builder
	text.WriteString(emptyConfig)
	for text.Len() < size {
		text.WriteString("# " + newKey() + "\n")
	}
	return text.String()[:size]
}

// everyCharacter returns a #cloud-config with a comment of all characters that YAML
// allows up to U+07FF and some beyond (YAML 1.2, 5.1), with blanks at the end of a
// line, both kinds of line ends, and none at the end of the text.
func everyCharacter() string {
	var text strings.Builder
	text.WriteString(emptyConfig + "# \t blanks \t \r\n\n\n# ")
	for c := rune(0x20); c < 0x800; c++ {
		if c != 0x7f && !unicode.Is(unicode.Cc, c) && utf8.ValidRune(c) {
			text.WriteRune(c)
		}
	}
	text.WriteString("\u200b\u20ac\ufffd\U0001f680\n# $HOME ${x} `id` %s %00 \\n \\ ' \" ]]> <&amp;> {{ .x }}\n#")
	return text.String()
}
