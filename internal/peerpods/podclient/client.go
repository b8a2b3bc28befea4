// SPDX-License-Identifier: Apache-2.0

package podclient

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/protocol/adaptor"
	"github.com/outrigger/outrigger/internal/protocol/hypervisor"
)

// Client calls the hypervisor service of a node. Like the Go shim it dials for
// each call, so a restart of the service does not disturb it. The zero Logger
// discards.
type Client struct {
	Socket string
	Logger *slog.Logger
}

// New returns a client of the service at a unix socket. Nothing is dialled.
func New(socket string) *Client {
	return &Client{Socket: socket, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

func (c *Client) logger() *slog.Logger {
	if c.Logger == nil {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	return c.Logger
}

func (c *Client) call(ctx context.Context, do func(*ttrpc.Client) error) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.Socket)
	if err != nil {
		return fmt.Errorf("hypervisor socket: %w", err)
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	return do(client)
}

// CreateVM asks for a sandbox and returns the path of its agent socket.
func (c *Client) CreateVM(ctx context.Context, req *hypervisor.CreateVMRequest) (string, error) {
	var resp *hypervisor.CreateVMResponse
	err := c.call(ctx, func(t *ttrpc.Client) (err error) {
		resp, err = hypervisor.NewHypervisorClient(t).CreateVM(ctx, req)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("CreateVM: %w", err)
	}
	if resp.AgentSocketPath == "" {
		return "", fmt.Errorf("CreateVM: the hypervisor service returned no agent socket")
	}
	return resp.AgentSocketPath, nil
}

// StartVM boots the sandbox's VM and returns when its agent can be dialled.
// The deadline of ctx travels with the call.
func (c *Client) StartVM(ctx context.Context, id string) error {
	err := c.call(ctx, func(t *ttrpc.Client) error {
		_, err := hypervisor.NewHypervisorClient(t).StartVM(ctx, &hypervisor.StartVMRequest{Id: id})
		return err
	})
	if err != nil {
		return fmt.Errorf("StartVM: %w", err)
	}
	return nil
}

// StopVM removes the sandbox and its VM.
func (c *Client) StopVM(ctx context.Context, id string) error {
	err := c.call(ctx, func(t *ttrpc.Client) error {
		_, err := hypervisor.NewHypervisorClient(t).StopVM(ctx, &hypervisor.StopVMRequest{Id: id})
		return err
	})
	if err != nil {
		return fmt.Errorf("StopVM: %w", err)
	}
	return nil
}

// Info asks cloud-api-adaptor about itself; other hypervisor services answer
// Unimplemented.
func (c *Client) Info(ctx context.Context) (*adaptor.InfoResponse, error) {
	var resp *adaptor.InfoResponse
	err := c.call(ctx, func(t *ttrpc.Client) (err error) {
		resp, err = adaptor.NewAdaptorClient(t).Info(ctx, &adaptor.InfoRequest{})
		return err
	})
	return resp, err
}

// Sandboxes lists what cloud-api-adaptor has on record.
func (c *Client) Sandboxes(ctx context.Context) ([]*adaptor.Sandbox, error) {
	var resp *adaptor.ListSandboxesResponse
	err := c.call(ctx, func(t *ttrpc.Client) (err error) {
		resp, err = adaptor.NewAdaptorClient(t).ListSandboxes(ctx, &adaptor.ListSandboxesRequest{})
		return err
	})
	return resp.GetSandboxes(), err
}

// Console returns the last tailBytes bytes of a VM's console; 0 means 64 KiB.
func (c *Client) Console(ctx context.Context, id string, tailBytes int64) ([]byte, error) {
	var resp *adaptor.ConsoleResponse
	err := c.call(ctx, func(t *ttrpc.Client) (err error) {
		resp, err = adaptor.NewAdaptorClient(t).Console(ctx, &adaptor.ConsoleRequest{Id: id, TailBytes: tailBytes})
		return err
	})
	return resp.GetData(), err
}
