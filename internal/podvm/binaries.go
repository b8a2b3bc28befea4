// SPDX-License-Identifier: Apache-2.0

package podvm

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// modulePath is where the guest's programs are built from.
const modulePath = "github.com/outrigger/outrigger"

// initProgram becomes /init; the other guest programs go to /usr/local/bin.
const initProgram = "podvm-init"

func guestPrograms() []string {
	return []string{initProgram, "process-user-data", "agent-protocol-forwarder", "podvm-agent"}
}

// buildBinaries compiles the guest's programs, static and reproducible, into
// dir. It must run inside a checkout of the module.
func buildBinaries(ctx context.Context, dir string) error {
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("%w, or pass --binaries DIR", missingTool("go", "golang-go"))
	}
	args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w -buildid=", "-o", dir + string(filepath.Separator)}
	for _, p := range guestPrograms() {
		args = append(args, modulePath+"/cmd/"+p)
	}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest's programs: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

// checkBinaries names what a --binaries folder lacks.
func checkBinaries(dir string) error {
	var missing []string
	for _, p := range guestPrograms() {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("--binaries %s has no %s", dir, strings.Join(missing, ", "))
	}
	return nil
}
