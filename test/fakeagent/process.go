// SPDX-License-Identifier: Apache-2.0

package fakeagent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// process is one process of the host that plays a container or an exec.
type process struct {
	mu             sync.Mutex // of start and kill
	cmd            *exec.Cmd
	tty            *os.File // master side
	stdin          *os.File
	stdout, stderr *os.File
	inner          []*os.File // the process's ends, closed once it has them
	exited         chan struct{}
	status         int32
	closeIn        sync.Once
	// outTurn and errTurn are held by whoever reads stdout and stderr.
	outTurn, errTurn sync.Mutex
}

func newProcess(spec *agent.Process) (*process, error) {
	bin, err := lookPath(spec.Args[0], spec.Env)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: &exec.Cmd{Path: bin, Args: spec.Args, Env: spec.Env, Dir: spec.Cwd}, exited: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if spec.Terminal {
		return p, p.openTTY(spec.ConsoleSize)
	}
	return p, p.openPipes()
}

// lookPath words its error as runc does.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if info, err := os.Stat(name); err != nil {
			return "", status.Errorf(codes.Internal, "exec: %q: stat %s: no such file or directory", name, name)
		} else if info.Mode()&0o111 == 0 {
			return "", status.Errorf(codes.Internal, "exec: %q: permission denied", name)
		}
		return name, nil
	}
	for _, kv := range env {
		dirs, ok := strings.CutPrefix(kv, "PATH=")
		for _, dir := range filepath.SplitList(dirs) {
			if path := filepath.Join(dir, name); ok && unix.Access(path, unix.X_OK) == nil {
				return path, nil
			}
		}
	}
	return "", status.Errorf(codes.Internal, "exec: %q: executable file not found in $PATH", name)
}

func (p *process) openPipes() error {
	in, stdin, err1 := os.Pipe()
	stdout, out, err2 := os.Pipe()
	stderr, errw, err3 := os.Pipe()
	p.stdin, p.stdout, p.stderr = stdin, stdout, stderr
	p.inner = []*os.File{in, out, errw}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = in, out, errw
	return errors.Join(err1, err2, err3)
}

func (p *process) openTTY(size *agent.Box) error {
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return err
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return err
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	p.tty, p.stdin, p.stdout, p.inner = master, master, master, []*os.File{slave}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
	p.cmd.SysProcAttr.Setctty = true
	if size != nil {
		return p.resize(size.Height, size.Width)
	}
	return nil
}

func (p *process) resize(rows, columns uint32) error {
	return unix.IoctlSetWinsize(int(p.tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)})
}

