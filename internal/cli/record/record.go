// SPDX-License-Identifier: Apache-2.0

// Package record keeps what `outrigger` knows of its pods: one file for each,
// 0600 since environments hold secrets, written so that a crash leaves the old
// or the new one.
package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/docker/go-connections/nat"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/internal/timeline"
)

// Status is where a pod is in its life.
type Status string

// Statuses.
const (
	Creating Status = "creating"
	Running  Status = "running"
	Exited   Status = "exited"
)

// Pod is the record of one pod.
type Pod struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	Image     string `json:"image"`
	Status    Status `json:"status"`

	// Owner is the process that reads the container's output.
	Owner    procid.ID `json:"owner"`
	Detached bool      `json:"detached,omitempty"`
	// Keep says that the record and the log outlive the container.
	Keep bool `json:"keep,omitempty"`

	// Socket is the hypervisor service; OwnAdaptor says that we started it.
	Socket     string `json:"socket"`
	OwnAdaptor bool   `json:"ownAdaptor,omitempty"`
	// Pool names the pool whose adaptor it is; empty if that has none.
	Pool     string `json:"pool,omitempty"`
	Provider string `json:"provider,omitempty"`
	// Network says that the pod has a port of our network.
	Network bool     `json:"network,omitempty"`
	IPs     []string `json:"ips,omitempty"`

	AgentSocket string `json:"agentSocket,omitempty"`
	TTY         bool   `json:"tty,omitempty"`
	// Containers are those that are to run, without init containers, in their order in the manifest.
	// Earlier versions wrote a map of another form as "containers".
	Containers []Container `json:"running,omitempty"`

	Labels map[string]string `json:"labels,omitempty"`
	// Ports are those of this host that are passed on to the pod.
	Ports []nat.PortMapping `json:"ports,omitempty"`
	// Request is what the pod was asked for with, to start it again.
	Request json.RawMessage `json:"request,omitempty"`

	// Steps are those of the start that `outrigger` itself took.
	Steps []timeline.Step `json:"steps,omitempty"`

	Created  time.Time `json:"created"`
	Started  time.Time `json:"started,omitzero"`
	Finished time.Time `json:"finished,omitzero"`
	ExitCode int       `json:"exitCode"`
	// Error is why the pod ended other than by its own doing.
	Error string `json:"error,omitempty"`
}

// Container is what a container runs as: further processes in it are to be no more than its own.
type Container struct {
	Name string `json:"name"`
	// ID is that of the newest, if it was started again; empty before the first.
	ID      string   `json:"id,omitempty"`
	Command []string `json:"command,omitempty"`
	Env     []string `json:"env,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	UID     uint32   `json:"uid,omitempty"`
	GID     uint32   `json:"gid,omitempty"`
	GIDs    []uint32 `json:"gids,omitempty"`
	// Capabilities nil means the default ones.
	Capabilities    []string `json:"capabilities"`
	NoNewPrivileges bool     `json:"noNewPrivileges,omitempty"`
	// StopSignal asks it to end; empty means SIGTERM.
	StopSignal string `json:"stopSignal,omitempty"`
}

// Container returns the container with that name, or for an empty name the first.
func (p *Pod) Container(name string) (Container, error) {
	for _, c := range p.Containers {
		if c.Name == name || name == "" {
			return c, nil
		}
	}
	return Container{}, fmt.Errorf("pod %s has no container %q", p.Name, name)
}

// First returns the first container; it is empty if none was started.
func (p *Pod) First() Container {
	c, _ := p.Container("")
	return c
}

// Live says that a VM may exist for the pod.
func (p *Pod) Live() bool { return p.Status != Exited }

// Store is the folder of records.
type Store struct{ Dir string }

// ErrNotFound means that no pod has that name or id.
var ErrNotFound = errors.New("no such pod")

// LogPath returns the path of the file with a detached pod's output.
func (s Store) LogPath(id string) string { return filepath.Join(s.Dir, id+".log") }

func (s Store) path(id string) string { return filepath.Join(s.Dir, id+".json") }

func (s Store) exitPath(id string) string { return filepath.Join(s.Dir, id+".exit") }
func (s Store) stopPath(id string) string { return filepath.Join(s.Dir, id+".stop") }

// Create writes the record of a pod that begins, and then a new file for its exit code: no file may be left without
// a record.
func (s Store) Create(p *Pod) error {
	os.Remove(s.exitPath(p.ID))
	os.Remove(s.stopPath(p.ID))
	if err := s.Save(p); err != nil {
		return err
	}
	return os.WriteFile(s.exitPath(p.ID), nil, 0o600)
}

// End writes the exit code of a pod for those that wait for it.
func (s Store) End(id string, code int) error {
	return os.WriteFile(s.exitPath(id), []byte(strconv.Itoa(code)), 0o600)
}

// Ending returns the file to which the exit code of a pod that runs is written. Who has it open can read it
// after the pod is forgotten, and after a pod with the same id has begun.
func (s Store) Ending(id string) (*os.File, error) { return os.Open(s.exitPath(id)) }

// AskStop writes down how long a pod's containers may take to end. A signal then makes its owner look. The caller holds
// the lock of the node and has seen that the pod is live, so that nothing stays.
func (s Store) AskStop(id string, grace time.Duration) error {
	return statefile.Write(s.stopPath(id), grace)
}

// AskedToStop returns that, once.
func (s Store) AskedToStop(id string) (grace time.Duration, asked bool) {
	asked = statefile.Read(s.stopPath(id), &grace) == nil && os.Remove(s.stopPath(id)) == nil
	return grace, asked
}

// Save writes a record durably.
func (s Store) Save(p *Pod) error {
	err := os.MkdirAll(s.Dir, 0o700)
	if err == nil {
		err = statefile.Write(s.path(p.ID), p)
	}
	if err != nil {
		return fmt.Errorf("record of pod %s: %w", p.Name, err)
	}
	return nil
}

// Delete forgets a pod and its log. An unknown one is success.
func (s Store) Delete(id string) error {
	files, err := filepath.Glob(filepath.Join(s.Dir, id) + ".*")
	if err != nil {
		return err
	}
	var errs []error
	ours := func(file string) bool { return file == s.path(id) } // the last, for a crash in between
	for _, file := range append(slices.DeleteFunc(files, ours), s.path(id)) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// List returns all records, oldest first. Files that are not records are left
// out: a record is never half-written.
func (s Store) List() ([]*Pod, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list pods: %w", err)
	}
	var pods []*Pod
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) != ".json" {
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.Dir, entry.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		var p Pod
		if json.Unmarshal(data, &p) == nil && p.ID != "" {
			pods = append(pods, &p)
		}
	}
	slices.SortFunc(pods, func(a, b *Pod) int { return a.Created.Compare(b.Created) })
	return pods, nil
}

// Find returns the pod with that name, id, or unique beginning of an id.
func (s Store) Find(what string) (*Pod, error) {
	pods, err := s.List()
	if err != nil {
		return nil, err
	}
	var matches []*Pod
	for _, p := range pods {
		if p.Name == what || p.ID == what {
			return p, nil
		}
		if strings.HasPrefix(p.ID, what) {
			matches = append(matches, p)
		}
	}
	switch len(matches) {
	case 1:
		return matches[0], nil
	case 0:
		return nil, fmt.Errorf("%w: %q; `outrigger ps -a` lists them", ErrNotFound, what)
	}
	return nil, fmt.Errorf("%q is the beginning of %d pods' ids; give more of it", what, len(matches))
}
