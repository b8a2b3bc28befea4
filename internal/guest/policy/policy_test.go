// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// ofGenpolicy has the shape of what Kata's genpolicy writes: answers with changes of a state, in the syntax before Rego 1.
const ofGenpolicy = `package agent_policy

import future.keywords.in
import future.keywords.every

default CreateContainerRequest := {"allowed": false}
default ExecProcessRequest := false
default AllowRequestsFailingPolicy := false

CreateContainerRequest := {"ops": ops, "allowed": true} {
	print("container", input.container_id)
	not data.pstate.containers[input.container_id]
	some c in policy_data.containers
	c.args == input.OCI.Process.Args
	every mount in input.OCI.Mounts {
		mount.type_ in c.mounts
	}
	input.OCI.Root.Readonly == true
	ops := [
		{"op": "add", "path": "/pstate/containers", "value": {input.container_id: true}},
	]
}

ExecProcessRequest {
	input.process.Args == policy_data.exec
	input.process.User.UID == 0
}

policy_data := {"containers": [{"args": ["sh", "-c", "true"], "mounts": ["bind"]}], "exec": ["cat", "/ready"]}
`

func compile(t *testing.T, text string, state []byte) *Policy {
	t.Helper()
	p, err := Compile(text, state)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func container(id string, args ...string) map[string]any {
	return Input(&agent.CreateContainerRequest{ContainerId: id, OCI: &agent.Spec{Root: &agent.Root{Readonly: true}, Process: &agent.Process{Args: args}}})
}

func exec(args ...string) map[string]any {
	return Input(&agent.ExecProcessRequest{Process: &agent.Process{Args: args, User: &agent.User{}}})
}

// TestPolicyWithState: what a policy remembers holds for the next request, and for the next agent.
func TestPolicyWithState(t *testing.T) {
	p := compile(t, ofGenpolicy, nil)
	if err := p.Allow(t.Context(), "CreateContainerRequest", container("a", "sh", "-c", "true")); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Policy{"the same": p, "the next": compile(t, ofGenpolicy, p.State())} {
		var refused *Refused
		if err := p.Allow(t.Context(), "CreateContainerRequest", container("a", "sh", "-c", "true")); !errors.As(err, &refused) || !strings.Contains(err.Error(), "printed: container a") {
			t.Errorf("%s agent, the same container twice: %v", name, err)
		}
		if err := p.Allow(t.Context(), "CreateContainerRequest", container("b", "sh", "-c", "true")); err != nil {
			t.Errorf("%s agent, another container: %v", name, err)
		}
	}
}

func TestDecisions(t *testing.T) {
	for name, c := range map[string]struct {
		policy, request string
		input           map[string]any
		want            string // of the refusal; empty if it is allowed
	}{
		"exec as it is listed":    {ofGenpolicy, "ExecProcessRequest", exec("cat", "/ready"), ""},
		"another exec":            {ofGenpolicy, "ExecProcessRequest", exec("sh"), "refuses ExecProcessRequest: its rule ExecProcessRequest is false"},
		"other arguments":         {ofGenpolicy, "CreateContainerRequest", container("a", "sh", "-c", "env"), "its rule CreateContainerRequest is false"},
		"no rule":                 {ofGenpolicy, "CopyFileRequest", Input(&agent.CopyFileRequest{}), "no rule that says anything"},
		"without a default":       {"package agent_policy\nA if input.path == \"/x\"", "A", nil, "its rule A is false"},
		"syntax of Rego 1":        {"package agent_policy\nimport rego.v1\nA if input.path == \"/x\"", "A", Input(&agent.CopyFileRequest{Path: "/x"}), ""},
		"debugging":               {"package agent_policy\ndefault AllowRequestsFailingPolicy := true\ndefault A := false", "A", nil, "its rule A is false"},
		"neither true nor false":  {"package agent_policy\nA := 7", "A", nil, "neither true, false nor an object"},
		"an object without words": {"package agent_policy\nA := {\"ops\": []}", "A", nil, "without allowed"},
		"a bad change":            {"package agent_policy\nA := {\"allowed\": true, \"ops\": [{\"op\": \"remove\", \"path\": \"/nothing\"}]}", "A", nil, "changes of the state"},
		"two answers":             {"package agent_policy\nA := x if { some x in [true, false] }", "A", nil, "refuses A"},
		"a folder":                {"package agent_policy\nA if input.file_type == \"Directory\"", "A", Input(&agent.CopyFileRequest{FileMode: unix.S_IFDIR | 0o755}), ""},
		"a link":                  {"package agent_policy\nA if input.symlink_target == \"..data/x\"", "A", Input(&agent.CopyFileRequest{FileMode: unix.S_IFLNK, Data: []byte("..data/x")}), ""},
		"large numbers":           {"package agent_policy\nA if input.offset == 9007199254740993", "A", Input(&agent.CopyFileRequest{Offset: 9007199254740993}), ""},
		"what is not set":         {"package agent_policy\nA if { input.OCI == null; input.storages == []; input.exec_id == \"\" }", "A", Input(&agent.CreateContainerRequest{}), ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := compile(t, c.policy, nil)
			if p.Failures() != (name == "debugging") {
				t.Error("what it refuses passes:", p.Failures())
			}
			err := p.Allow(t.Context(), c.request, c.input)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v; want %q", err, c.want)
			}
		})
	}
}