func (p *process) size() (uint32, uint32) {
	ws, err := unix.IoctlGetWinsize(int(p.tty.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return uint32(ws.Row), uint32(ws.Col)
}

func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status != 0 {
		return status.Error(codes.FailedPrecondition, "the process was killed before its start")
	}
	err := p.cmd.Start()
	for _, f := range p.inner {
		f.Close()
	}
	if err != nil {
		return err
	}
	go func() {
		p.cmd.Wait()
		ws := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
		p.status = int32(ws.ExitStatus())
		if ws.Signaled() {
			p.status = 128 + int32(ws.Signal())
		}
		close(p.exited)
	}()
	return nil
}

// closeAll closes the streams of a process that was never started.
func (p *process) closeAll() {
	for _, f := range append(p.inner, p.stdin, p.stdout, p.stderr) {
		if f != nil {
			f.Close()
		}
	}
}

func (p *process) kill(sig syscall.Signal, group bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd.Process == nil {
		// Killed before its start: it will never have an exit of its own.
		if sig == syscall.SIGKILL && p.status == 0 {
			p.status = 128 + int32(sig)
			p.closeAll()
			close(p.exited)
		}
		return
	}
	pid := p.cmd.Process.Pid
	if group {
		pid = -pid
	}
	syscall.Kill(pid, sig)
}

func (a *Agent) proc(containerID, execID string) (*process, error) {
	if execID == "" {
		execID = containerID
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.procs[containerID+"/"+execID]
	if p == nil {
		return nil, status.Errorf(codes.NotFound, "no process %s in container %s", execID, containerID)
	}
	return p, nil
}

func (a *Agent) addProc(containerID, execID string, spec *agent.Process) (*process, error) {
	p, err := newProcess(spec)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.procs[containerID+"/"+execID] = p
	return p, nil
}

func (a *Agent) CreateContainer(ctx context.Context, req *agent.CreateContainerRequest) (*emptypb.Empty, error) {
	a.node.record("CreateContainer")
	if err := a.node.refused(); err != nil {
		return nil, err
	}
	a.mu.Lock()
	a.created[req.ContainerId] = req
	a.mu.Unlock()
	spec := req.OCI.Process
	if req.Storages[0].Source == "pause" {
		spec = &agent.Process{Args: []string{"/bin/sleep", "infinity"}}
	}
	_, err := a.addProc(req.ContainerId, req.ExecId, spec)
	return &emptypb.Empty{}, err
}

func (a *Agent) StartContainer(ctx context.Context, req *agent.StartContainerRequest) (*emptypb.Empty, error) {
	a.node.record("StartContainer")
	p, err := a.proc(req.ContainerId, "")
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, p.start()
}

func (a *Agent) ExecProcess(ctx context.Context, req *agent.ExecProcessRequest) (*emptypb.Empty, error) {
	a.node.record("ExecProcess")
	if a.node.ExecErr != nil {
		return nil, a.node.ExecErr
	}
	a.mu.Lock()
	a.execs = append(a.execs, req)
	a.mu.Unlock()
	p, err := a.addProc(req.ContainerId, req.ExecId, req.Process)
	if err != nil {
		return nil, err
	}
	return &emptypb.Empty{}, p.start()
}

func (a *Agent) SignalProcess(ctx context.Context, req *agent.SignalProcessRequest) (*emptypb.Empty, error) {
	a.node.record(fmt.Sprintf("SignalProcess %d", req.Signal))
	p, err := a.proc(req.ContainerId, req.ExecId)
	if err != nil {
		return nil, err
	}
	p.kill(syscall.Signal(req.Signal), req.ExecId == "")
	return &emptypb.Empty{}, nil
}

func (a *Agent) WaitProcess(ctx context.Context, req *agent.WaitProcessRequest) (*agent.WaitProcessResponse, error) {
	a.node.record("WaitProcess")
	p, err := a.proc(req.ContainerId, req.ExecId)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.exited:
		return &agent.WaitProcessResponse{Status: p.status}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (a *Agent) RemoveContainer(ctx context.Context, req *agent.RemoveContainerRequest) (*emptypb.Empty, error) {
	a.node.record("RemoveContainer")
	return &emptypb.Empty{}, nil
}

func (a *Agent) RemoveStaleVirtiofsShareMounts(context.Context, *agent.RemoveStaleVirtiofsShareMountsRequest) (*emptypb.Empty, error) {
	a.node.record("RemoveStaleVirtiofsShareMounts")
	return &emptypb.Empty{}, nil
}

func (a *Agent) StatsContainer(context.Context, *agent.StatsContainerRequest) (*agent.StatsContainerResponse, error) {
	return &agent.StatsContainerResponse{NetworkStats: make([]*agent.NetworkStats, a.node.StatsInterfaces), CgroupStats: &agent.CgroupStats{
		CpuStats:    &agent.CpuStats{CpuUsage: &agent.CpuUsage{TotalUsage: 2e9}},
		MemoryStats: &agent.MemoryStats{Usage: &agent.MemoryData{Usage: 3 << 20, Limit: 64 << 20}},
		PidsStats:   &agent.PidsStats{Current: 2},
	}}, nil
}

func (a *Agent) ReadStdout(ctx context.Context, req *agent.ReadStreamRequest) (*agent.ReadStreamResponse, error) {
	return a.read(ctx, req, func(p *process) (*os.File, *sync.Mutex) { return p.stdout, &p.outTurn })
}

func (a *Agent) ReadStderr(ctx context.Context, req *agent.ReadStreamRequest) (*agent.ReadStreamResponse, error) {
	return a.read(ctx, req, func(p *process) (*os.File, *sync.Mutex) { return p.stderr, &p.errTurn })
}

// read takes nothing for a client that is gone, whose context ends, and has taken back its
// deadline when the next client reads.
func (a *Agent) read(ctx context.Context, req *agent.ReadStreamRequest, stream func(*process) (*os.File, *sync.Mutex)) (*agent.ReadStreamResponse, error) {
	p, err := a.proc(req.ContainerId, req.ExecId)
	if err != nil {
		return nil, err
	}
	f, turn := stream(p)
	if f == nil {
		return nil, status.Error(codes.InvalidArgument, "a terminal has no stderr")
	}
	turn.Lock()
	defer turn.Unlock()
	fired := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)); close(fired) })
	buf := make([]byte, req.Len)
	n, err := f.Read(buf)
	if !stop() {
		<-fired
		f.SetReadDeadline(time.Time{})
	}
	if n == 0 && err != nil { // io.EOF, or EIO of a terminal
		return nil, status.Error(codes.InvalidArgument, "eof")
	}
	return &agent.ReadStreamResponse{Data: buf[:n]}, nil
}

func (a *Agent) WriteStdin(ctx context.Context, req *agent.WriteStreamRequest) (*agent.WriteStreamResponse, error) {
	p, err := a.proc(req.ContainerId, req.ExecId)
	if err != nil {
		return nil, err
	}
	data := req.Data
	if n := a.node.ShortWrites; n > 0 && len(data) > n {
		data = data[:n]
	}
	n, err := p.stdin.Write(data)
	if err != nil && !errors.Is(err, io.ErrShortWrite) {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return &agent.WriteStreamResponse{Len: uint32(n)}, nil
}

func (a *Agent) CloseStdin(ctx context.Context, req *agent.CloseStdinRequest) (*emptypb.Empty, error) {
	a.node.record("CloseStdin")
	p, err := a.proc(req.ContainerId, req.ExecId)
	if err != nil {
		return nil, err
	}
	p.closeIn.Do(func() {
		if p.tty == nil {
			p.stdin.Close()
		}
	})
	return &emptypb.Empty{}, nil
}

func (a *Agent) TtyWinResize(ctx context.Context, req *agent.TtyWinResizeRequest) (*emptypb.Empty, error) {
	a.node.record(fmt.Sprintf("TtyWinResize %dx%d", req.Row, req.Column))
	p, err := a.proc(req.ContainerId, req.ExecId)
	if err != nil {
		return nil, err
	}
	if p.tty == nil {
		return nil, status.Error(codes.FailedPrecondition, "not a terminal")
	}
	return &emptypb.Empty{}, p.resize(req.Row, req.Column)
}
