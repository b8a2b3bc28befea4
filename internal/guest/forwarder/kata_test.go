// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/guest/kataguest"
	"github.com/outrigger/outrigger/internal/guest/unseal"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// details is an agent that answers GetGuestDetails alone.
type details struct {
	agent.AgentServiceService
	features []string
	err      error
}

func (d details) GetGuestDetails(context.Context, *agent.GuestDetailsRequest) (*agent.GuestDetailsResponse, error) {
	return &agent.GuestDetailsResponse{AgentDetails: &agent.AgentDetails{ExtraFeatures: d.features}}, d.err
}

// kataForwarder has kata-agent alone, and what the node sent.
func kataForwarder(t *testing.T, of details, provisioned ...string) *Forwarder {
	t.Helper()
	dir := t.TempDir()
	kata := &kataguest.Guest{Programs: filepath.Join(dir, "bin"), Provisioned: dir}
	for _, file := range provisioned {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(dir, "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	agent.RegisterAgentServiceService(server, of)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(context.Background(), listener) }()
	t.Cleanup(func() { server.Close(); <-done })
	return newForwarder(t, func(o *Options) { o.AgentSocket, o.Kata = socket, kata })
}

// TestKataRefusesWhatItLacks: neither the sandbox nor, without it, a container starts.
func TestKataRefusesWhatItLacks(t *testing.T) {
	for name, c := range map[string]struct {
		of   details
		file string
		want string
	}{
		"no data hub":             {details{}, "cdh.toml", "cdh.toml"},
		"no attestation agent":    {details{}, "aa.toml", "aa.toml"},
		"built without policies":  {details{features: []string{"seccomp"}}, "policy.rego", "policy.rego"},
		"broken":                  {details{err: status.Error(codes.Internal, "broken")}, "policy.rego", "policy.rego"},
		"with policies":           {details{features: []string{"agent-policy", "seccomp"}}, "policy.rego", ""},
		"the policy refuses that": {details{err: status.Error(codes.PermissionDenied, "GuestDetailsRequest is blocked by policy")}, "policy.rego", ""},
		"nothing is asked":        {details{}, "auth.json", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := kataForwarder(t, c.of, c.file)
			for _, method := range []string{"CreateSandbox", "CreateContainer"} {
				_, err := f.intercept(t.Context(), agentService, method, nil)
				refused := status.Code(err) == codes.FailedPrecondition && strings.Contains(err.Error(), c.want)
				if refused != (c.want != "") {
					t.Errorf("%s: %v, want %q", method, err, c.want)
				}
			}
		})
	}
}

// TestSealedWithoutDataHub: a pod does not get the seal in place of its Secret.
func TestSealedWithoutDataHub(t *testing.T) {
	f := kataForwarder(t, details{})
	const sealed = "sealed.secret.0.0"
	variable := &agent.CreateContainerRequest{OCI: &agent.Spec{Process: &agent.Process{Env: []string{"A=plain", "B=" + sealed}}}}
	file := &agent.CopyFileRequest{Path: "/run/kata-containers/shared/containers/key", Data: []byte(sealed)}
	try := func(method string, request proto.Message) error {
		payload, err := proto.Marshal(request)
		if err != nil {
			t.Fatal(err)
		}
		if !f.wants([]byte(agentService), []byte(method)) {
			return nil
		}
		_, err = f.intercept(t.Context(), agentService, method, payload)
		return err
	}
	for method, request := range map[string]proto.Message{"CreateContainer": variable, "CopyFile": file} {
		if err := try(method, request); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "no confidential-data-hub") {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := try("CopyFile", &agent.CopyFileRequest{Path: file.Path, Data: []byte("plain")}); err != nil {
		t.Errorf("a file that is not sealed: %v", err)
	}
	f.Kata.Programs = t.TempDir()
	if err := os.WriteFile(filepath.Join(f.Kata.Programs, kataguest.DataHub), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for method, request := range map[string]proto.Message{"CreateContainer": variable, "CopyFile": file} {
		if err := try(method, request); err != nil {
			t.Errorf("%s, with the data hub: %v", method, err)
		}
	}
}

// TestSealedKeyOfADisk: of a disk that is encrypted with a sealed key the forwarder asks whoever opens sealed Secrets in its image.
func TestSealedKeyOfADisk(t *testing.T) {
	if _, err := kataForwarder(t, details{}).disks.Unseal(t.Context(), []byte("sealed.key.0.0")); !errors.Is(err, errSealed) {
		t.Errorf("Kata's agent alone: %v", err)
	}
	f := newForwarder(t, func(o *Options) { o.AgentSocket = filepath.Join(t.TempDir(), "agent.sock") })
	if _, err := f.disks.Unseal(t.Context(), []byte("sealed.key.0.0")); !errors.Is(err, unseal.ErrImage) {
		t.Errorf("an image that does not attest: %v", err)
	}
	listener, err := net.Listen("unix", unseal.Beside(f.AgentSocket))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = unseal.Serve(ctx, listener, func(context.Context, []byte) ([]byte, error) { return []byte("plain"), nil })
	}()
	if plain, err := f.disks.Unseal(t.Context(), []byte("sealed.key.0.0")); err != nil || string(plain) != "plain" {
		t.Errorf("%q, %v", plain, err)
	}
	cancel()
	<-done
}

// TestKataHasNoGuestService: clients know Unimplemented, and Kata's agent answers otherwise.
func TestKataHasNoGuestService(t *testing.T) {
	f := kataForwarder(t, details{})
	if !f.wants([]byte(guestService), []byte("CopyFiles")) {
		t.Fatal("the call passes to kata-agent")
	}
	if _, err := f.intercept(t.Context(), guestService, "CopyFiles", nil); status.Code(err) != codes.Unimplemented {
		t.Errorf("error %v, want Unimplemented", err)
	}
	if newForwarder(t, nil).wants([]byte(guestService), []byte("CopyFiles")) {
		t.Error("a call to podvm-agent is held up")
	}
}
