// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"os/exec"
	"testing"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]struct {
		file, debian, semver string
		release              bool
	}{
		"v1.2.3":               {"1.2.3", "1.2.3", "1.2.3", true},
		"v1.2.3-rc.1":          {"1.2.3-rc.1", "1.2.3~rc.1", "1.2.3-rc.1", true},
		"v1.2.3-5-gabc1234":    {"1.2.3-5-gabc1234", "1.2.3+5.gabc1234", "1.2.3-5-gabc1234", false},
		"0123456":              {"0123456", "0.0.0~20231114221320.0123456", "0.0.0-20231114221320.g0123456", false},
		"abc1234-dirty":        {"abc1234-dirty", "0.0.0~20231114221320.abc1234.dirty", "0.0.0-20231114221320.gabc1234-dirty", false},
		"v1.2.3-5-gabc1-dirty": {"1.2.3-5-gabc1-dirty", "1.2.3+5.gabc1.dirty", "1.2.3-5-gabc1-dirty", false},
	} {
		s := source{version: version, date: testDate}
		if got := s.fileVersion(); got != want.file {
			t.Errorf("%s in names of files: %s, want %s", version, got, want.file)
		}
		if got := s.debianVersion(); got != want.debian {
			t.Errorf("%s for Debian: %s, want %s", version, got, want.debian)
		}
		if got := s.semver(); got != want.semver {
			t.Errorf("%s for charts: %s, want %s", version, got, want.semver)
		}
		if got := s.isRelease(); got != want.release {
			t.Errorf("%s is a release: %t", version, got)
		}
	}
}

// dpkg upgrades in the order of the sources.
func TestDebianVersionsAreInOrder(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("needs dpkg; run on Debian: go test ./internal/dist")
	}
	order := []string{"fffffff", "v0.1.0-rc.1", "v0.1.0-rc.2", "v0.1.0", "v0.1.0-2-gfff", "v0.1.0-10-g000", "v0.1.1"}
	for i := range order[1:] {
		a, b := (&source{version: order[i], date: testDate}).debianVersion(), (&source{version: order[i+1], date: testDate}).debianVersion()
		if err := exec.Command("dpkg", "--compare-versions", a, "lt", b).Run(); err != nil {
			t.Errorf("%s is not before %s: %v", a, b, err)
		}
	}
	earlier := source{version: "fffffff", date: testDate}
	later := source{version: "0000000", date: testDate.AddDate(0, 0, 1)}
	if err := exec.Command("dpkg", "--compare-versions", earlier.debianVersion(), "lt", later.debianVersion()).Run(); err != nil {
		t.Errorf("a later commit is not later: %v", err)
	}
}

func TestSource(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "")
	s, err := readSource(t.Context(), "../..", "")
	if err != nil {
		t.Skipf("needs a git checkout: %v; run it in a clone: go test ./internal/dist", err)
	}
	if len(s.commit) != 40 || s.version == "" || s.date.Year() < 2000 || len(s.shortCommit()) != 12 {
		t.Errorf("source: %+v", s)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	if s, err = readSource(t.Context(), "../..", "v9.9.9"); err != nil || !s.date.Equal(testDate) || s.version != "v9.9.9" {
		t.Errorf("source: %+v, %v", s, err)
	}
	if _, err := readSource(t.Context(), "../..", "a b"); err == nil {
		t.Error("a version with a space is one")
	}
	// An archive of the sources is not a repository.
	folder := t.TempDir()
	if s, err = readSource(t.Context(), folder, "v9.9.9"); err != nil || s.commit != "" {
		t.Errorf("source without a repository: %+v, %v", s, err)
	}
	if _, err := readSource(t.Context(), folder, ""); err == nil {
		t.Error("a folder without a repository has a version")
	}
}
