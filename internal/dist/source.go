// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/sbom"
)

// source is what is built.
type source struct {
	// version is that of `git describe`.
	version string
	// commit is the whole hash; empty where there is no repository.
	commit string
	// changed says that files differ from the commit.
	changed bool
	// date is that of the commit, and of every file that is made.
	date time.Time
}

// readSource looks at a checkout. SOURCE_DATE_EPOCH replaces its date, and is
// needed where there is no repository.
func readSource(ctx context.Context, root, version string) (*source, error) {
	s := &source{version: version}
	commit, err := git(ctx, root, "rev-parse", "HEAD")
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	switch {
	case err == nil:
		s.commit = commit
		status, err := git(ctx, root, "status", "--porcelain", "--untracked-files=no")
		if err != nil {
			return nil, err
		}
		s.changed = status != ""
		if epoch == "" {
			if epoch, err = git(ctx, root, "log", "-1", "--format=%ct"); err != nil {
				return nil, err
			}
		}
	case epoch == "" || version == "":
		return nil, fmt.Errorf("%w; outside of a git repository, give -version and set SOURCE_DATE_EPOCH", err)
	}
	if s.version == "" {
		if s.version, err = git(ctx, root, "describe", "--tags", "--always", "--dirty"); err != nil {
			return nil, err
		}
	}
	if !versionName.MatchString(s.version) {
		return nil, fmt.Errorf("-version %q: want letters, digits, dots and hyphens, such as v0.1.0", s.version)
	}
	s.date, err = sbom.SourceDate(epoch)
	return s, err
}

// shortCommit is what programs say.
func (s *source) shortCommit() string { return s.commit[:min(12, len(s.commit))] }

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", root}, args...)...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = errors.New(strings.TrimSpace(string(failed.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

var (
	// versionName is part of file names and of images' tags.
	versionName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,99}$`)
	// releaseName is a release, with what may come before or after it.
	releaseName = regexp.MustCompile(`^v?(\d+\.\d+\.\d+)(?:-(.+))?$`)
	// afterRelease is what `git describe` adds to the last tag.
	afterRelease = regexp.MustCompile(`^(\d+)-(g[0-9a-f]+(?:-dirty)?)$`)
)

// fileVersion is the version in names of files.
func (s *source) fileVersion() string {
	if releaseName.MatchString(s.version) {
		return strings.TrimPrefix(s.version, "v")
	}
	return s.version
}

// debianVersion sorts as the sources do: candidates before their release,
// commits after it, and those before the first release by their date.
func (s *source) debianVersion() string {
	m := releaseName.FindStringSubmatch(s.version)
	if m == nil {
		return "0.0.0~" + s.date.Format("20060102150405") + "." + strings.ReplaceAll(s.version, "-", ".")
	}
	if after := afterRelease.FindStringSubmatch(m[2]); after != nil {
		return m[1] + "+" + after[1] + "." + strings.ReplaceAll(after[2], "-", ".")
	}
	if m[2] != "" {
		return m[1] + "~" + strings.ReplaceAll(m[2], "-", ".")
	}
	return m[1]
}

// semver is the version of charts and of the plugin for kubectl, without a v.
func (s *source) semver() string {
	if releaseName.MatchString(s.version) {
		return strings.TrimPrefix(s.version, "v")
	}
	return "0.0.0-" + s.date.Format("20060102150405") + ".g" + strings.ReplaceAll(s.version, ".", "-")
}

// isRelease reports whether clusterctl would take the version.
func (s *source) isRelease() bool {
	m := releaseName.FindStringSubmatch(s.version)
	return m != nil && strings.HasPrefix(s.version, "v") && !afterRelease.MatchString(m[2])
}
