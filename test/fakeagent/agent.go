// SPDX-License-Identifier: Apache-2.0

package fakeagent

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/protocol/hypervisor"
)

// Agent is the agent of one sandbox. Methods that it lacks answer
// Unimplemented by way of the nil interface's absence: tests must not need them.
type Agent struct {
	agent.AgentServiceService
	node   *Node
	req    *hypervisor.CreateVMRequest
	socket string
	server *ttrpc.Server
	sick   atomic.Bool
	done   chan struct{}
	oom    chan string
	conns  connections

	mu      sync.Mutex
	sandbox *agent.CreateSandboxRequest
	created map[string]*agent.CreateContainerRequest
	execs   []*agent.ExecProcessRequest
	procs   map[string]*process // by container id + "/" + exec id
	files   map[string]*File
}

// File is what CopyFile made.
type File struct {
	Mode     uint32
	UID, GID int32
	Size     int64
	Data     []byte
	// Calls is how many requests carried it.
	Calls int
}

func newAgent(n *Node, req *hypervisor.CreateVMRequest, socket string) *Agent {
	return &Agent{
		node: n, req: req, socket: socket, done: make(chan struct{}), oom: make(chan string, 8),
		created: map[string]*agent.CreateContainerRequest{}, procs: map[string]*process{}, files: map[string]*File{},
	}
}

// NewAgent returns an agent without a node, for a server of the caller's.
func NewAgent() *Agent { return newAgent(&Node{}, nil, "") }

func (a *Agent) serve() (err error) {
	a.server, err = ttrpc.NewServer()
	if err != nil {
		return err
	}
	agent.RegisterAgentServiceService(a.server, a)
	agent.RegisterHealthService(a.server, healthService{a})
	guest.RegisterGuestService(a.server, guestService{a})
	return serve(a.server, a.socket, &a.conns)
}

// Drop closes all connections to the agent, as a dying relay does.
func (a *Agent) Drop() { a.close() }

func (a *Agent) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.done:
		return
	default:
	}
	close(a.done)
	// Connections first: nobody is to hear of the processes' end. The server
	// closes them only after a while.
	a.conns.close()
	if a.server != nil {
		a.server.Close()
	}
	for _, p := range a.procs {
		p.kill(syscall.SIGKILL, true)
	}
	os.Remove(a.socket)
}

// Sicken makes health checks return NOT_SERVING.
func (a *Agent) Sicken() { a.sick.Store(true) }

// OOM ends the pending GetOOMEvent.
func (a *Agent) OOM(containerID string) { a.oom <- containerID }

// VM returns the request that made the sandbox.
func (a *Agent) VM() *hypervisor.CreateVMRequest { return a.req }

// Sandbox returns the CreateSandbox request.
func (a *Agent) Sandbox() *agent.CreateSandboxRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.sandbox
}

// Created holds the CreateContainer requests by container id.
func (a *Agent) Created() map[string]*agent.CreateContainerRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]*agent.CreateContainerRequest{}
	for id, req := range a.created {
		all[id] = req
	}
	return all
}

// Execs holds the ExecProcess requests.
func (a *Agent) Execs() []*agent.ExecProcessRequest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]*agent.ExecProcessRequest(nil), a.execs...)
}

// Files holds what CopyFile made, by guest path.
func (a *Agent) Files() map[string]*File {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string]*File{}
	for name, f := range a.files {
		all[name] = f
	}
	return all
}

// Write replaces the content of a file that CopyFile made, as a container does.
func (a *Agent) Write(path string, data []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	changed := *a.files[path]
	changed.Data = data
	a.files[path] = &changed
}

// Size returns the size that was set last for the terminal of a process.
func (a *Agent) Size(containerID, execID string) (rows, columns uint32) {
	if p, err := a.proc(containerID, execID); err == nil && p.tty != nil {
		return p.size()
	}
	return 0, 0
}

func (a *Agent) CreateSandbox(ctx context.Context, req *agent.CreateSandboxRequest) (*emptypb.Empty, error) {
	a.node.record("CreateSandbox")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sandbox = req
	return &emptypb.Empty{}, nil
}

// SetGuestDateTime does nothing.
func (a *Agent) SetGuestDateTime(context.Context, *agent.SetGuestDateTimeRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// DestroySandbox ends the sandbox.
func (a *Agent) DestroySandbox(context.Context, *agent.DestroySandboxRequest) (*emptypb.Empty, error) {
	a.node.record("DestroySandbox")
	return &emptypb.Empty{}, nil
}

func (a *Agent) SetPolicy(context.Context, *agent.SetPolicyRequest) (*emptypb.Empty, error) {
	a.node.record("SetPolicy")
	return &emptypb.Empty{}, nil
}

func (a *Agent) GetGuestDetails(context.Context, *agent.GuestDetailsRequest) (*agent.GuestDetailsResponse, error) {
	a.node.record("GetGuestDetails")
	return &agent.GuestDetailsResponse{MemBlockSizeBytes: 128 << 20, AgentDetails: &agent.AgentDetails{Version: "fake"}}, nil
}

func (a *Agent) GetOOMEvent(ctx context.Context, _ *agent.GetOOMEventRequest) (*agent.OOMEvent, error) {
	select {
	case id := <-a.oom:
		return &agent.OOMEvent{ContainerId: id}, nil
	case <-a.done:
	case <-ctx.Done():
	}
	return nil, status.Error(codes.Unavailable, "sandbox is gone")
}

func (a *Agent) CopyFile(ctx context.Context, req *agent.CopyFileRequest) (*emptypb.Empty, error) {
	a.node.record("CopyFile")
	a.mu.Lock()
	defer a.mu.Unlock()
	f := a.files[req.Path]
	if f == nil || req.Offset == 0 {
		f = &File{}
		a.files[req.Path] = f
	}
	if int64(len(f.Data)) != req.Offset {
		return nil, status.Errorf(codes.InvalidArgument, "offset %d after %d bytes", req.Offset, len(f.Data))
	}
	f.Mode, f.UID, f.GID, f.Size = req.FileMode, req.Uid, req.Gid, req.FileSize
	f.Data = append(f.Data, req.Data...)
	f.Calls++
	return &emptypb.Empty{}, nil
}
