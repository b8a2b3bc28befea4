// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
)

const (
	recordFile = "sandbox.json"
	// damagedFolder holds journal files that could not be read.
	damagedFolder = ".damaged"
)

// journal is the folder that holds one folder for each sandbox. A sandbox is
// known as long as its folder has a sandbox.json; removing the folder forgets
// it.
type journal struct {
	dir  string
	lock *os.File
}

// openJournal makes the folder (0700) and locks it: two adaptors on one journal
// would undo each other's sandboxes. The lock ends with the process.
func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("pods folder (-pods-dir, PODS_DIR): %w", err)
	}
	lock, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("pods folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("pods folder %s is used by another adaptor; stop it or choose another -pods-dir", dir)
		}
		return nil, fmt.Errorf("lock pods folder %s: %w", dir, err)
	}
	if err := unix.Access(dir, unix.W_OK); err != nil {
		lock.Close()
		return nil, fmt.Errorf("pods folder %s (-pods-dir, PODS_DIR) is not writable: %w", dir, err)
	}
	return &journal{dir: dir, lock: lock}, nil
}

// folder returns the folder of a sandbox, which is named by the id.
func (j *journal) folder(id string) string { return filepath.Join(j.dir, id) }

// create makes the sandbox's folder (0700).
func (j *journal) create(id string) error {
	if err := os.Mkdir(j.folder(id), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return statefile.SyncFolder(j.dir)
}

// write replaces the sandbox's record. When it returns, the new record
// survives a crash of the machine; when it fails, the old one is still there.
func (j *journal) write(rec *Record) error {
	return statefile.Write(filepath.Join(j.folder(rec.ID), recordFile), rec)
}

// remove deletes the sandbox's record. Removing an unknown one succeeds.
func (j *journal) remove(id string) error {
	// The record goes first: a folder without it is nobody's.
	if err := os.Remove(filepath.Join(j.folder(id), recordFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.RemoveAll(j.folder(id)); err != nil {
		return err
	}
	return statefile.SyncFolder(j.dir)
}

// damaged is a folder whose record cannot be trusted.
type damaged struct {
	ID string
	// MovedTo is where the unreadable record is now.
	MovedTo string
	Err     error
}

// load reads all records. Folders without a record are leftovers of a CreateVM
// that never finished and are removed; unreadable records are moved aside.
func (j *journal) load() (records []*Record, bad []damaged, err error) {
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return nil, nil, fmt.Errorf("pods folder: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() || checkID(entry.Name()) != nil {
			continue
		}
		rec, err := j.read(entry.Name())
		switch {
		case errors.Is(err, fs.ErrNotExist):
			err = j.remove(entry.Name())
		case err != nil:
			var moved string
			moved, moveErr := j.moveAside(entry.Name())
			bad = append(bad, damaged{ID: entry.Name(), MovedTo: moved, Err: err})
			err = moveErr
		default:
			records = append(records, rec)
		}
		if err != nil {
			return nil, nil, fmt.Errorf("pods folder: %w", err)
		}
	}
	return records, bad, nil
}

func (j *journal) read(id string) (*Record, error) {
	data, err := os.ReadFile(filepath.Join(j.folder(id), recordFile))
	if err != nil {
		return nil, err
	}
	return parseRecord(id, data)
}

func parseRecord(id string, data []byte) (*Record, error) {
	rec := new(Record)
	if err := json.Unmarshal(data, rec); err != nil {
		return nil, err
	}
	return rec, rec.check(id)
}

func (j *journal) moveAside(id string) (string, error) {
	dir := filepath.Join(j.dir, damagedFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	to := filepath.Join(dir, fmt.Sprintf("%s-%d.json", id, time.Now().UnixNano()))
	return to, os.Rename(filepath.Join(j.folder(id), recordFile), to)
}
