// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// capabilities are those of a confidential image, beside running pods; teeCapabilities those of one whose kernel has configfs-tsm.
var (
	capabilities    = []string{"policy", "attestation-tpm", "key-broker", "sealed-secrets", "encrypted-images", "signed-images"}
	teeCapabilities = []string{"attestation-snp", "attestation-tdx"}
)

const (
	// modulePath is where the guest's programs are built from.
	modulePath = "github.com/outrigger/outrigger"
	// guestProgram is the executable that holds all of them (internal/guest/program).
	guestProgram = "podvm-guest"
	// initProgram becomes /init; the other guest programs go to /usr/local/bin.
	initProgram = "podvm-init"
	imageInit   = "init"
	// ownAgent is not in an image with Kata's.
	ownAgent = "podvm-agent"
)

func guestPrograms() []string {
	return []string{initProgram, "process-user-data", "agent-protocol-forwarder", ownAgent}
}

// imagePath returns the path of a program in the image.
func imagePath(program string) string {
	if program == initProgram {
		return imageInit
	}
	return "usr/local/bin/" + program
}

// addPrograms puts the guest's programs into the image: one executable under
// all names, or those of --binaries as they are.
func (b *builder) addPrograms(context.Context) error {
	for _, p := range guestPrograms() {
		var err error
		switch {
		case p == ownAgent && b.Guest == GuestKata:
			// Its name would start nothing, and would look as if this agent could.
		case b.Binaries != "":
			err = b.tree.copyIn(imagePath(p), filepath.Join(b.Binaries, p), 0o755)
		case p == initProgram:
			err = b.tree.copyIn(imageInit, filepath.Join(b.work, guestProgram), 0o755)
		default:
			b.tree.symlink(imagePath(p), "/"+imageInit)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) loadBinaries(ctx context.Context) error {
	if b.Binaries != "" {
		return checkBinaries(b.Binaries)
	}
	b.Log("compiling the guest's programs")
	out := filepath.Join(b.work, guestProgram)
	var tags string
	if b.Confidential {
		tags, b.summary.Capabilities = "confidential", slices.Clone(capabilities)
	}
	if b.attestsByTEE() {
		b.summary.Capabilities = append(b.summary.Capabilities, teeCapabilities...)
	} else if b.Confidential {
		b.Log("WARNING: kernel %s has no configfs-tsm: VMs attest by a TPM alone, not by SEV-SNP or TDX. Run apt-get update for %s, or pass --kernel-deb FILE", b.kernel.version, confidentialMeta)
	}
	err := buildGuest(ctx, b.Module, out, b.Version, tags)
	if err == nil {
		b.summary.Program, err = os.ReadFile(out)
	}
	return err
}

// attestsByTEE reports whether VMs can have evidence of SEV-SNP and TDX.
func (b *builder) attestsByTEE() bool { return b.Confidential && b.kernel.hasTSM() }

// buildGuest compiles guestProgram, static and reproducible, in a checkout of
// the module.
func buildGuest(ctx context.Context, checkout, out, version, tags string) error {
	if _, err := exec.LookPath("go"); err != nil {
		return fmt.Errorf("%w, or pass --binaries DIR", missingTool("go", "golang-go"))
	}
	module, err := moduleFolder(ctx, checkout)
	if err != nil {
		return err
	}
	ldflags := "-s -w -buildid= -X " + modulePath + "/internal/version.Version=" + version
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-gcflags=all=-dwarf=false", "-tags", tags, "-ldflags", ldflags, "-o", out, "./internal/guest/program")
	cmd.Dir = module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the guest's programs: %w\n%s", err, bytes.TrimSpace(out))
	}
	return nil
}

func moduleFolder(ctx context.Context, checkout string) (string, error) {
	out, err := runTool(ctx, checkout, "golang-go", "go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}")
	if err != nil {
		return "", err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(out), "\t")
	if path != modulePath {
		return "", fmt.Errorf("the guest's programs are built in a checkout of %s, this is %s: change there or pass --binaries DIR", modulePath, path)
	}
	return dir, nil
}

// checkBinaries returns an error that names what a --binaries folder lacks.
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
