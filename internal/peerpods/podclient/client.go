// SPDX-License-Identifier: Apache-2.0

// Package podclient drives a pod the way a Kata shim does: it asks the
// hypervisor service of a node for a VM and speaks the agent protocol to what
// runs in it. Order of calls and deadlines are those of the Go shim, so what
// works here works for the real one.
//
//	client := podclient.New("/run/peerpod/hypervisor.sock")
//	pod, err := client.Create(ctx, podclient.PodSpec{Name: "p1"})
//	defer pod.Stop(ctx)
//	c, err := pod.CreateContainer(ctx, podclient.ContainerSpec{Image: ref, Args: args})
//	c.Stream(podclient.IO{Stdout: os.Stdout, Stderr: os.Stderr})
//	err = c.Start(ctx)
//	status, err := c.Wait(ctx)
package podclient

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/protocol/adaptor"
	"github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/timeline"
)

// Client calls the hypervisor service of a node. Like the Go shim it dials for
// each call, so a restart of the service does not disturb it. The zero Logger
// discards.
type Client struct {
	Socket string
	Logger *slog.Logger
}

// New returns a client of the service at a unix socket. Nothing is dialled.
func New(socket string) *Client { return &Client{Socket: socket} }

func (c *Client) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.DiscardHandler)
	}
	return c.Logger
}

// call makes one call of a service at the client's socket.
func call[S, Req, Resp any](
	ctx context.Context, c *Client, service func(*ttrpc.Client) S, method func(S, context.Context, *Req) (*Resp, error), req *Req,
) (*Resp, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return nil, fmt.Errorf("hypervisor socket: %w", err)
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	return method(service(client), ctx, req)
}

// CreateVM asks for a sandbox and returns the path of its agent socket.
func (c *Client) CreateVM(ctx context.Context, req *hypervisor.CreateVMRequest) (string, error) {
	resp, err := call(ctx, c, hypervisor.NewHypervisorClient, hypervisor.HypervisorService.CreateVM, req)
	if err == nil && resp.AgentSocketPath == "" {
		err = errors.New("the hypervisor service returned no agent socket")
	}
	return resp.GetAgentSocketPath(), err
}

// StartVM boots the sandbox's VM and returns when its agent can be dialled.
// The deadline of ctx travels with the call.
func (c *Client) StartVM(ctx context.Context, id string) error {
	_, err := call(ctx, c, hypervisor.NewHypervisorClient, hypervisor.HypervisorService.StartVM, &hypervisor.StartVMRequest{Id: id})
	return err
}

// StopVM removes the sandbox and its VM.
func (c *Client) StopVM(ctx context.Context, id string) error {
	_, err := call(ctx, c, hypervisor.NewHypervisorClient, hypervisor.HypervisorService.StopVM, &hypervisor.StopVMRequest{Id: id})
	return err
}

// Info asks cloud-api-adaptor about itself; other hypervisor services answer
// Unimplemented.
func (c *Client) Info(ctx context.Context) (*adaptor.InfoResponse, error) {
	return call(ctx, c, adaptor.NewAdaptorClient, adaptor.AdaptorService.Info, &adaptor.InfoRequest{})
}

// Pool asks cloud-api-adaptor about the VMs that wait there, and with drain removes them first.
func (c *Client) Pool(ctx context.Context, drain bool) (*adaptor.PoolResponse, error) {
	return call(ctx, c, adaptor.NewAdaptorClient, adaptor.AdaptorService.Pool, &adaptor.PoolRequest{Drain: drain})
}

// Sandboxes lists what cloud-api-adaptor has on record.
func (c *Client) Sandboxes(ctx context.Context) ([]*adaptor.Sandbox, error) {
	resp, err := call(ctx, c, adaptor.NewAdaptorClient, adaptor.AdaptorService.ListSandboxes, &adaptor.ListSandboxesRequest{})
	return resp.GetSandboxes(), err
}

// Console returns the last tailBytes bytes of a VM's console; 0 means 64 KiB.
func (c *Client) Console(ctx context.Context, id string, tailBytes int64) ([]byte, error) {
	resp, err := call(ctx, c, adaptor.NewAdaptorClient, adaptor.AdaptorService.Console, &adaptor.ConsoleRequest{Id: id, TailBytes: tailBytes})
	return resp.GetData(), err
}

