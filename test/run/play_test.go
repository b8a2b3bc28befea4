// SPDX-License-Identifier: Apache-2.0

//go:build integration

package run

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlay runs pods such as those of Kubernetes' own pages, each in a VM.
func TestPlay(t *testing.T) {
	c := newCLI(t)
	for name, want := range map[string]string{
		"command":            "hello world $(MESSAGE) $(UNKNOWN)\n",
		"environment":        "environment demo 10.127.0 warm environment\n",
		"configmap":          "very very\nkeys\nlives=3\nvery read-only\n",
		"secret":             "my-app\n39528$vdg7Jb",
		"two-containers":     "[reader] from the writer\n",
		"init-containers":    "[main] one\n[main] two\n",
		"liveness-exec":      "well\n",
		"probes-http-tcp":    "served\n",
		"security-context":   "1000\n3000\nNoNewPrivs:\t1\nRead-only\n",
		"limits-and-retries": "67108864\n",
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile("testdata/play/" + name + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "pod.yaml")
			if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "image: busybox", "image: "+c.image)), 0o600); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, code := c.run(t, "", "play", file)
			if code != 0 || stdout != want {
				t.Errorf("exit code %d, %q, want %q\n%s", code, stdout, want, stderr)
			}
			c.wantNothing(t)
		})
	}
}
