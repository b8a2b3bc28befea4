// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/cli/agentpolicy"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/guest/policy"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

const (
	policyEntry = "policy.rego" // of initdata
	execRequest = "ExecProcessRequest"
)

// question is a request that a policy is asked about.
type question struct{ request, input, container string }

// verdict is a policy's answer, as JSON.
type verdict struct {
	Request string `json:"request"`
	Allowed bool   `json:"allowed"`
	Why     string `json:"why,omitempty"`
}

func (a *App) policyExplainCommand() *cobra.Command {
	var q question
	var output string
	cmd := &cobra.Command{
		Use: "explain FILE [-- COMMAND...]", Short: "Say whether a policy allows a request, and why not",
		Long: `Ask a policy about a request, here and as the agent in the pod's VM does, and say why it refuses:
the rule, and all that it printed. A policy of policy generate prints what differs.

FILE is a Pod with its initdata (- is standard input); the policy itself if its name ends in .rego;
initdata, or the annotation's value, if it ends in .toml. The request is COMMAND, as of kubectl exec,
or one by the name of its message, with the fields of --input in JSON as policies name them. The
policy remembers nothing of requests before it.

It ends with 0 if the request is allowed, with 1 if it is refused.`,
		Example: `  kubectl get pod web -o yaml | outrigger policy explain - -- sh -c date
  outrigger policy explain web.yaml --request ReadStreamRequest    # kubectl logs
  outrigger policy explain policy.rego --request CreateContainerRequest --input request.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if dash := cmd.ArgsLenAtDash(); len(args) == 0 || dash != 1 && (dash >= 0 || len(args) > 1) {
				return errors.New("want one FILE, and a command after --")
			}
			return q.check(args[0], len(args) > 1)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			v, err := a.explainPolicy(cmd.Context(), args[0], &q, args[1:])
			if err != nil {
				return err
			}
			return a.printVerdict(v, output)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.request, "request", "", "name of the request, such as CreateContainerRequest")
	f.StringVar(&q.input, "input", "", "file with its fields in JSON (- is standard input); default: none is set")
	f.StringVarP(&q.container, "container", "c", "", "container of the command, where the pod has several")
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

func (q *question) check(file string, command bool) error {
	switch {
	case file == "-" && q.input == "-":
		return errors.New("FILE and --input are both standard input: name a file for one of them")
	case command == (q.request != ""):
		return errors.New("want either --request, or a command after --")
	case command && q.input != "":
		return errors.New("--input is of --request, and there is a command")
	case !command && q.container != "":
		return errors.New("--container is of a command: other requests name it in their input")
	}
	return nil
}

func (a *App) explainPolicy(ctx context.Context, file string, q *question, command []string) (*verdict, error) {
	text, err := a.readPolicy(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p, err := policy.Compile(text, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p.MaxPrinted = policy.MaxText
	name, input, err := a.requestOf(q, text, command)
	if err != nil {
		return nil, err
	}
	v := &verdict{Request: name}
	refusal := p.Allow(ctx, name, input)
	v.Allowed = refusal == nil || p.Failures()
	if refusal != nil {
		v.Why = refusal.Error()
	}
	return v, nil
}

// readPolicy returns the policy of a Pod or of initdata, or the file itself.
func (a *App) readPolicy(file string) (string, error) {
	var initdata string
	switch filepath.Ext(file) {
	case ".rego":
		text, err := a.readInput(file, policy.MaxText)
		return string(text), err
	case ".toml":
		text, err := a.readInput(file, cloudinit.MaxInitData)
		if err != nil {
			return "", err
		}
		initdata = string(text)
	default:
		pod, err := a.readPod(file, yaml.Unmarshal) // a cluster's Pods may have fields that are newer than this program
		if err != nil {
			return "", err
		}
		if initdata = pod.Annotations[cloudinit.InitDataAnnotation]; initdata == "" {
			return "", fmt.Errorf("the Pod has no initdata, and with it no policy: the annotation %s", cloudinit.InitDataAnnotation)
		}
	}
	data, err := cloudinit.DecodeInitData(initdata)
	if err != nil {
		return "", err
	}
	text, is := data.Data[policyEntry]
	if !is {
		return "", fmt.Errorf("the initdata has no %s: nothing is refused", policyEntry)
	}
	return text, nil
}

// requestOf returns the request's name and input.
func (a *App) requestOf(q *question, policyText string, command []string) (name string, input map[string]any, err error) {
	if q.request == "" {
		input, err = agentpolicy.Exec(policyText, q.container, command)
		return execRequest, input, err
	}
	text := []byte("{}")
	if q.input != "" {
		if text, err = a.readInput(q.input, maxPod); err != nil {
			return "", nil, fmt.Errorf("--input: %w", err)
		}
	}
	input, err = agentpolicy.Input(q.request, text)
	return q.request, input, err
}

func (a *App) printVerdict(v *verdict, output string) (err error) {
	out := redact.Console(a.Stdout)
	switch {
	case output == "json":
		err = program.WriteJSON(out, v)
	case !v.Allowed:
		_, err = fmt.Fprintln(out, v.Why)
	case v.Why != "":
		_, err = fmt.Fprintf(out, "%s; its AllowRequestsFailingPolicy lets it pass\n", v.Why)
	default:
		_, err = fmt.Fprintf(out, "the pod's policy allows %s\n", v.Request)
	}
	if err == nil && !v.Allowed {
		err = exit(1)
	}
	return err
}