// Timeline returns where the time of a sandbox's start goes. An adaptor of an older
// version has none: Missing says so.
func (c *Client) Timeline(ctx context.Context, id string) (timeline.Timeline, error) {
	resp, err := call(ctx, c, adaptor.NewAdaptorClient, adaptor.AdaptorService.Timeline, &adaptor.TimelineRequest{Id: id})
	if status.Code(err) == codes.Unimplemented {
		return timeline.Timeline{Missing: timeline.WhyNot(err, "the adaptor of this node")}, nil
	}
	return timeline.FromProto(resp), err
}

const (
	// mostAnswer bounds one reply of a guest: 32 KiB of output are asked for at a
	// time, and statistics of a container have a few kilobytes.
	mostAnswer = 256 << 10
	// mostWords is what Kubernetes takes of a termination message, in bytes.
	mostWords = 4096
)

// bounded limits the size of what a guest sends, and makes its errors one line
// without control characters.
func bounded(ctx context.Context, req *ttrpc.Request, resp *ttrpc.Response, _ *ttrpc.UnaryClientInfo, call ttrpc.Invoker) error {
	if err := call(ctx, req, resp); err != nil {
		return err
	}
	if s := resp.Status; s != nil {
		s.Message, s.Details = redact.Line(s.Message), nil
	}
	size, most := len(resp.Payload), mostAnswer
	if req.Method == "Attestation" {
		most = attest.MaxEvidence
	}
	if size <= most {
		return nil
	}
	resp.Payload = nil
	// With a code it is not mistaken for a lost connection.
	return status.Errorf(codes.ResourceExhausted, "the guest answered %s with %d bytes; the limit is %d", req.Method, size, most)
}

// Deadlines of the calls of the Go shim. Long polls (WaitProcess, GetOOMEvent,
// ReadStdout, ReadStderr) have none.
const (
	// HealthTimeout bounds one health check.
	HealthTimeout = 30 * time.Second
	// SandboxTimeout bounds SetPolicy and CreateSandbox.
	SandboxTimeout = 300 * time.Second
	// CallTimeout bounds all calls that have no limit of their own.
	CallTimeout = 60 * time.Second
	// StartTimeout is the default for StartVM: the shim's
	// remote_hypervisor_timeout when it is not set.
	StartTimeout = 600 * time.Second
	// PullTimeout is the default for CreateContainer, which pulls the image
	// in the guest. The shim's create_container_timeout is often 60 s.
	PullTimeout = 600 * time.Second
	// DialTimeout is how long the agent socket is tried after StartVM.
	DialTimeout = 30 * time.Second
	// HealthInterval is the time between health checks.
	HealthInterval = 5 * time.Second
)

// Paths in the guest that shim and agent agree on.
const (
	guestShared     = "/run/kata-containers/shared/containers"
	guestContainers = "/run/kata-containers"
	guestEphemeral  = "/run/kata-containers/sandbox/ephemeral"
	// GuestNetwork is where the guest mounts network file systems: in none of the folders that its agent
	// empties at the pod's end, or it would empty what is on the server.
	GuestNetwork = "/run/kata-containers/network-volumes"
	// GuestShm is the pod's shared memory, made by CreateSandbox.
	GuestShm = "/run/kata-containers/sandbox/shm"
)

// Annotation keys that the shim and containerd set.
const (
	annSandboxName      = "io.kubernetes.cri.sandbox-name"
	annSandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	annSandboxUID       = "io.kubernetes.cri.sandbox-uid"
	annSandboxID        = "io.kubernetes.cri.sandbox-id"
	annContainerName    = "io.kubernetes.cri.container-name"
	annCRIType          = "io.kubernetes.cri.container-type"
	annImageName        = "io.kubernetes.cri.image-name"
	annKataType         = "io.katacontainers.pkg.oci.container_type"
	annBundlePath       = "io.katacontainers.pkg.oci.bundle_path"
	annNetns            = "nerdctl/network-namespace"

	hypervisorPrefix = "io.katacontainers.config.hypervisor."
)

// Stage is how far a pod has come.
type Stage string

// Stages, in order.
const (
	StageBooting   Stage = "booting"   // CreateVM was answered, StartVM is under way
	StageConnected Stage = "connected" // the agent answered a health check
	StagePulling   Stage = "pulling"   // Done and Total hold bytes
	StageStarted   Stage = "started"   // StartContainer was answered
)

// Event reports progress.
type Event struct {
	Stage Stage
	// Elapsed is the time since Create or CreateContainer began.
	Elapsed time.Duration
	// Done and Total are compressed bytes of the image; Total is 0 while unknown.
	Done, Total int64
}
