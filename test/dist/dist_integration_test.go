// SPDX-License-Identifier: Apache-2.0

//go:build integration

package dist

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/dist"
	"github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
)

func TestMain(m *testing.M) { testns.Main(m) }

// cache is the folder that `make setup` and `make podvm` fill.
func cache(t *testing.T) string {
	t.Helper()
	if dir := os.Getenv("OUTRIGGER_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "outrigger")
}

// newKey writes a private key and returns its file.
func newKey(t *testing.T) (string, *ecdsa.PublicKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "release.key")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, &key.PublicKey
}

// distribution makes one of the sources in root and returns its folder.
func distribution(t *testing.T, root, key string, parts ...string) string {
	t.Helper()
	output := filepath.Join(t.TempDir(), "dist")
	err := dist.Make(t.Context(), dist.Options{
		Root: root, Output: output, Cache: filepath.Join(cache(t), "podvm"), Prefix: "localhost/outrigger", Parts: parts, Key: key,
		Kustomize: filepath.Join(cache(t), "tools", "kustomize"), Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// one returns the only file that a pattern matches.
func one(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", pattern, found, err)
	}
	return found[0]
}

// TestDistribution makes package and archive, uses them where nothing of the
// sources is, and makes them again of sources in another folder.
func TestDistribution(t *testing.T) {
	testns.RequireRoot(t)
	key, public := newKey(t)
	parts := []string{dist.PartArchive, dist.PartDeb}
	made := distribution(t, stand.Root(), key, parts...)
	t.Run("Verified", func(t *testing.T) { verify(t, made, public) })
	t.Run("Installed", func(t *testing.T) { install(t, made) })
	t.Run("Reproducible", func(t *testing.T) {
		wantEqual(t, made, distribution(t, anotherCheckout(t), key, parts...))
	})
}

// TestWholeDistributionTwice does so with all that there is.
func TestWholeDistributionTwice(t *testing.T) {
	testns.RequireRoot(t)
	if os.Getenv("OUTRIGGER_TEST_ALL") != "1" {
		t.Skip("all parts, twice, are of `make test-all`, which sets OUTRIGGER_TEST_ALL=1; TestDistribution makes package and archive twice")
	}
	key, public := newKey(t)
	made := distribution(t, stand.Root(), key)
	verify(t, made, public)
	wantEqual(t, made, distribution(t, anotherCheckout(t), key))
}

// A disk that is too small is noticed before anything is built.
func TestNoSpace(t *testing.T) {
	testns.RequireRoot(t)
	disk := t.TempDir()
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Unmount(disk, 0) })
	var said strings.Builder
	code := dist.Run([]string{"-root", stand.Root(), "-output", filepath.Join(disk, "dist"), "-only", "charts"}, &said, &said)
	if code != 1 || strings.Count(said.String(), "\n") != 1 || !strings.Contains(said.String(), "16 MiB of free space") {
		t.Errorf("code %d: %s", code, &said)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// verify does what users are told to do: the list is signed, the files are as
// listed, and the provenance is of all of them.
func verify(t *testing.T, made string, public *ecdsa.PublicKey) {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(made, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := os.ReadFile(filepath.Join(made, "SHA256SUMS.sig"))
	if err != nil {
		t.Fatal(err)
	}
	signature, err := base64.StdEncoding.DecodeString(string(encoded))
	digest := sha256.Sum256(list)
	if err != nil || !ecdsa.VerifyASN1(public, digest[:], signature) {
		t.Errorf("the signature is not of SHA256SUMS: %v", err)
	}
	check := exec.Command("sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS")
	check.Dir = made
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
	listed := map[string]string{}
	for line := range strings.Lines(string(list)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	for name := range contents(t, made) {
		if listed[name] == "" && !strings.HasPrefix(name, "SHA256SUMS") {
			t.Errorf("%s is not listed", name)
		}
	}
	var provenance struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	data, err := os.ReadFile(filepath.Join(made, "provenance.intoto.json"))
	if err == nil {
		err = json.Unmarshal(data, &provenance)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(listed, "provenance.intoto.json")
	for _, s := range provenance.Subject {
		if listed[s.Name] != s.Digest["sha256"] {
			t.Errorf("the provenance has %s of %s", s.Digest["sha256"], s.Name)
		}
		delete(listed, s.Name)
	}
	if len(listed) > 0 {
		t.Errorf("the provenance does not have %v", listed)
	}
}

// contents returns modes and checksums of all files of a folder.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(file)
		if err == nil {
			info, _ := d.Info()
			all[strings.TrimPrefix(file, folder+"/")] = fmt.Sprintf("%s %x", info.Mode(), sha256.Sum256(data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func wantEqual(t *testing.T, a, b string) {
	t.Helper()
	first, second := contents(t, a), contents(t, b)
	if len(first) < 5 {
		t.Errorf("there are only %v", first)
	}
	if d := cmp.Diff(first, second); d != "" {
		t.Errorf("two builds differ (-first +second):\n%s", d)
	}
}

// anotherCheckout copies the sources as they are into another folder, and makes
// builds there differ in what they inherit.
func anotherCheckout(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "elsewhere")
	files := output(t, stand.Root(), "git", "ls-files", "--cached", "--others", "--exclude-standard")
	for name := range strings.FieldsFuncSeq(files, func(r rune) bool { return r == '\n' }) {
		copyFile(t, filepath.Join(stand.Root(), name), filepath.Join(folder, name))
	}
	repository := strings.TrimSpace(output(t, stand.Root(), "git", "rev-parse", "--absolute-git-dir"))
	if err := os.WriteFile(filepath.Join(folder, ".git"), []byte("gitdir: "+repository+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	t.Setenv("TZ", "Asia/Kathmandu")
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("GOAMD64", "v2")
	umask := syscall.Umask(0o077)
	t.Cleanup(func() { syscall.Umask(umask) })
	return folder
}

// copyFile copies a file or a link; one that was deleted and not yet committed
// stays away.
func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Lstat(from)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	switch {
	case err != nil:
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = os.Readlink(from); err == nil {
			err = os.Symlink(target, to)
		}
	default:
		var data []byte
		if data, err = os.ReadFile(from); err == nil {
			err = os.WriteFile(to, data, info.Mode().Perm())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// output returns what a program prints.
func output(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(slices.Clone(os.Environ()), "LC_ALL=C")
	out, err := cmd.Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) {
			err = fmt.Errorf("%w: %s", err, failed.Stderr)
		}
		t.Fatalf("%s %v: %v", program, args, err)
	}
	return string(out)
}
