// SPDX-License-Identifier: Apache-2.0

//go:build integration

package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// client is the kubelet's side of CRI.
type client struct {
	cri.RuntimeServiceClient
	node *node
	ctx  context.Context
}

func newClient(t *testing.T, s *node) *client {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+s.containerd, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return &client{cri.NewRuntimeServiceClient(conn), s, t.Context()}
}

// pod is a running sandbox; its containers are added with start.
type pod struct {
	*client
	id     string
	name   string
	config *cri.PodSandboxConfig
	gone   bool
}

// podConfig is of a pod without anything special.
func (c *client) podConfig(t *testing.T, name string) *cri.PodSandboxConfig {
	t.Helper()
	logs := filepath.Join(c.node.dir, "logs", name)
	if err := os.MkdirAll(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	return &cri.PodSandboxConfig{
		Metadata:     &cri.PodSandboxMetadata{Name: name, Uid: "uid-" + name, Namespace: "interop"},
		Hostname:     name,
		LogDirectory: logs,
		DnsConfig:    &cri.DNSConfig{Servers: []string{"10.213.77.1"}, Searches: []string{"svc.local"}},
		Linux: &cri.LinuxPodSandboxConfig{
			CgroupParent:    "/interop",
			SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{Pid: cri.NamespaceMode_CONTAINER}},
		},
	}
}

func (c *client) runPod(t *testing.T, name string, change func(*cri.PodSandboxConfig)) *pod {
	t.Helper()
	config := c.podConfig(t, name)
	if change != nil {
		change(config)
	}
	res, err := c.RunPodSandbox(c.ctx, &cri.RunPodSandboxRequest{Config: config, RuntimeHandler: "kata-remote"})
	if err != nil {
		t.Fatalf("RunPodSandbox: %v", err)
	}
	p := &pod{client: c, id: res.PodSandboxId, name: name, config: config}
	t.Cleanup(func() { p.remove(t) })
	return p
}

// remove stops and removes the pod, once.
func (p *pod) remove(t *testing.T) {
	t.Helper()
	if p.gone {
		return
	}
	p.gone = true
	// The test's context has ended when this runs as a clean-up.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if _, err := p.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Errorf("StopPodSandbox %s: %v", p.name, err)
	}
	if _, err := p.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Errorf("RemovePodSandbox %s: %v", p.name, err)
	}
}

// container is one started container of a pod.
type container struct {
	*pod
	id  string
	log string
}

func (p *pod) start(t *testing.T, name string, change func(*cri.ContainerConfig), command ...string) *container {
	t.Helper()
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name},
		Image:    &cri.ImageSpec{Image: p.node.registry.Ref},
		Command:  command,
		Envs:     []*cri.KeyValue{{Key: "FOO", Value: []byte("bar")}},
		LogPath:  name + ".log",
		Linux: &cri.LinuxContainerConfig{
			Resources:       &cri.LinuxContainerResources{},
			SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: p.config.Linux.SecurityContext.NamespaceOptions},
		},
	}
	if change != nil {
		change(config)
	}
	created, err := p.CreateContainer(p.ctx, &cri.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
	if err != nil {
		t.Fatalf("CreateContainer %s: %v", name, err)
	}
	if _, err := p.StartContainer(p.ctx, &cri.StartContainerRequest{ContainerId: created.ContainerId}); err != nil {
		t.Fatalf("StartContainer %s: %v", name, err)
	}
	return &container{pod: p, id: created.ContainerId, log: filepath.Join(p.config.LogDirectory, config.LogPath)}
}

// output returns what the container wrote to stream, from the CRI log file:
// lines of "time stream tag text".
func (c *container) output(t *testing.T, stream string) string {
	t.Helper()
	data, err := os.ReadFile(c.log)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(line, " ", 4)
		if len(parts) == 4 && parts[1] == stream {
			out.WriteString(parts[3])
		}
	}
	return out.String()
}

// waitOutput waits until the container's stdout contains want.
func (c *container) waitOutput(t *testing.T, want string) {
	t.Helper()
	eventually(t, func() error {
		if got := c.output(t, "stdout"); !strings.Contains(got, want) {
			return fmt.Errorf("stdout of %s is %q, want it to contain %q", c.name, got, want)
		}
		return nil
	})
}

// waitExit returns the exit code and the reason.
func (c *container) waitExit(t *testing.T) (int32, string) {
	t.Helper()
	var status *cri.ContainerStatus
	eventually(t, func() error {
		res, err := c.ContainerStatus(c.ctx, &cri.ContainerStatusRequest{ContainerId: c.id})
		if err != nil {
			return err
		}
		if status = res.Status; status.State != cri.ContainerState_CONTAINER_EXITED {
			return fmt.Errorf("container is %v", status.State)
		}
		return nil
	})
	return status.ExitCode, status.Reason
}

func (c *container) exec(t *testing.T, command ...string) (stdout, stderr string, code int32) {
	t.Helper()
	res, err := c.ExecSync(c.ctx, &cri.ExecSyncRequest{ContainerId: c.id, Cmd: command, Timeout: 60})
	if err != nil {
		t.Fatalf("ExecSync %v: %v", command, err)
	}
	return string(res.Stdout), string(res.Stderr), res.ExitCode
}

type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	size, ok := <-s
	if !ok {
		return nil
	}
	return &size
}

// stream runs a command as kubectl exec -i (or -it, with a window size) does.
func (c *container) stream(t *testing.T, stdin io.Reader, window *remotecommand.TerminalSize, command ...string) (string, error) {
	t.Helper()
	res, err := c.Exec(c.ctx, &cri.ExecRequest{ContainerId: c.id, Cmd: command, Tty: window != nil, Stdin: true, Stdout: true, Stderr: window == nil})
	if err != nil {
		t.Fatalf("Exec: %v", err)
	}
	address, err := url.Parse(res.Url)
	if err != nil {
		t.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", address)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	options := remotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Tty: window != nil}
	if window == nil {
		options.Stderr = io.Discard
	} else {
		queue := make(sizes, 1)
		queue <- *window
		options.TerminalSizeQueue = queue
		defer close(queue)
	}
	err = executor.StreamWithContext(c.ctx, options)
	return out.String(), err
}

// eventually polls what has no event to wait for: files and CRI status.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
