// SPDX-License-Identifier: Apache-2.0

package protect

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCommandLines: what the commands do is tested where images are pulled, internal/guest/pull.
func TestCommandLines(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		command, args, want string
	}{
		{"encrypt", "", encryptUsage},
		{"encrypt", "-key " + key + " a", encryptUsage},
		{"encrypt", "a b", encryptUsage},
		{"encrypt", "-unknown", encryptUsage},
		{"encrypt", "-key /nonexistent -kid kbs:///a/b/c a b", "/nonexistent"},
		{"encrypt", "-key " + key + " %% b", "could not parse"},
		{"sign", "-key " + key + " a b", signUsage},
		{"sign", "-key " + key + " a", "-key: is not PEM"},
	} {
		var out bytes.Buffer
		err := Commands[row.command](&out, strings.Fields(row.args))
		if err == nil || !strings.Contains(err.Error(), row.want) || out.Len() > 0 {
			t.Errorf("%s %s: %v, %q; want %q", row.command, row.args, err, &out, row.want)
		}
	}
	var out bytes.Buffer
	if err := Commands["encrypt"](&out, []string{"-h"}); err != nil || !strings.Contains(out.String(), encryptUsage) || !strings.Contains(out.String(), "-kid") {
		t.Errorf("help: %v, %q", err, &out)
	}
}
