// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// instance is what a machine can know of itself.
type instance struct {
	ID, Name, State string
	UserData        string `json:"userData"`
	// Image ends with the version of Kubernetes that is in it, if it is not the
	// one that its cluster began with.
	Image string `json:"image"`
	// Ready is set when its creation has ended well, Gone when it is deleted.
	Ready bool `json:"ready"`
	Gone  bool `json:"gone"`
}

func (i *instance) running() bool { return i.Ready && i.State == "running" }

// folder is the cloud, which replaces its file as a whole.
type folder struct {
	dir  string
	seen os.FileInfo
}

// read returns the instances that exist, or false when nothing has changed.
func (f *folder) read() (map[string]*instance, bool, error) {
	name := filepath.Join(f.dir, "state.json")
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case f.seen != nil && os.SameFile(f.seen, info) && f.seen.ModTime().Equal(info.ModTime()):
		return nil, false, nil
	}
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, false, err
	}
	var state struct {
		Instances map[string]*instance `json:"instances"`
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return nil, false, fmt.Errorf("%s: %w", name, err)
	}
	for id, i := range state.Instances {
		if i.Gone || i.State == "deleting" {
			delete(state.Instances, id)
		}
	}
	f.seen = info
	return state.Instances, true, nil
}
