// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Source is one way to get at user-data. Those of clouds are in package
// metadata.
type Source interface {
	// Name is for logs.
	Name() string
	// Fetch returns the document, or an error that says what is missing;
	// the caller tries again until its time is over.
	Fetch(ctx context.Context) ([]byte, error)
}

// NoCloud reads the seed that a hypervisor attached as a disk labelled
// cidata, once it is mounted; see the NoCloud data source of cloud-init.
type NoCloud struct {
	// Dir is where the seed is mounted.
	Dir string
}

// DefaultSeedDir is where podvm-init mounts the seed.
const DefaultSeedDir = "/media/cidata"

// Name implements Source.
func (n NoCloud) Name() string { return "NoCloud " + n.Dir }

// Fetch implements Source.
func (n NoCloud) Fetch(context.Context) ([]byte, error) {
	return ReadFile(filepath.Join(n.Dir, "user-data"))
}

// Clearer is a source from which user-data can be taken away once it has been
// used, since others could read it there.
type Clearer interface {
	Clear() error
}

// ReadFile reads user-data from a file, which must hold some and not too much.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, cloudinit.MaxSize+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > cloudinit.MaxSize:
		return nil, fmt.Errorf("%s is larger than %d bytes", path, cloudinit.MaxSize)
	case len(data) == 0:
		return nil, errors.New(path + " is empty")
	}
	return data, nil
}
