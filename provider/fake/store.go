// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider/kit/keylock"
)

// store keeps the state of the cloud.
type store interface {
	// update runs change alone among all users of the cloud and keeps what it
	// changed. change must not have changed anything when it fails.
	update(change func(*state) error) error
	// lockKey waits until no other creation with the key is running.
	lockKey(ctx context.Context, key string) (unlock func(), err error)
}

// memory is the store of one process.
type memory struct {
	mu    sync.Mutex
	state *state
	keys  keylock.Locks
}

func newMemory() *memory { return &memory{state: newState()} }

func (m *memory) update(change func(*state) error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return change(m.state)
}

func (m *memory) lockKey(ctx context.Context, key string) (func(), error) {
	return m.keys.Take(ctx, key)
}

// folder is the store of many processes: state.json, replaced as a whole under
// an flock of state.lock, and keys.lock, of which a creation locks one byte,
// chosen by its key. The kernel drops the locks of a process that dies. No
// fsync: the cloud survives its processes, not the machine.
type folder struct{ dir string }

func openFolder(dir string) (*folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &folder{dir}
	return f, f.update(func(*state) error { return nil })
}

func (f *folder) update(change func(*state) error) error {
	lock, err := f.open("state.lock")
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := flock(lock); err != nil {
		return fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	s, err := f.load()
	if err != nil {
		return err
	}
	if err := change(s); err != nil {
		return err
	}
	return f.save(s)
}

func (f *folder) open(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(f.dir, name), os.O_CREATE|os.O_RDWR, 0o600)
}

func flock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func (f *folder) load() (*state, error) {
	name := filepath.Join(f.dir, "state.json")
	data, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return newState(), nil
	}
	if err != nil {
		return nil, err
	}
	s := newState()
	if err := json.Unmarshal(data, s); err != nil {
		return nil, fmt.Errorf("%s is damaged, remove it to begin with an empty cloud: %w", name, err)
	}
	return s, nil
}

// save holds the lock, so one temporary name is enough, and one that a dead
// process left is overwritten.
func (f *folder) save(s *state) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	temporary := filepath.Join(f.dir, "state.json.new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, filepath.Join(f.dir, "state.json"))
}

// keyPoll is how often a waiting creation looks whether the key is free: the
// kernel has no lock that waits and can be cancelled.
const keyPoll = 2 * time.Millisecond

func (f *folder) lockKey(ctx context.Context, key string) (func(), error) {
	file, err := f.open("keys.lock")
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(keyPoll)
	defer ticker.Stop()
	for {
		err := lockByte(file, key)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		}
	}
}

// lockByte tries an open file description lock (fcntl(2)), which also holds
// between goroutines since each opens the file again.
func lockByte(file *os.File, key string) error {
	hash := fnv.New64a()
	hash.Write([]byte(key))
	return unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{
		Type: unix.F_WRLCK, Start: int64(hash.Sum64() >> 2), Len: 1,
	})
}
