// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// keepGoFolder makes a folder of the Go tool independent of HOME.
func keepGoFolder(name string) {
	if os.Getenv(name) != "" {
		return
	}
	if out, err := exec.Command("go", "env", name).Output(); err == nil {
		os.Setenv(name, strings.TrimSpace(string(out)))
	}
}

// ModuleDir returns the folder of a module at a version, such as
// "github.com/aws/aws-sdk-go@v1.55.8", downloading it if need be: clouds'
// machine-readable definitions come in modules.
func ModuleDir(t testing.TB, module string) string {
	t.Helper()
	// Outside any module, since a definition need be no dependency of ours.
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir()
	out, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(out, &answer); jsonErr != nil || answer.Dir == "" {
		t.Fatalf("go mod download %s: %v: %s%s", module, err, answer.Error, stderr(err))
	}
	return answer.Dir
}

func stderr(err error) string {
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return fmt.Sprintf(": %s", exit.Stderr)
	}
	return ""
}
