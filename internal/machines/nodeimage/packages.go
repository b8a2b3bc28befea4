// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/internal/wholefile"
)

// debPackage is a package file as apt knows it.
type debPackage struct {
	file string
	size int64
	// sum is the SHA-256, empty where apt has another.
	sum string
}

// emptySystem has apt choose as for a system without any package.
var emptySystem = []string{"-o", "Dir::State::status=/dev/null", "-o", "Debug::NoLocking=1", "-o", "APT::Install-Recommends=false", "-o", "APT::Get::Assume-Yes=true"}

// choose returns packages and all that they depend on, without using the network.
func choose(ctx context.Context, names []string) ([]debPackage, error) {
	args := append(append([]string{}, emptySystem...), "install", "--print-uris", "-qq")
	out, err := run(ctx, "", nil, "apt-get", append(args, names...)...)
	if err != nil {
		return nil, fmt.Errorf("%w (apt-get update may help)", err)
	}
	var list []debPackage
	for line := range strings.Lines(out) {
		words := strings.Fields(line) // 'URI' FILE SIZE HASH:HEX
		if len(words) < 3 || !strings.HasPrefix(words[0], "'") {
			continue
		}
		size, err := strconv.ParseInt(words[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("apt-get printed %q", line)
		}
		p := debPackage{file: words[1], size: size}
		for _, w := range words[3:] {
			if sum, ok := strings.CutPrefix(w, "SHA256:"); ok {
				p.sum = sum
			}
		}
		list = append(list, p)
	}
	if len(list) == 0 {
		return nil, errors.New("apt-get knows no packages: run apt-get update on Debian")
	}
	return list, nil
}

// fetch downloads what the cache lacks of packages; apt checks what it fetches.
func (b *builder) fetch(ctx context.Context, names []string, list []debPackage) error {
	dir := filepath.Join(b.Cache, "packages")
	if err := os.MkdirAll(filepath.Join(dir, "partial"), 0o755); err != nil {
		return err
	}
	var missing, size int64
	for _, p := range list {
		if info, err := os.Stat(filepath.Join(dir, p.file)); err != nil || info.Size() != p.size {
			missing, size = missing+1, size+p.size
		}
	}
	if missing > 0 {
		b.Log("downloading %d of %d packages, %.1f MB", missing, len(list), float64(size)/1e6)
		args := append(append([]string{}, emptySystem...), "-o", "Dir::Cache::archives="+dir, "install", "--download-only", "-qq")
		if os.Geteuid() == 0 {
			args = append(args, "-o", "APT::Sandbox::User=root") // apt's own user cannot write to a folder of root's
		}
		if _, err := run(ctx, "", nil, "apt-get", append(args, names...)...); err != nil {
			return fmt.Errorf("%w (a stale package list gives 404: run apt-get update)", err)
		}
	}
	for _, p := range list {
		sum, err := wholefile.SHA256(filepath.Join(dir, p.file))
		if err == nil && p.sum != "" && p.sum != sum {
			err = fmt.Errorf("%s is not what apt expects: remove it", filepath.Join(dir, p.file))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, dir string, env []string, program string, args ...string) (string, error) {
	if _, err := exec.LookPath(program); err != nil {
		return "", fmt.Errorf("%w: node images are built on Debian, with Go", err)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &problems
	cmd.Env = append(append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"), env...)
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, tail(problems.Bytes()))
	}
	return out.String(), nil
}

func tail(text []byte) []byte {
	text = bytes.TrimSpace(text)
	return text[max(0, len(text)-2000):]
}
