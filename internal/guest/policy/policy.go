// SPDX-License-Identifier: Apache-2.0

// Package policy decides what the node may ask of a pod's agent, by rules in Rego that the pod's owner wrote: for a
// request X of the Kata agent protocol those of data.agent_policy.X, over what kata-agent gives its policies.
package policy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/rego"
	"github.com/open-policy-agent/opa/v1/storage"
	"github.com/open-policy-agent/opa/v1/storage/inmem"
	"github.com/open-policy-agent/opa/v1/topdown/print"
)

const (
	// pkg is the package of a policy's rules, and failing the rule that lets a request pass which the others refuse. Both are kata-agent's.
	pkg     = "agent_policy"
	failing = "AllowRequestsFailingPolicy"
	// patience is how long one decision may take.
	patience = 5 * time.Second
	// MaxText bounds a policy, in bytes, and maxPrinted an error of one.
	MaxText, maxPrinted = 4 << 20, 512
)

// unsafe are built-in functions that reach beyond a policy's input.
var unsafe = map[string]struct{}{"http.send": {}, "net.lookup_ip_addr": {}, "opa.runtime": {}, "rego.parse_module": {}}

// Policy is one that was compiled. Its calls may be made at once.
type Policy struct {
	// MaxPrinted bounds what a refusal says of what the policy printed: the last so many bytes. [Compile] sets 512.
	MaxPrinted int

	compiler *ast.Compiler
	failures bool

	mu      sync.Mutex
	store   storage.Store
	state   []byte
	queries map[string]rego.PreparedEvalQuery
}

// Refused is the error of a request that the policy does not allow.
type Refused struct {
	// Request is the name of its message.
	Request string
	// Why is the rule's answer, and what it printed.
	Why string
}

func (e *Refused) Error() string {
	return fmt.Sprintf("the pod's policy refuses %s: %s", e.Request, e.Why)
}

// Compile reads a policy, in the syntax of Rego 1 or of before. state is what [Policy.State] returned of it, or nil.
func Compile(text string, state []byte) (*Policy, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("the policy has %d bytes, at most %d can be", len(text), MaxText)
	}
	module, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("the policy does not compile: %w", bounded(err))
	}
	if name := strings.TrimPrefix(module.Package.Path.String(), "data."); name != pkg {
		return nil, fmt.Errorf("the policy is of package %.60q: want %s", name, pkg)
	}
	// kata-agent checks no types: its rules name what the data of a policy may lack.
	compiler := ast.NewCompiler().WithUnsafeBuiltins(unsafe).WithSkipStages(ast.StageCheckTypes).WithEnablePrintStatements(true)
	if compiler.Compile(map[string]*ast.Module{"policy.rego": module}); compiler.Failed() {
		return nil, fmt.Errorf("the policy does not compile: %w", bounded(compiler.Errors))
	}
	p := &Policy{MaxPrinted: maxPrinted, compiler: compiler}
	if state == nil {
		state = []byte(`{"pstate":{}}`)
	}
	if err := p.setState(state); err != nil {
		return nil, fmt.Errorf("the policy's state: %w", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := p.eval(ctx, failing, map[string]any{})
	p.failures = err == nil && answer.allowed
	return p, nil
}

func parse(text string) (*ast.Module, error) {
	module, err := ast.ParseModuleWithOpts("policy.rego", text, ast.ParserOptions{RegoVersion: ast.RegoV1})
	if err == nil {
		return module, nil
	}
	if old, errOld := ast.ParseModuleWithOpts("policy.rego", text, ast.ParserOptions{RegoVersion: ast.RegoV0}); errOld == nil && old != nil {
		return old, nil
	}
	if module == nil && err == nil {
		err = errors.New("it is empty")
	}
	return module, err
}

func bounded(err error) error {
	if text := err.Error(); len(text) > maxPrinted {
		return fmt.Errorf("%.*s ...", maxPrinted, text)
	}
	return err
}

// Failures reports whether what the policy refuses is to pass: a debugging aid.
func (p *Policy) Failures() bool { return p.failures }

// Allow returns nil if the policy allows a request with this [Input], and a [Refused] if not.
func (p *Policy) Allow(ctx context.Context, request string, input map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	answer, err := p.eval(ctx, request, input)
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("its rule %s has no answer within %s", request, patience)
	case err == nil && answer.allowed:
		err = p.apply(answer.ops)
		if err == nil {
			return nil
		}
	case err == nil:
		err = fmt.Errorf("its rule %s is false", request)
	}
	why := bounded(err).Error()
	if answer.printed != "" {
		why += "; it printed: " + answer.printed
	}
	return &Refused{Request: request, Why: why}
}

