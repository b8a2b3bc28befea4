// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// deleteTimeout bounds StopVM of `delete`: containerd gives the command 5 s.
// The hypervisor service goes on by itself once it has the call.
const deleteTimeout = 4 * time.Second

// delete cleans up after a shim that crashed or does not answer: its VM, its
// process, its socket. Containers beside the sandbox's have nothing to clean.
func (a *arguments) delete(ctx context.Context) (*taskapi.DeleteResponse, error) {
	folder, err := a.folder()
	if err != nil {
		return nil, err
	}
	resp := &taskapi.DeleteResponse{ExitStatus: 128 + uint32(syscall.SIGKILL), ExitedAt: timestamppb.Now()}
	r, err := readRecord(folder)
	if err != nil {
		return nil, fmt.Errorf("what is known of sandbox %s: %w", a.id, err)
	}
	// Only the container whose start started the shim has its process id in the bundle.
	if _, err := os.Stat(filepath.Join(folder, pidFile)); r == nil && err != nil {
		return resp, nil
	}
	killShim(folder, a.id)
	os.Remove(socketPath(a.address, a.namespace, a.id))
	if r == nil {
		return resp, nil
	}
	ctx, cancel := context.WithTimeout(ctx, deleteTimeout)
	defer cancel()
	return resp, podclient.New(r.Socket).StopVM(ctx, r.Sandbox)
}

// killShim kills the bundle's shim, if the process with its id still is that
// shim.
func killShim(folder, id string) {
	data, err := os.ReadFile(filepath.Join(folder, pidFile))
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(string(data))
	if err != nil || pid <= 1 {
		return
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	args := strings.Split(string(line), "\x00")
	if len(args) > 4 && args[0] == Name && args[4] == id {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

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
