// SPDX-License-Identifier: Apache-2.0

package dockerengine

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
)

func TestPack(t *testing.T) {
	var out bytes.Buffer
	err := pack(&out, []File{{Name: "/etc/agent/", Mode: 0o700}, {Name: "/etc/agent/a", Mode: 0o600, Data: []byte("data")}, {Name: "b", Mode: 0o755, Content: strings.NewReader("content"), Size: 7}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(&out); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%c %s %o %s", h.Typeflag, h.Name, h.Mode, text))
	}
	if want := []string{"5 etc/agent/ 700 ", "0 etc/agent/a 600 data", "0 b 755 content"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := pack(io.Discard, []File{{Name: "short", Content: strings.NewReader("x"), Size: 2}}); err == nil {
		t.Error("a file that is shorter than it says is packed")
	}
}