// answer is that of a rule: a boolean, or an object with changes of the state.
type answer struct {
	allowed bool
	ops     json.RawMessage
	printed string
}

var errUndefined = errors.New("it has no rule that says anything of it")

func (p *Policy) eval(ctx context.Context, rule string, input map[string]any) (a answer, err error) {
	query, known := p.queries[rule]
	if !known {
		query, err = rego.New(rego.Query("data."+pkg+"."+rule), rego.Compiler(p.compiler), rego.Store(p.store), rego.StrictBuiltinErrors(false)).PrepareForEval(ctx)
		if err != nil {
			return a, err
		}
		p.queries[rule] = query
	}
	out := printed{most: p.MaxPrinted}
	results, err := query.Eval(ctx, rego.EvalInput(input), rego.EvalPrintHook(&out))
	a.printed = out.text()
	if err != nil {
		return a, err
	}
	if len(results) != 1 || len(results[0].Expressions) != 1 {
		if len(p.compiler.GetRules(ast.Ref{ast.DefaultRootDocument, ast.StringTerm(pkg), ast.StringTerm(rule)})) > 0 {
			return a, nil // none of its bodies holds, and it has no default
		}
		return a, errUndefined
	}
	switch value := results[0].Expressions[0].Value.(type) {
	case bool:
		a.allowed = value
	case map[string]any:
		data, err := json.Marshal(value)
		if err != nil {
			return a, err
		}
		var object struct {
			Allowed *bool           `json:"allowed"`
			Ops     json.RawMessage `json:"ops"`
		}
		if err := json.Unmarshal(data, &object); err != nil || object.Allowed == nil {
			return a, fmt.Errorf("its rule %s is an object without allowed", rule)
		}
		a.allowed, a.ops = *object.Allowed, object.Ops
	default:
		return a, fmt.Errorf("its rule %s is neither true, false nor an object", rule)
	}
	return a, nil
}

// apply changes the state by a JSON Patch.
func (p *Policy) apply(ops json.RawMessage) error {
	if len(ops) == 0 || string(ops) == "null" || string(ops) == "[]" {
		return nil
	}
	patch, err := jsonpatch.DecodePatch(ops)
	if err != nil {
		return fmt.Errorf("its changes of the state: %w", err)
	}
	state, err := patch.Apply(p.state)
	if err != nil {
		return fmt.Errorf("its changes of the state: %w", err)
	}
	return p.setState(state)
}

func (p *Policy) setState(state []byte) error {
	var data map[string]any
	if err := json.Unmarshal(state, &data); err != nil {
		return err
	}
	p.state, p.store, p.queries = state, inmem.NewFromObject(data), map[string]rego.PreparedEvalQuery{}
	return nil
}

// State is what the policy remembers, as JSON.
func (p *Policy) State() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.state)
}

// printed keeps the end of what a policy prints.
type printed struct {
	last string
	most int
}

func (w *printed) Print(_ print.Context, text string) error {
	w.last += " " + text
	if over := len(w.last) - w.most; over > 0 {
		w.last = w.last[over:]
	}
	return nil
}

func (w *printed) text() string { return strings.TrimSpace(strings.ToValidUTF8(w.last, "")) }
