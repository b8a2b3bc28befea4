// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
)

// naming is a policy that allows the messages it names, and remembers how many there were.
type naming struct{ text, seen string }

func (p *naming) Allow(_ context.Context, request proto.Message) error {
	name := string(request.ProtoReflect().Descriptor().Name())
	if !strings.Contains(p.text, name) {
		return errors.New("the pod's policy refuses " + name)
	}
	p.seen += "."
	return nil
}

func (p *naming) State() []byte { return []byte(p.seen) }

func (p *naming) Failures() bool { return strings.HasPrefix(p.text, "debug ") }

// withEngine is an agent of an image with policies, whose pod has this one.
func withEngine(t *testing.T, policy string) *Agent {
	t.Helper()
	PolicyEngine = func(text string, state []byte) (Policy, error) {
		if strings.HasPrefix(text, "bad") {
			return nil, errors.New("the policy does not compile")
		}
		return &naming{text, string(state)}, nil
	}
	t.Cleanup(func() { PolicyEngine = nil })
	a, _ := specAgent(t)
	a.cfg.Provisioned, a.cfg.StateDir = t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(a.cfg.Provisioned, policyFile), []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// ask sends a request through the agent's policy, and reports whether it would have been served.
func ask(t *testing.T, a *Agent, method string, request proto.Message) (served bool, err error) {
	t.Helper()
	_, err = a.govern(t.Context(), func(any) error { return nil }, &ttrpc.UnaryServerInfo{FullMethod: method},
		func(_ context.Context, unmarshal func(any) error) (any, error) {
			if err := unmarshal(request); err != nil {
				return nil, err
			}
			served = true
			return nil, nil
		})
	return served, err
}

const service = "/grpc.AgentService/"

// TestPolicyGoverns: each request of the agent protocol is asked about, by the name of its message, and what is refused is not served.
func TestPolicyGoverns(t *testing.T) {
	a := withEngine(t, "CreateContainerRequest ReadStreamRequest")
	for _, c := range []struct {
		method  string
		request proto.Message
		served  bool
	}{
		{service + "CreateContainer", &agent.CreateContainerRequest{}, true},
		{service + "ExecProcess", &agent.ExecProcessRequest{}, false},
		{service + "CopyFile", &agent.CopyFileRequest{}, false},
		{"/outrigger.guest.v1.Guest/CopyFiles", &guest.CopyFilesRequest{Files: []*agent.CopyFileRequest{{}}}, false},
		{service + "SetPolicy", &agent.SetPolicyRequest{}, false},
		{service + "ReadStdout", &agent.ReadStreamRequest{}, true},
		{"/outrigger.guest.v1.Guest/ReadCopied", &guest.ReadCopiedRequest{}, true},
		{"/outrigger.guest.v1.Guest/Timeline", &guest.TimelineRequest{}, true},
		{"/grpc.Health/Check", &agent.CheckRequest{}, true},
	} {
		served, err := ask(t, a, c.method, c.request)
		if served != c.served || !served && status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: served %v, %v", c.method, served, err)
		}
	}
	a = withEngine(t, "CreateContainerRequest")
	if served, err := ask(t, a, "/outrigger.guest.v1.Guest/ReadCopied", &guest.ReadCopiedRequest{}); served {
		t.Errorf("a container's last words without ReadStreamRequest: %v", err)
	}
	var log bytes.Buffer
	a = withEngine(t, "debug CreateContainerRequest")
	a.log = slog.New(slog.NewTextHandler(&log, nil))
	if served, err := ask(t, a, service+"ExecProcess", &agent.ExecProcessRequest{}); !served || err != nil || !strings.Contains(log.String(), "refuses ExecProcessRequest") {
		t.Errorf("a policy that lets pass what it refuses: %v, %v, log %q", served, err, &log)
	}
}

// TestPolicyIsRemembered: an agent that was started again goes on with what the policy had seen.
func TestPolicyIsRemembered(t *testing.T) {
	a := withEngine(t, "StatsContainerRequest")
	for range 2 {
		if _, err := ask(t, a, service+"StatsContainer", &agent.StatsContainerRequest{}); err != nil {
			t.Fatal(err)
		}
		a.governor = governor{}
	}
	if state, err := os.ReadFile(filepath.Join(a.cfg.StateDir, policyState)); err != nil || string(state) != ".." {
		t.Errorf("%q, %v", state, err)
	}
}

// TestSetPolicy: the node's policy is the first one, or one that the first allows.
func TestSetPolicy(t *testing.T) {
	a := withEngine(t, "\n")
	if served, err := ask(t, a, service+"ExecProcess", &agent.ExecProcessRequest{}); !served {
		t.Fatalf("without a policy: %v", err)
	}
	if _, err := a.SetPolicy(t.Context(), &agent.SetPolicyRequest{Policy: "bad"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a bad policy: %v", err)
	}
	if _, err := a.SetPolicy(t.Context(), &agent.SetPolicyRequest{Policy: "StatsContainerRequest"}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for method, request := range map[string]proto.Message{"ExecProcess": &agent.ExecProcessRequest{}, "SetPolicy": &agent.SetPolicyRequest{}} {
			if served, err := ask(t, a, service+method, request); served || status.Code(err) != codes.PermissionDenied {
				t.Errorf("%s: served %v, %v", method, served, err)
			}
		}
		a.governor = governor{} // the agent was started again
	}
}

// TestBadPolicyServesNothing: what the pod's owner asked for and cannot be had is an error of each request.
func TestBadPolicyServesNothing(t *testing.T) {
	a := withEngine(t, "bad")
	if served, err := ask(t, a, service+"CreateSandbox", &agent.CreateSandboxRequest{}); served || status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "does not compile") {
		t.Errorf("served %v, %v", served, err)
	}
	if err := os.Remove(filepath.Join(a.cfg.Provisioned, policyFile)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(a.cfg.Provisioned, policyFile), 0o700); err != nil {
		t.Fatal(err)
	}
	if served, err := ask(t, a, service+"CreateSandbox", &agent.CreateSandboxRequest{}); served || err == nil {
		t.Errorf("an unreadable policy: served %v, %v", served, err)
	}
}