func TestNoPolicies(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"text":                {"exec is not allowed", "does not compile"},
		"empty":               {"  \n", "does not compile"},
		"another package":     {"package policy\nA := true", "of package \"policy\""},
		"unknown variable":    {"package agent_policy\nA := b", "does not compile"},
		"reaches the network": {"package agent_policy\nA := http.send({\"method\": \"get\", \"url\": \"http://127.0.0.1\"})", "does not compile"},
		"reads the machine":   {"package agent_policy\nA := opa.runtime().env", "does not compile"},
		"recursion":           {"package agent_policy\nA := b\nb := A", "does not compile"},
		"long":                {"package agent_policy\n#" + strings.Repeat("x", MaxText), "at most"},
		"long error":          {"package agent_policy\nA := " + strings.Repeat("x", 100000), "does not compile"},
	} {
		t.Run(name, func(t *testing.T) {
			if p, err := Compile(c.text, nil); err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > 700 {
				t.Errorf("%v, %v; want %q", p, err, c.want)
			}
		})
	}
	if _, err := Compile("package agent_policy\nA := true", []byte("{")); err == nil || !strings.Contains(err.Error(), "state") {
		t.Errorf("a damaged state: %v", err)
	}
}

// TestPolicyWithoutEnd: a policy that computes for too long refuses.
func TestPolicyWithoutEnd(t *testing.T) {
	const endless = "package agent_policy\nA if { count([1 | some a in numbers.range(1, 100000); some b in numbers.range(1, 100000); a * b == 7.5]) == 1 }"
	t.Run("decision", func(t *testing.T) {
		t.Parallel()
		if err := compile(t, endless, nil).Allow(t.Context(), "A", nil); err == nil || !strings.Contains(err.Error(), "no answer within 5s") {
			t.Errorf("%v", err)
		}
	})
	t.Run("what it refuses", func(t *testing.T) {
		t.Parallel()
		if compile(t, endless+"\nAllowRequestsFailingPolicy := A", nil).Failures() {
			t.Error("that passes")
		}
	})
}

// FuzzInput: no request stops a policy.
func FuzzInput(f *testing.F) {
	f.Add("sh", "/path", uint32(0o755), int64(-1))
	p, err := Compile(ofGenpolicy, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, arg, path string, mode uint32, offset int64) {
		var refused *Refused
		file := Input(&agent.CopyFileRequest{Path: path, FileMode: mode, Offset: offset, Data: []byte(arg)})
		for name, input := range map[string]map[string]any{"ExecProcessRequest": exec(arg, path), "CopyFileRequest": file} {
			if err := p.Allow(t.Context(), name, input); err != nil && !errors.As(err, &refused) {
				t.Error(err)
			}
		}
	})
}

func BenchmarkAllow(b *testing.B) {
	p, err := Compile(ofGenpolicy, nil)
	if err != nil {
		b.Fatal(err)
	}
	input := exec("cat", "/ready")
	for b.Loop() {
		if err := p.Allow(b.Context(), "ExecProcessRequest", input); err != nil {
			b.Fatal(err)
		}
	}
}
