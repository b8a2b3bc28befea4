// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const modulePath = "github.com/outrigger/outrigger"

// hostPrograms are what an installation has.
func hostPrograms() []string {
	return []string{"outrigger", "cloud-api-adaptor", "agent-relay", kubectlName}
}

// programs is the folder of those for an architecture.
func (b *builder) programs(arch string) string { return filepath.Join(b.work, "programs", arch) }

func (b *builder) compilePrograms(ctx context.Context) error {
	if b.wants(PartArchive, PartDeb) {
		if err := b.compile(ctx, "amd64", hostPrograms()...); err != nil {
			return err
		}
	}
	if b.wants(PartKubectl) {
		for _, arch := range b.Architectures {
			if err := b.compile(ctx, arch, kubectlName); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile builds static programs for an architecture.
func (b *builder) compile(ctx context.Context, arch string, programs ...string) error {
	folder := b.programs(arch)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	values := modulePath + "/internal/version."
	args := []string{
		"build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-tags", "grpcnotrace", "-o", folder + "/",
		"-ldflags", "-s -w -X " + values + "Version=" + b.source.version + " -X " + values + "Commit=" + b.source.shortCommit(),
	}
	for _, program := range programs {
		args = append(args, "./cmd/"+program)
	}
	_, err := b.run(ctx, []string{"GOOS=linux", "GOARCH=" + arch}, "go", args...)
	return err
}

// run runs a program in the sources and returns what it says, also when it
// fails.
func (b *builder) run(ctx context.Context, env []string, program string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = b.Root
	cmd.Env = append(b.environment(), env...)
	// A program's own children end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return out.Bytes(), nil
}

// environment is this program's without what would change the bytes that
// compilers and scripts make, and without the password of the key.
func (b *builder) environment() []string {
	drop := []string{"COSIGN_PASSWORD", "GOFLAGS", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOWORK", "GO_EXTLINK_ENABLED", "TAGS", "OUT", "TAG", "TZ"}
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.Contains(drop, name) || strings.HasPrefix(name, "CGO_") || strings.HasPrefix(name, "LC_")
	})
	return append(env, "CGO_ENABLED=0", "GOFLAGS=-mod=readonly", "GOAMD64=v1", "GOARM64=v8.0", "GOWORK=off", "LC_ALL=C", "TZ=UTC",
		fmt.Sprintf("SOURCE_DATE_EPOCH=%d", b.source.date.Unix()))
}
