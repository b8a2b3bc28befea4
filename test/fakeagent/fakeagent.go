// SPDX-License-Identifier: Apache-2.0

// Package fakeagent is a node and its pod VMs for tests: the hypervisor and
// adaptor services on one socket, and for each sandbox an agent whose
// containers are plain processes of this host. It needs no privileges.
package fakeagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/adaptor"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/internal/protocol/timeline"
)

// Node is the fake node. Set its fields before the calls that they affect.
type Node struct {
	// Socket serves hypervisor.Hypervisor and the adaptor service.
	Socket string
	// CreateErr and StartErr are the errors of CreateVM and StartVM.
	CreateErr, StartErr error
	// StopErr is the error of the first StopVM, which then does nothing.
	StopErr error
	// StartBlocks holds StartVM until its deadline or caller ends.
	StartBlocks bool
	// NodeAddress is where VMs see this host, 127.0.0.1; empty if the adaptor does not know it.
	NodeAddress string
	// ConsoleText is every VM's console.
	ConsoleText string
	// Timeline is that of every sandbox; nil means an adaptor without timelines.
	Timeline *timeline.Timeline
	// ExecErr is the error of ExecProcess.
	ExecErr error
	// OlderAgent makes agents without CopyFiles, such as Kata's.
	OlderAgent bool
	// StatsInterfaces is how many network interfaces StatsContainer returns.
	StatsInterfaces int
	// ShortWrites makes the agent take at most this many bytes of WriteStdin.
	ShortWrites int

	dir    string
	server *ttrpc.Server

	mu     sync.Mutex
	calls  []string
	pods   map[string]*Agent
	vms    int
	refuse error
}

// Refuse makes CreateContainer fail, as when an image cannot be pulled; nil ends that.
func (n *Node) Refuse(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuse = err
}

func (n *Node) refused() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.refuse
}

// Start serves a node in a new folder. Close it at the end.
func Start() (*Node, error) {
	dir, err := os.MkdirTemp("/tmp", "fakenode")
	if err != nil {
		return nil, err
	}
	n := &Node{Socket: filepath.Join(dir, "hv.sock"), NodeAddress: "127.0.0.1", dir: dir, pods: map[string]*Agent{}}
	n.server, err = ttrpc.NewServer()
	if err != nil {
		return nil, err
	}
	hypervisor.RegisterHypervisorService(n.server, hypervisorService{n})
	adaptor.RegisterAdaptorService(n.server, adaptorService{n})
	return n, serve(n.server, n.Socket, &connections{})
}

func serve(s *ttrpc.Server, path string, conns *connections) error {
	l, err := net.Listen("unix", path)
	if err != nil {
		return err
	}
	conns.Listener = l
	go s.Serve(context.Background(), conns)
	return nil
}

// connections is a listener that can close what it has accepted, at once.
type connections struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.open = append(c.open, conn)
	}
	return conn, err
}

func (c *connections) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.open {
		conn.Close()
	}
}

// Close kills what runs and removes the folder.
func (n *Node) Close() error {
	n.mu.Lock()
	pods := n.pods
	n.pods = map[string]*Agent{}
	n.mu.Unlock()
	for _, a := range pods {
		a.close()
	}
	return errors.Join(n.server.Close(), os.RemoveAll(n.dir))
}

// Calls returns the methods called so far, in order, without reads of streams and of
// pull progress.
func (n *Node) Calls() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return append([]string(nil), n.calls...)
}

func (n *Node) record(call string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls = append(n.calls, call)
}

// VMs returns how many VMs exist.
func (n *Node) VMs() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.pods)
}

// Agent returns the agent of a sandbox; nil if there is none.
func (n *Node) Agent(id string) *Agent {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.pods[id]
}

// Agents returns the agents of all sandboxes.
func (n *Node) Agents() []*Agent {
	n.mu.Lock()
	defer n.mu.Unlock()
	var all []*Agent
	for _, a := range n.pods {
		all = append(all, a)
	}
	return all
}

type hypervisorService struct{ *Node }

