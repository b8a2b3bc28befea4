// SPDX-License-Identifier: Apache-2.0

package agentpolicy

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/guest/policy"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// TestInputAsThePolicyHasIt: what a policy is given in the VM is what it is given here, also where Rust has other names.
func TestInputAsThePolicyHasIt(t *testing.T) {
	for name, request := range map[string]proto.Message{
		"CreateContainerRequest": asAsked(),
		"CopyFileRequest":        &agent.CopyFileRequest{Path: "/etc/hosts", FileMode: 0o100644, Offset: 9007199254740993},
		"ReadStreamRequest":      &agent.ReadStreamRequest{},
		"CopyFileRequest ":       &agent.CopyFileRequest{Path: "/etc/hosts", FileMode: 0o120777, Data: []byte("/etc")},
	} {
		name, want := strings.TrimSpace(name), policy.Input(request)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Input(name, text); err != nil || !cmp.Equal(got, want) {
			t.Errorf("%s: %v\n%s", name, err, cmp.Diff(want, got))
		}
	}
}

func TestNoInput(t *testing.T) {
	for want, c := range map[string][2]string{
		`no request "ExecProcess"`: {"ExecProcess", "{}"},
		`no request "Process"`:     {"Process", "{}"}, // a message that is part of others
		"not a JSON object":        {"ExecProcessRequest", "[]"},
		"more than one":            {"ExecProcessRequest", "{} {}"},
		"unexpected EOF":           {"ExecProcessRequest", "{"},
		`"proces"`:                 {"ExecProcessRequest", `{"proces": {}}`},
		`"args"`:                   {"ExecProcessRequest", `{"process": {"args": []}}`},
		"invalid value":            {"ExecProcessRequest", `{"container_id": 7}`},
	} {
		if input, err := Input(c[0], []byte(c[1])); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v; want %q", input, err, want)
		}
	}
}
