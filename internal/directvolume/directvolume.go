// SPDX-License-Identifier: Apache-2.0

// Package directvolume has the records of volumes that a VM gets as disks, while the node mounts
// nothing. They are those of Kata's direct-assigned volumes, so that Kata's own runtime reads them
// as well: below a folder, one folder for each path at which a pod expects its volume, with the
// file mountInfo.json.
package directvolume

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/internal/wholefile"
)

// Root is where Kata's runtime looks for records.
const Root = "/run/kata-containers/shared/direct-volumes"

// file is the record in the folder of a path. Other files there are named after the sandboxes
// that have the volume.
const file = "mountInfo.json"

// TypeBlock is the [Record.VolumeType] of a disk.
const TypeBlock = "block"

// Keys of [Record.Metadata]. The first two are Kata's.
const (
	// FSGroup is the number of the group that the files of the volume get.
	FSGroup = "fsGroup"
	// FSGroupChangePolicy is "Always", or "OnRootMismatch": only if the volume's root has another.
	FSGroupChangePolicy = "fsGroupChangePolicy"
	// PodUID is the pod that the volume was published for; nobody else may have the disk.
	PodUID = "outrigger.dev/pod-uid"
	// ReadOnly is "true" if the pod must not write.
	ReadOnly = "outrigger.dev/read-only"
)

// Record says which disk belongs at a path. The names of its fields are Kata's.
type Record struct {
	VolumeType string `json:"volume-type"`
	// Device is the provider's id of the disk.
	Device string `json:"device"`
	// FSType is the file system that an empty disk gets, and any other must have.
	FSType   string            `json:"fstype"`
	Metadata map[string]string `json:"metadata,omitempty"`
	// Options are those of the mount.
	Options []string `json:"options,omitempty"`
}

// Folder holds the records of a node.
type Folder string

// Of returns where the record of a target path is.
func (f Folder) Of(target string) string {
	return filepath.Join(string(f), base64.URLEncoding.EncodeToString([]byte(target)))
}

// Write makes or replaces the record of a target path. After a crash it is as before or whole.
func (f Folder) Write(target string, r Record) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	dir := f.Of(target)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	// A file beside the record would be taken for that of a sandbox, so leftovers of writers
	// that were killed go away first.
	if err := removeLeftovers(dir); err != nil {
		return err
	}
	return wholefile.Replace(filepath.Join(dir, file), data, 0o600)
}

func removeLeftovers(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "."+file) {
			err = errors.Join(err, os.Remove(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// Read returns the record of a target path, or an error that is [fs.ErrNotExist].
func (f Folder) Read(target string) (*Record, error) {
	path := filepath.Join(f.Of(target), file)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Record{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("%s, the record of %s: %w", path, target, err)
	}
	return r, nil
}

// Sandbox returns the id of a sandbox that has the volume, as its runtime has noted it; empty
// while there is none.
func (f Folder) Sandbox(target string) (string, error) {
	entries, err := os.ReadDir(f.Of(target))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	for _, e := range entries {
		if !strings.Contains(e.Name(), file) {
			return e.Name(), nil
		}
	}
	return "", nil
}

// Remove removes the record of a target path; that there is none is nil.
func (f Folder) Remove(target string) error { return os.RemoveAll(f.Of(target)) }

// Targets returns the target paths that have a record.
func (f Folder) Targets() ([]string, error) {
	entries, err := os.ReadDir(string(f))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var targets []string
	for _, e := range entries {
		target, err := base64.URLEncoding.DecodeString(e.Name())
		if _, missing := os.Stat(filepath.Join(string(f), e.Name(), file)); err == nil && missing == nil {
			targets = append(targets, string(target))
		}
	}
	return targets, nil
}