func (n hypervisorService) CreateVM(ctx context.Context, req *hypervisor.CreateVMRequest) (*hypervisor.CreateVMResponse, error) {
	n.record("CreateVM")
	if n.CreateErr != nil {
		return nil, n.CreateErr
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.pods[req.Id] != nil {
		return nil, status.Errorf(codes.AlreadyExists, "sandbox %s exists", req.Id)
	}
	n.vms++
	a := newAgent(n.Node, req, filepath.Join(n.dir, fmt.Sprintf("%d.sock", n.vms)))
	n.pods[req.Id] = a
	return &hypervisor.CreateVMResponse{AgentSocketPath: a.socket}, nil
}

func (n hypervisorService) StartVM(ctx context.Context, req *hypervisor.StartVMRequest) (*hypervisor.StartVMResponse, error) {
	n.record("StartVM")
	if n.StartBlocks {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if n.StartErr != nil {
		return nil, n.StartErr
	}
	a := n.Agent(req.Id)
	if a == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", req.Id)
	}
	return &hypervisor.StartVMResponse{}, a.serve()
}

func (n hypervisorService) StopVM(ctx context.Context, req *hypervisor.StopVMRequest) (*hypervisor.StopVMResponse, error) {
	n.record("StopVM")
	n.mu.Lock()
	if err := n.StopErr; err != nil {
		n.StopErr = nil
		n.mu.Unlock()
		return nil, err
	}
	a := n.pods[req.Id]
	delete(n.pods, req.Id)
	n.mu.Unlock()
	if a != nil {
		a.close()
	}
	return &hypervisor.StopVMResponse{}, nil
}

func (n hypervisorService) Version(context.Context, *hypervisor.VersionRequest) (*hypervisor.VersionResponse, error) {
	return &hypervisor.VersionResponse{Version: "0.0.0"}, nil
}

type adaptorService struct{ *Node }

func (n adaptorService) Info(context.Context, *adaptor.InfoRequest) (*adaptor.InfoResponse, error) {
	return &adaptor.InfoResponse{Version: "fake", Provider: "fake", NodeAddress: n.NodeAddress, Pid: int32(os.Getpid())}, nil
}

func (n adaptorService) ListSandboxes(context.Context, *adaptor.ListSandboxesRequest) (*adaptor.ListSandboxesResponse, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	resp := &adaptor.ListSandboxesResponse{}
	for id, a := range n.pods {
		resp.Sandboxes = append(resp.Sandboxes, &adaptor.Sandbox{
			Id: id, State: "ready", Addresses: []string{"192.0.2.1"}, AgentSocket: a.socket,
			PodName:      a.req.Annotations["io.kubernetes.cri.sandbox-name"],
			PodNamespace: a.req.Annotations["io.kubernetes.cri.sandbox-namespace"],
		})
	}
	return resp, nil
}

func (n adaptorService) Pool(context.Context, *adaptor.PoolRequest) (*adaptor.PoolResponse, error) {
	return nil, status.Error(codes.NotFound, "no pool")
}

func (n adaptorService) Console(ctx context.Context, req *adaptor.ConsoleRequest) (*adaptor.ConsoleResponse, error) {
	if n.Agent(req.Id) == nil {
		return nil, status.Errorf(codes.NotFound, "no sandbox %s", req.Id)
	}
	return &adaptor.ConsoleResponse{Data: []byte(n.ConsoleText)}, nil
}

// Timeline returns Node.Timeline; without one the adaptor is of an older version.
func (n adaptorService) Timeline(context.Context, *adaptor.TimelineRequest) (*timeline.Timeline, error) {
	if n.Node.Timeline == nil {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	return n.Node.Timeline, nil
}

type guestService struct{ *Agent }

// Timeline: the agent is of an older version.
func (guestService) Timeline(context.Context, *guest.TimelineRequest) (*guest.TimelineResponse, error) {
	return nil, status.Error(codes.Unimplemented, "no such method")
}

// Attestation: the agent is of an older version.
func (guestService) Attestation(context.Context, *guest.AttestationRequest) (*guest.AttestationResponse, error) {
	return nil, status.Error(codes.Unimplemented, "no such method")
}

func (a guestService) PullProgress(ctx context.Context, req *guest.PullProgressRequest) (*guest.PullProgressResponse, error) {
	return &guest.PullProgressResponse{DoneBytes: 1 << 20, TotalBytes: 1 << 20, Finished: true}, nil
}

func (a guestService) CopyFiles(ctx context.Context, req *guest.CopyFilesRequest) (*guest.CopyFilesResponse, error) {
	a.node.record("CopyFiles")
	if a.node.OlderAgent {
		return nil, status.Error(codes.Unimplemented, "no such method")
	}
	for _, file := range req.Files {
		if _, err := a.CopyFile(ctx, file); err != nil {
			return nil, err
		}
	}
	return &guest.CopyFilesResponse{}, nil
}

// ReadCopied returns what is in the file by now: tests write there for
// containers, with Write.
func (a guestService) ReadCopied(_ context.Context, req *guest.ReadCopiedRequest) (*guest.ReadCopiedResponse, error) {
	a.node.record("ReadCopied")
	f := a.Files()[req.Path]
	if f == nil {
		return nil, status.Errorf(codes.NotFound, "no file %s", req.Path)
	}
	return &guest.ReadCopiedResponse{Data: f.Data}, nil
}

type healthService struct{ *Agent }

func (a healthService) Check(context.Context, *agent.CheckRequest) (*agent.HealthCheckResponse, error) {
	a.node.record("Check")
	if a.sick.Load() {
		return &agent.HealthCheckResponse{Status: agent.HealthCheckResponse_NOT_SERVING}, nil
	}
	return &agent.HealthCheckResponse{Status: agent.HealthCheckResponse_SERVING}, nil
}

func (a healthService) Version(context.Context, *agent.CheckRequest) (*agent.VersionCheckResponse, error) {
	return &agent.VersionCheckResponse{AgentVersion: "fake"}, nil
}
