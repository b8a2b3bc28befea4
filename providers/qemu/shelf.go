// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider"
)

// stored is a record that can be kept on a shelf.
type stored interface {
	names() (id, key *string)
}

// shelf is the folder of all instances, disks or snapshots. Each has a folder of its own, which is
// called by its id, with its record in it.
type shelf struct {
	// state is the state folder, and kind is instance, disk or snapshot.
	state, kind string
}

// records reads the records of a shelf. R is a pointer to one.
type records[R interface {
	comparable
	stored
}] struct{ shelf }

// Folders that begin with a dot are none of a shelf: they are being made or removed.
const (
	newPrefix  = ".new-"
	gonePrefix = ".gone-"
)

const imageName = "image.raw"

func (s shelf) dir() string                { return filepath.Join(s.state, s.kind+"s") }
func (s shelf) folder(id string) string    { return filepath.Join(s.dir(), id) }
func (s shelf) image(id string) string     { return filepath.Join(s.folder(id), imageName) }
func (s shelf) record(id string) string    { return filepath.Join(s.folder(id), s.kind+".json") }
func (s shelf) lockPath(key string) string { return lockFile(s.state, s.hash(key)) }

func (s shelf) hash(key string) string {
	if s.kind != "instance" {
		key = s.kind + "/" + key // no key has a slash
	}
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

func lockFile(state, hash string) string { return filepath.Join(state, "locks", hash+".lock") }

var validID = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// read reads a record, and reports whether there is one.
func (s shelf) read(id string, r any) (there bool, err error) {
	if !validID.MatchString(id) {
		return false, nil
	}
	err = statefile.Read(s.record(id), r)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s %s: %w", s.kind, id, err)
	}
	return true, nil
}

// load returns nil when there is no such record.
func (s records[R]) load(id string) (r R, err error) {
	if there, err := s.read(id, &r); !there {
		return *new(R), err
	}
	return r, nil
}

// existing returns ErrNotFound when there is no such record.
func (s records[R]) existing(id string) (R, error) {
	r, err := s.load(id)
	if err == nil && r == *new(R) {
		err = fmt.Errorf("%w: no %s %q in %s", provider.ErrNotFound, s.kind, id, s.state)
	}
	return r, err
}

func (s shelf) save(r stored) error {
	id, _ := r.names()
	return statefile.Write(s.record(*id), r)
}

// list returns all records that can be read, and an error for damaged ones.
func (s records[R]) list() ([]R, error) {
	entries, err := os.ReadDir(s.dir())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %ss: %w", s.kind, err)
	}
	var all []R
	var errs []error
	for _, entry := range entries {
		r, err := s.load(entry.Name())
		if r != *new(R) {
			all = append(all, r)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// byKey returns nil when no record has the key.
func (s records[R]) byKey(key string) (none R, err error) {
	all, err := s.list()
	for _, r := range all {
		if _, its := r.names(); *its == key {
			return r, nil
		}
	}
	return none, err
}

// maxSuffix bounds how many of one name there can be.
const maxSuffix = 1000

// claim stores a new record and sets its ID: the name, or the name with a number if another
// has it. The record is durable before its folder gets its name.
func (s shelf) claim(r stored, name string) error {
	id, key := r.names()
	staged := filepath.Join(s.dir(), newPrefix+s.hash(*key))
	if err := os.RemoveAll(staged); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	if err := makeFolder(staged); err != nil {
		return fmt.Errorf("make %s folder: %w", s.kind, err)
	}
	for n := range maxSuffix {
		*id = numbered(name, n)
		if err := statefile.Write(filepath.Join(staged, filepath.Base(s.record(*id))), r); err != nil {
			return err
		}
		err := os.Rename(staged, s.folder(*id))
		if err == nil {
			return errors.Join(statefile.SyncFolder(s.dir()), statefile.SyncFolder(s.state))
		}
		if !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("name %s folder: %w", s.kind, err)
		}
	}
	return fmt.Errorf("%w: %d %ss are named %s", provider.ErrQuota, maxSuffix, s.kind, name)
}

// makeFolder is MkdirAll while other processes may remove empty parents.
func makeFolder(path string) error {
	var err error
	for range 100 {
		if err = os.MkdirAll(path, 0o700); err == nil ||
			!errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// numbered appends a number, from 2 on, to a name and keeps it within one DNS label.
func numbered(name string, n int) string {
	if n == 0 {
		return name
	}
	suffix := fmt.Sprintf("-%d", n+1)
	if room := 63 - len(suffix); len(name) > room {
		name = strings.TrimRight(name[:room], "-")
	}
	return name + suffix
}

// remove removes a record by renaming its folder, and then its files.
func (s shelf) remove(id string) error {
	gone := filepath.Join(s.dir(), gonePrefix+id)
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove a leftover: %w", err)
	}
	if err := os.Rename(s.folder(id), gone); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s folder: %w", s.kind, err)
	}
	// Else a power cut could bring back the name without the files.
	if err := statefile.SyncFolder(s.dir()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(gone); err != nil {
		return fmt.Errorf("remove %s folder: %w", s.kind, err)
	}
	return nil
}
