// SPDX-License-Identifier: Apache-2.0

package cloudinit

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// InitDataAnnotation is that of a Pod with its initdata, as Kata's runtime names it.
const InitDataAnnotation = "io.katacontainers.config.hypervisor.cc_init_data"

// MaxInitData is the largest initdata in bytes, as TOML. The limit holds while
// unpacking, so a small gzip cannot fill the memory.
const MaxInitData = 1 << 20

// InitData is what the owner of a pod measures into its VM: files by name,
// such as policy.rego, and the hash to take of them. The hash is taken of the
// exact bytes, so an InitData keeps the TOML it was read from. Its fields are
// for reading; make a changed one with [NewInitData].
type InitData struct {
	// Algorithm is sha256, sha384 or sha512.
	Algorithm string
	// Version is that of the format, such as "0.1.0".
	Version string
	// Data maps file names to contents.
	Data map[string]string

	text []byte
}

// initDataFile is the TOML. Keys it does not name are allowed, since they are
// hashed all the same and newer writers have some.
type initDataFile struct {
	Algorithm string            `toml:"algorithm"`
	Version   string            `toml:"version"`
	Data      map[string]string `toml:"data,multiline"`
}

// NewInitData makes initdata from its parts, always the same for the same
// parts. An unknown algorithm, an empty version and names that are not plain
// file names are errors.
func NewInitData(algorithm, version string, data map[string]string) (*InitData, error) {
	text, err := toml.Marshal(initDataFile{algorithm, version, data})
	if err != nil {
		return nil, fmt.Errorf("initdata: %w", err)
	}
	return parseInitData(text)
}

// emptyInitData has, byte for byte, what upstream's VMs measure without initdata, so that
// reference values for them hold for ours.
const emptyInitData = "algorithm = \"sha256\"\nversion = \"0.1.0\"\n\n[data]\n\"aa.toml\" = '''\n'''"

// EmptyInitData returns the initdata of VMs whose pods have none: sha256, version
// 0.1.0, an empty aa.toml.
func EmptyInitData() *InitData {
	d, err := parseInitData([]byte(emptyInitData))
	if err != nil {
		panic(err) // constant input
	}
	return d
}

// DecodeInitData reads initdata in either form that occurs: TOML as kata's
// shim hands it over since 3.16, or base64(gzip(TOML)) as in annotations and
// user-data. Errors never quote the data.
func DecodeInitData(s string) (*InitData, error) {
	packed, ok := unbase64(s)
	if !ok {
		return parseInitData([]byte(s))
	}
	text, err := gunzip(packed)
	if err != nil {
		return nil, fmt.Errorf("initdata: %w", err)
	}
	return parseInitData(text)
}

// Encode returns base64(gzip(TOML)), always the same for the same TOML.
func (d *InitData) Encode() (string, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return "", fmt.Errorf("initdata: %w", err)
	}
	if _, err := w.Write(d.text); err != nil {
		return "", fmt.Errorf("initdata: %w", err)
	}
	if err := w.Close(); err != nil {
		return "", fmt.Errorf("initdata: %w", err)
	}
	return base64.StdEncoding.EncodeToString(packed.Bytes()), nil
}

// TOML returns the exact bytes that Digest hashes.
func (d *InitData) TOML() []byte { return bytes.Clone(d.text) }

// Digest returns the hash of the TOML in lower-case hex.
func (d *InitData) Digest() string { return digests[d.Algorithm](d.text) }

// digests are the algorithms; kata's shim fails hard on any other.
var digests = map[string]func([]byte) string{
	"sha256": func(b []byte) string { sum := sha256.Sum256(b); return hex.EncodeToString(sum[:]) },
	"sha384": func(b []byte) string { sum := sha512.Sum384(b); return hex.EncodeToString(sum[:]) },
	"sha512": func(b []byte) string { sum := sha512.Sum512(b); return hex.EncodeToString(sum[:]) },
}

func parseInitData(text []byte) (*InitData, error) {
	if len(text) > MaxInitData {
		return nil, fmt.Errorf("initdata: more than %d bytes", MaxInitData)
	}
	var file initDataFile
	if err := toml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("initdata: neither base64(gzip(TOML)) nor TOML: %w", tomlPosition(err))
	}
	if err := file.check(); err != nil {
		return nil, fmt.Errorf("initdata: %w", err)
	}
	return &InitData{file.Algorithm, file.Version, file.Data, bytes.Clone(text)}, nil
}

// tomlPosition keeps the place of a syntax error and drops its text, which
// may quote the data.
func tomlPosition(err error) error {
	var syntax *toml.DecodeError
	if !errors.As(err, &syntax) {
		return errors.New("a value has the wrong type")
	}
	line, column := syntax.Position()
	return fmt.Errorf("bad TOML at line %d, column %d", line, column)
}

func (f initDataFile) check() error {
	if digests[f.Algorithm] == nil {
		known := slices.Sorted(maps.Keys(digests))
		return fmt.Errorf("algorithm %q is none of %s", f.Algorithm, strings.Join(known, ", "))
	}
	if f.Version == "" {
		return errors.New("version is missing")
	}
	for name := range f.Data {
		if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
			return fmt.Errorf("data: %q is not a file name", name)
		}
	}
	return nil
}

// unbase64 reports whether s is base64 of a gzip stream, by its first two bytes
// (RFC 1952, section 2.3.1), which no TOML begins with.
func unbase64(s string) ([]byte, bool) {
	s = strings.TrimSpace(s)
	if !strings.HasPrefix(s, "H4sI") {
		return nil, false
	}
	packed, err := base64.StdEncoding.DecodeString(s)
	return packed, err == nil
}

func gunzip(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, MaxInitData+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxInitData {
		return nil, fmt.Errorf("more than %d bytes when unpacked", MaxInitData)
	}
	return text, nil
}
