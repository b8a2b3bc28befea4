// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// DefaultDir is where provisioned files go; user-data names them by this path
// whatever Options.Dir is.
const DefaultDir = "/run/peerpod"

// DefaultTimeout bounds the wait for user-data, as upstream's guest does.
const DefaultTimeout = 180 * time.Second

// The pause after user-data that is absent or invalid doubles between these.
const (
	retrySoon  = 250 * time.Millisecond
	retryLater = 5 * time.Second
)

// allowed are the files that user-data may write, by name in DefaultDir, with
// their modes. apf.json holds the VM's private key and auth.json passwords.
var allowed = map[string]os.FileMode{
	"aa.toml":              0o644,
	"cdh.toml":             0o644,
	forwarderFile:          0o600,
	"auth.json":            0o600,
	"initdata":             0o644,
	"insecure-registries":  0o644,
	"scratch-space.marker": 0o644,
}

// fromInitData are the entries of initdata that become files.
var fromInitData = []string{"aa.toml", "cdh.toml", "policy.rego"}

const (
	forwarderFile  = "apf.json"
	initDataFile   = "initdata"
	initDataDigest = "initdata.digest"
)

// Options says where user-data comes from and where its files go.
type Options struct {
	// Sources are tried in this order; the first that succeeds wins.
	Sources []Source
	// Dir is where files go.
	Dir string
	// Timeout bounds the wait.
	Timeout time.Duration
	Logger  *slog.Logger
	// Marks is where AwaitPod notes a handover.
	Marks marks.Marks
	// Rehearse, if set, is what AwaitPod does before it can be handed a pod, with the images that are
	// to be pulled. The pool gets its error, and the VM waits nevertheless.
	Rehearse func(ctx context.Context, images []string) error

	// retry replaces retrySoon in tests.
	retry time.Duration
}

// Provision waits for user-data and writes its files, then those that initdata
// holds and its digest. Files that are not on the list are logged and left
// out. Errors: the last one that a source or the parser gave, when the time is
// over; a file that cannot be written, at once.
func Provision(ctx context.Context, o Options) error {
	config, source, err := o.fetch(ctx)
	if err != nil {
		return err
	}
	if err := o.writeAll(config); err != nil {
		return fmt.Errorf("provision: %w", err)
	}
	if clearer, ok := source.(Clearer); ok {
		if err := clearer.Clear(); err != nil {
			return fmt.Errorf("provision: user-data stays readable in %s: %w", source.Name(), err)
		}
	}
	return nil
}

// writeAll writes the files of a document.
func (o Options) writeAll(config *cloudinit.CloudConfig) error {
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return err
	}
	for _, f := range config.WriteFiles {
		if err := o.write(f); err != nil {
			return err
		}
	}
	return o.unpackInitData()
}

func (o Options) fetch(ctx context.Context) (*cloudinit.CloudConfig, Source, error) {
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	for pause := cmp.Or(o.retry, retrySoon); ; pause = min(2*pause, retryLater) {
		config, source, err := o.fetchOnce(ctx)
		if err == nil {
			return config, source, nil
		}
		o.Logger.Warn("no user-data yet", "error", err)
		if poll.Sleep(ctx, pause) != nil {
			return nil, nil, fmt.Errorf("no user-data within %v: %w", o.Timeout, err)
		}
	}
}

func (o Options) fetchOnce(ctx context.Context) (*cloudinit.CloudConfig, Source, error) {
	var errs []error
	for _, s := range o.Sources {
		var config *cloudinit.CloudConfig
		data, err := s.Fetch(ctx)
		if err == nil {
			config, err = cloudinit.Parse(data)
		}
		if err == nil {
			o.Logger.Info("user-data found", "source", s.Name(), "files", len(config.WriteFiles))
			return config, s, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.Name(), err))
	}
	if len(o.Sources) == 0 {
		errs = append(errs, errors.New("no source of user-data for this platform"))
	}
	return nil, nil, errors.Join(errs...)
}

func (o Options) write(f cloudinit.WriteFile) error {
	name, inDir := strings.CutPrefix(f.Path, DefaultDir+"/")
	mode, ok := allowed[name]
	if !inDir || !ok {
		o.Logger.Warn("skipped a file that user-data may not write", "path", f.Path)
		return nil
	}
	return o.replace(name, []byte(f.Content), mode)
}

// replace writes a file atomically.
func (o Options) replace(name string, content []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(o.Dir, "."+name+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(content)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(file.Name(), filepath.Join(o.Dir, name)); err != nil {
		return err
	}
	o.Logger.Info("provisioned", "path", filepath.Join(o.Dir, name), "bytes", len(content))
	return nil
}

// emptyInitData is what a VM has whose user-data has no initdata.
var emptyInitData = sync.OnceValues(func() (empty struct {
	data         *cloudinit.InitData
	text, digest string
}, err error,
) {
	empty.data = cloudinit.EmptyInitData()
	empty.digest = empty.data.Digest()
	empty.text, err = empty.data.Encode()
	return empty, err
})

// Prepare makes what does not depend on user-data, so that Provision has less to do.
func Prepare() { _, _ = emptyInitData() }

// initData returns the initdata of user-data and its digest, else empty initdata, which it
// writes: an attester reads the file, and its digest must always exist to be measured.
func (o Options) initData() (data *cloudinit.InitData, digest string, none bool, err error) {
	empty, err := emptyInitData()
	if err != nil {
		return nil, "", false, err
	}
	text, err := os.ReadFile(filepath.Join(o.Dir, initDataFile))
	if errors.Is(err, os.ErrNotExist) {
		return empty.data, empty.digest, true, o.replace(initDataFile, []byte(empty.text), allowed[initDataFile])
	}
	if err != nil {
		return nil, "", false, err
	}
	if data, err = cloudinit.DecodeInitData(string(text)); err != nil {
		return nil, "", false, err
	}
	digest = data.Digest()
	return data, digest, digest == empty.digest, nil
}

// unpackInitData writes what initdata holds, and its digest.
func (o Options) unpackInitData() error {
	data, digest, none, err := o.initData()
	if err != nil {
		return err
	}
	for name, content := range data.Data {
		if !slices.Contains(fromInitData, name) {
			o.Logger.Warn("initdata holds an entry that is not used", "name", name)
			continue
		}
		if _, err := os.Lstat(filepath.Join(o.Dir, name)); none && err == nil {
			continue // user-data has it, too
		}
		if err := o.replace(name, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return o.replace(initDataDigest, []byte(digest), 0o644)
}
