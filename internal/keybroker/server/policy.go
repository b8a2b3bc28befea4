// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
)

// DefaultPolicy gives resources to VMs whose claims are as the reference values have them.
const DefaultPolicy = `package policy

default allow := false

allow if {
	count(input.submods) > 0
	every submod in input.submods {
		submod["ear.status"] == "affirming"
	}
}
`

const (
	// decisionTime bounds one decision.
	decisionTime = 5 * time.Second
	// maxPolicy bounds a policy, and maxRegoError what is said of one that does not compile, in bytes.
	maxPolicy, maxRegoError = 1 << 20, 512
)

// unsafe are built-in functions that reach beyond a policy's input.
var unsafe = map[string]struct{}{"http.send": {}, "net.lookup_ip_addr": {}, "opa.runtime": {}, "rego.parse_module": {}}

// policy is a resource policy, as Trustee's (kbs/sample_policies/default.rego): data.policy.allow over the token's claims, with plugin,
// resource-path and query in data.
type policy struct{ compiler *ast.Compiler }

func compile(text string) (*policy, error) {
	if len(text) > maxPolicy {
		return nil, fmt.Errorf("the policy has %d bytes, at most %d can be", len(text), maxPolicy)
	}
	module, err := ast.ParseModuleWithOpts("policy.rego", text, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err != nil {
		if old, errOld := ast.ParseModuleWithOpts("policy.rego", text, ast.ParserOptions{RegoVersion: ast.RegoV0}); errOld == nil {
			module, err = old, nil
		}
	}
	if err == nil && module == nil {
		err = errors.New("it is empty")
	}
	if err != nil {
		return nil, fmt.Errorf("the policy does not compile: %.*v", maxRegoError, err)
	}
	if name := module.Package.Path.String(); name != "data.policy" {
		return nil, fmt.Errorf("the policy is of package %.64q: want policy", name)
	}
	compiler := ast.NewCompiler().WithUnsafeBuiltins(unsafe)
	if compiler.Compile(map[string]*ast.Module{"policy.rego": module}); compiler.Failed() {
		return nil, fmt.Errorf("the policy does not compile: %.*v", maxRegoError, compiler.Errors)
	}
	return &policy{compiler}, nil
}

// allow returns nil if the policy gives a resource to who has these claims.
func (p *policy) allow(ctx context.Context, claims map[string]any, path []string, query map[string][]string) error {
	ctx, cancel := context.WithTimeout(ctx, decisionTime)
	defer cancel()
	segments, values := []any{}, map[string]any{}
	for _, segment := range path {
		segments = append(segments, segment)
	}
	for name, all := range query {
		values[name] = all[0]
	}
	store := inmem.NewFromObject(map[string]any{"plugin": "resource", "resource-path": segments, "query": values})
	result, err := rego.New(rego.Compiler(p.compiler), rego.Store(store), rego.Input(claims), rego.Query("data.policy.allow")).Eval(ctx)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the policy has no answer within %s", decisionTime)
	case err != nil:
		return fmt.Errorf("the policy fails: %.*v", maxRegoError, err)
	case !result.Allowed():
		return errors.New("the policy does not give it to this VM")
	}
	return nil
}
