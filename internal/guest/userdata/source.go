// SPDX-License-Identifier: Apache-2.0

// Package userdata fetches, in the pod VM, what the node sent along with the
// instance, and writes the files that it asks for, of which only a few are
// allowed.
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

// DefaultSeedDir is where podvm-init mounts the seed.
const DefaultSeedDir = "/media/cidata"

// NoCloud returns the seed that a hypervisor attached as a disk labelled cidata, once it
// is mounted at dir; see the NoCloud data source of cloud-init.
func NoCloud(dir string) File { return File{"NoCloud", dir, "user-data"} }

// Clearer is a source from which user-data can be taken away once it has been
// used, since others could read it there.
type Clearer interface {
	Clear() error
}

// File is user-data at Path on a disk that is mounted at Dir.
type File struct{ Kind, Dir, Path string }

// Name implements Source.
func (f File) Name() string { return f.Kind + " " + f.Dir }

// Fetch implements Source. The file must hold some user-data and not too much.
func (f File) Fetch(context.Context) ([]byte, error) {
	path := filepath.Join(f.Dir, f.Path)
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
