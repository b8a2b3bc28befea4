// SPDX-License-Identifier: Apache-2.0

//go:build integration

package image

import (
	"bytes"
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// TestVMWithKatasAgent boots an image with stand-ins (test/kataguest) and calls its agent as a node does.
func TestVMWithKatasAgent(t *testing.T) {
	t.Parallel()
	needTools(t, "apt-get", "apt", "dpkg-deb", "dpkg", "depmod", "kmod", "qemu-system-x86_64", "qemu-system-x86")
	image := buildOwnImage(t, Options{Guest: GuestKata, GuestBinaries: standIns(t)})
	userData, node := identity(t, "kata-vm", false,
		cloudinit.WriteFile{Path: "/run/peerpod/initdata", Content: "algorithm = 'sha256'\nversion = '0.1.0'\n[data]\n'aa.toml' = '[token_configs]'\n'cdh.toml' = '[kbc]'\n'policy.rego' = 'package agent_policy'\n"},
		cloudinit.WriteFile{Path: "/run/peerpod/auth.json", Content: "{}"})
	v, address := startPodVM(t, image, userData)
	v.await(t, "agent-protocol-forwarder is ready")
	inOrder(t, v,
		"user-data provisioned",
		"PROBE attestation-agent [-c /run/peerpod/aa.toml]", "PROBE attestation-agent serves",
		"PROBE confidential-data-hub [-c /run/peerpod/cdh.toml]", "PROBE hub has kbs-token file:///run/peerpod/auth.json", "PROBE confidential-data-hub serves",
		"PROBE kata-agent [--config /etc/agent-config.toml]", `PROBE policy "package agent_policy" <nil>, components by the agent: none`, "PROBE kata-agent serves",
		"agent-protocol-forwarder is ready")
	v.await(t, "PROBE rest serves")
	v.check(t, "api-server-rest", "[--features all]")

	ctx, cancel := context.WithTimeout(t.Context(), bootDeadline)
	defer cancel()
	refusedWithoutPolicies(t, ctx, connect(t, ctx, address, node))
	kill(ctx, connect(t, ctx, address, node), "kata-agent")
	v.await(t, "kata-agent ended: killed by SIGKILL")
	client := awaitPolicies(t, ctx, address, node)
	if _, err := guest.NewGuestClient(client).CopyFiles(ctx, &guest.CopyFilesRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a service that kata-agent lacks: %v, want Unimplemented", err)
	}
	const want = "default/key/1 with kbs-token"
	if got := runContainer(t, ctx, client, "first"); got != want {
		t.Errorf("a container got %q of the pod's loopback address, want %q", got, want)
	}
	for _, program := range []string{"attestation-agent", "confidential-data-hub", "api-server-rest"} {
		kill(ctx, client, program)
		v.await(t, program+" ended: killed by SIGKILL")
	}
	err := pace.Until(ctx, func() (bool, error) {
		text, twice := console(v), true
		for _, program := range []string{"attestation-agent", "confidential-data-hub", "rest"} {
			twice = twice && strings.Count(text, "PROBE "+program+" serves") == 2
		}
		return twice, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := runContainer(t, ctx, client, "second"); got != want {
		t.Errorf("after the restarts a container got %q, want %q", got, want)
	}
	v.check(t, "sandbox", "s dns []")
}

// standIns is a folder for --guest-binaries.
func standIns(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, kataPrograms[0].name)
	goBuild(t, program, modulePath+"/test/kataguest")
	for _, p := range kataPrograms[1:] {
		if err := os.Link(program, filepath.Join(dir, p.name)); err != nil {
			t.Fatal(err)
		}
	}
	addPauseBundle(t, dir)
	return dir
}

func console(v *vm) string {
	text, _ := v.out.read()
	return text
}

// inOrder fails if the console does not have the texts one after the other.
func inOrder(t *testing.T, v *vm, texts ...string) {
	t.Helper()
	rest := console(v)
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Fatalf("no %q on the console after what must be before it", text)
		}
		rest = after
	}
}

func connect(t *testing.T, ctx context.Context, address string, node *tls.Config) *ttrpc.Client {
	t.Helper()
	conn, err := (&tls.Dialer{Config: node}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	client := ttrpc.NewClient(conn)
	t.Cleanup(func() { client.Close() })
	return client
}

var pace = poll.Pace{First: 50 * time.Millisecond, Max: 50 * time.Millisecond}

var sandboxRequest = &agent.CreateSandboxRequest{SandboxId: "s", Dns: []string{"nameserver 192.0.2.1"}}

// refusedWithoutPolicies: initdata has a policy, and the agent was built without.
func refusedWithoutPolicies(t *testing.T, ctx context.Context, client *ttrpc.Client) {
	t.Helper()
	_, err := agent.NewAgentServiceClient(client).CreateSandbox(ctx, sandboxRequest)
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "initdata has a policy.rego, and this VM image enforces no policy") {
		t.Fatalf("a sandbox with a policy, of an agent without: %v", err)
	}
}

// awaitPolicies returns a connection to the agent that was started again, and its new sandbox.
func awaitPolicies(t *testing.T, ctx context.Context, address string, node *tls.Config) (client *ttrpc.Client) {
	t.Helper()
	err := pace.Until(ctx, func() (bool, error) {
		client = connect(t, ctx, address, node)
		_, err := agent.NewAgentServiceClient(client).CreateSandbox(ctx, sandboxRequest)
		return err == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// kill ends a program of the VM; of the agent itself there is no answer.
func kill(ctx context.Context, client *ttrpc.Client, program string) {
	_, _ = agent.NewAgentServiceClient(client).SignalProcess(ctx, &agent.SignalProcessRequest{ContainerId: "program:" + program, Signal: uint32(syscall.SIGKILL)})
}

// runContainer returns what a container wrote that asks api-server-rest for a resource.
func runContainer(t *testing.T, ctx context.Context, client *ttrpc.Client, id string) string {
	t.Helper()
	calls := agent.NewAgentServiceClient(client)
	create := &agent.CreateContainerRequest{ContainerId: id, ExecId: id, Storages: []*agent.Storage{{Driver: "image_guest_pull", Source: "registry.test/app"}},
		OCI: &agent.Spec{Process: &agent.Process{Args: []string{"/usr/local/bin/kata-agent", "get", "/run/netns/podns", "default/key/1"}}}}
	if _, err := calls.CreateContainer(ctx, create); err != nil {
		t.Fatal(err)
	}
	if _, err := calls.StartContainer(ctx, &agent.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for {
		answer, err := calls.ReadStdout(ctx, &agent.ReadStreamRequest{ContainerId: id, ExecId: id, Len: 4096})
		if err != nil || len(answer.Data) == 0 {
			return out.String()
		}
		out.Write(answer.Data)
	}
}
