// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// record is what `delete` needs to know of a sandbox whose shim has crashed.
// It lies in the bundle, which containerd removes after that.
type record struct {
	Sandbox string `json:"sandbox"`
	// Socket of the hypervisor service.
	Socket string `json:"socket"`
}

const recordFile = "outrigger-sandbox.json"

func (r record) write(bundle string) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(bundle, recordFile), data); err != nil {
		return fmt.Errorf("noting the sandbox: %w", err)
	}
	return nil
}

// readRecord returns nil when the bundle is not a sandbox's.
func readRecord(bundle string) (*record, error) {
	data, err := os.ReadFile(filepath.Join(bundle, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &record{}
	return r, json.Unmarshal(data, r)
}

func replaceFile(path string, data []byte) error {
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}
