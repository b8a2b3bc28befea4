// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/guest/reaper"
	"golang.org/x/sys/unix"
)

// ociRuntime runs the OCI runtime, whose state is in root.
type ociRuntime struct {
	name   string
	binary *os.File // a sealed copy
	root   string
	logs   string // folder for one log per run
	reaper *reaper.Reaper
	runs   atomic.Uint64
}

func newRuntime(binary, state string, r *reaper.Reaper) (*ociRuntime, error) {
	path, err := findRuntime(binary)
	if err != nil {
		return nil, err
	}
	o := &ociRuntime{name: filepath.Base(path), root: filepath.Join(state, "runc"), logs: filepath.Join(state, "log"), reaper: r}
	if o.binary, err = sealed(path); err != nil {
		return nil, fmt.Errorf("copy of %s in memory: %w", path, err)
	}
	for _, dir := range []string{o.root, o.logs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// findRuntime returns the path of an OCI runtime: the one that is named, else runc,
// else crun. The image has crun, which starts in half of runc's processor time;
// runc also works where a machine's cgroups are of both versions.
func findRuntime(binary string) (string, error) {
	if binary != "" {
		path, err := exec.LookPath(binary)
		if err != nil {
			return "", fmt.Errorf("-runc=%s: %w", binary, err)
		}
		return path, nil
	}
	for _, name := range []string{"runc", "crun"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("neither runc nor crun is in PATH: install one, or name it with -runc")
}

// sealed copies a program into memory and seals the copy. Runtimes run a sealed copy of
// themselves, since a container could write to their file (CVE-2019-5736): one that is
// sealed already need not be copied, nor started twice, at each run.
func sealed(program string) (*os.File, error) {
	content, err := os.Open(program)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(filepath.Base(program), flags|unix.MFD_EXEC)
	if err == unix.EINVAL { // Linux before 6.3, where all can be executed
		fd, err = unix.MemfdCreate(filepath.Base(program), flags)
	}
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	file := os.NewFile(uintptr(fd), program)
	if _, err = io.Copy(file, content); err == nil {
		// Those that runc and crun look for, and no others.
		const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
		_, err = unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// files are the standard streams of a run, each an [os.File]; nil is /dev/null.
type files struct {
	stdin          io.Reader
	stdout, stderr io.Writer
}

// run runs one command to its end. The error holds what the runtime logged; its
// standard error belongs to the container.
func (r *ociRuntime) run(ctx context.Context, stdio files, args ...string) error {
	log := filepath.Join(r.logs, strconv.FormatUint(r.runs.Add(1), 10))
	defer os.Remove(log)
	cmd := exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), r.binary.Fd()), append([]string{"--root", r.root, "--log", log, "--log-format", "json"}, args...)...)
	cmd.Args[0] = r.name
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdio.stdin, stdio.stdout, stdio.stderr
	c, err := r.reaper.Start(cmd)
	if err != nil {
		return fmt.Errorf("run %s: %w", r.name, err)
	}
	if err := await(ctx, c.Done); err != nil {
		return errors.Join(fmt.Errorf("%s %s: %w", r.name, args[0], err), r.reaper.Kill(c))
	}
	if code := c.Code(); code != 0 {
		return fmt.Errorf("%s %s: %s", r.name, args[0], loggedError(log, code))
	}
	return nil
}

// loggedError returns the last error in a runtime's log.
func loggedError(log string, code int) string {
	data, _ := os.ReadFile(log)
	text := ""
	for line := range strings.SplitSeq(string(data), "\n") {
		var entry struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &entry) == nil && (entry.Level == "error" || entry.Level == "fatal") {
			text = entry.Msg
		}
	}
	if text == "" {
		return fmt.Sprintf("exit code %d without a message", code)
	}
	return text
}

// notRun words the error about a command that cannot be run as runc does, since
// clients match on that. Those of crun 1.8 are "executable file `x` not found in
// $PATH" for names and paths, and "open executable" without a name.
func notRun(args []string, err error) error {
	if err == nil || len(args) == 0 {
		return err
	}
	command, text := args[0], err.Error()
	switch {
	case strings.Contains(text, "open executable: "):
		return fmt.Errorf("exec: %q: permission denied", command)
	case !strings.Contains(text, "executable file `"):
		return err
	case strings.Contains(command, "/"):
		return fmt.Errorf("exec: %q: stat %s: no such file or directory", command, command)
	}
	return fmt.Errorf("exec: %q: executable file not found in $PATH", command)
}

// launch runs a command that leaves a process behind, create or exec, and returns that
// one. The last argument is the container's id.
func (r *ociRuntime) launch(ctx context.Context, stdio files, console string, command ...string) (*reaper.Child, error) {
	pidFile := filepath.Join(r.logs, fmt.Sprintf("pid%d", r.runs.Add(1)))
	defer os.Remove(pidFile)
	options := []string{"--pid-file", pidFile}
	if console != "" {
		options = append(options, "--console-socket", console)
	}
	return r.reaper.Launch(func() (int, error) {
		if err := r.run(ctx, stdio, slices.Insert(command, 1, options...)...); err != nil {
			return 0, err
		}
		data, err := os.ReadFile(pidFile)
		if err != nil {
			return 0, fmt.Errorf("pid file of the OCI runtime: %w", err)
		}
		return strconv.Atoi(strings.TrimSpace(string(data)))
	})
}

// delete removes a container, whose processes it kills. One that does not
// exist is success.
func (r *ociRuntime) delete(ctx context.Context, id string) error {
	if _, err := os.Stat(filepath.Join(r.root, id)); errors.Is(err, unix.ENOENT) {
		return nil
	}
	return r.run(ctx, files{}, "delete", "--force", id)
}

// update applies resources to a container.
func (r *ociRuntime) update(ctx context.Context, c *container, resources *oci.LinuxResources) error {
	file := filepath.Join(r.logs, fmt.Sprintf("update%d", r.runs.Add(1)))
	defer os.Remove(file)
	if err := writeJSON(file, resources); err != nil {
		return err
	}
	return r.run(ctx, files{}, "update", "--resources", file, c.id)
}
