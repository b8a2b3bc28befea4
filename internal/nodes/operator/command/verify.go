// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
	"github.com/outrigger/outrigger/internal/nodes/operator/lint"
	"github.com/outrigger/outrigger/internal/program"
)

type verification struct {
	platforms []string
	output    string
	list      bool
}

func verifyCommand() *cobra.Command {
	v := &verification{}
	cmd := &cobra.Command{
		Use: "verify [FOLDER...]", Short: "Look whether bundles keep the rules of operands",
		Long: `Render bundles for every kind of cluster that they are for, with two replicas and
with one, and look whether their pods keep each rule. Without arguments all
built-in bundles are verified. What is broken is told with the reason for the
rule and what to write.

Exit status: 0 all rules are kept, 1 a rule is broken or a bundle cannot be
rendered, 2 the command line is wrong.`,
		Example: `  ccm-operator bundle verify                      # those that are built in
  ccm-operator bundle verify ./mycloud            # a folder
  ccm-operator bundle verify --platform azure
  ccm-operator bundle verify --list               # the rules`,
		RunE: func(cmd *cobra.Command, folders []string) error {
			if v.list {
				return v.writeRules(cmd.OutOrStdout())
			}
			return v.verify(cmd.OutOrStdout(), folders)
		},
	}
	cmd.Flags().StringSliceVar(&v.platforms, "platform", nil, "built-in bundles to verify, by name or platform")
	cmd.Flags().BoolVar(&v.list, "list", false, "list the rules and verify nothing")
	commandline.Form(cmd, &v.output, "output", "form of the output", "text", "json")
	commandline.Complete(cmd, "platform", bundleNames)
	return cmd
}

type verified struct {
	Bundle   string         `json:"bundle"`
	Error    string         `json:"error,omitempty"`
	Findings []lint.Finding `json:"findings"`
}

func (v *verification) verify(out io.Writer, folders []string) error {
	var all []verified
	add := func(name string, b *bundle.Bundle, err error) {
		r := verified{Bundle: name, Findings: []lint.Finding{}}
		if err == nil {
			var findings []lint.Finding
			findings, err = lint.Bundle(b)
			r.Findings = append(r.Findings, findings...)
		}
		if err != nil {
			r.Error = err.Error()
		}
		all = append(all, r)
	}
	for _, folder := range folders {
		b, err := loadFolder(folder)
		add(folder, b, err)
	}
	chosen, err := v.builtIn(len(folders) == 0)
	if err != nil {
		return err
	}
	for _, b := range chosen {
		add(b.Name, b, nil)
	}
	return v.report(out, all)
}

// builtIn returns the bundles that --platform names, or all.
func (v *verification) builtIn(all bool) (bundle.Set, error) {
	set, err := bundles.Set()
	if err != nil {
		return nil, err
	}
	if len(v.platforms) == 0 {
		if all {
			return set, nil
		}
		return nil, nil
	}
	var chosen bundle.Set
	for _, name := range v.platforms {
		b, err := set.Named(name)
		if err != nil {
			return nil, program.Usagef("--platform: %w", err)
		}
		chosen = append(chosen, b)
	}
	return chosen, nil
}

func (v *verification) report(out io.Writer, all []verified) error {
	var err error
	for _, r := range all {
		if r.Error != "" || len(r.Findings) > 0 {
			err = errBroken
		}
	}
	if v.output == "json" {
		return errors.Join(err, program.WriteJSON(out, all))
	}
	for _, r := range all {
		r.write(out)
	}
	return err
}

func (r verified) write(out io.Writer) {
	switch {
	case r.Error != "":
		fmt.Fprintf(out, "%s: cannot be rendered\n  %s\n", r.Bundle, r.Error)
	case len(r.Findings) == 0:
		fmt.Fprintf(out, "%s: keeps all rules\n", r.Bundle)
	default:
		fmt.Fprintf(out, "%s: breaks rules\n", r.Bundle)
	}
	printed := map[string]bool{}
	for _, f := range r.Findings {
		where := f.Object + " for " + string(f.Flavor)
		if f.SingleReplica {
			where += ", single replica"
		}
		key := fmt.Sprint(f.Rule.Number, f.Object, f.Problem)
		if printed[key] {
			continue // in another rendering, too
		}
		printed[key] = true
		fmt.Fprintf(out, "  rule %d %s: %s: %s\n    why: %s\n    fix: %s\n", f.Rule.Number, f.Rule.Name, where, f.Problem, f.Rule.Sentence, f.Rule.Fix)
	}
}

func (v *verification) writeRules(out io.Writer) error {
	if v.output == "json" {
		return program.WriteJSON(out, lint.Rules())
	}
	for _, r := range lint.Rules() {
		fmt.Fprintf(out, "%2d %s\n     %s\n     To keep it: %s.\n", r.Number, r.Name, r.Sentence, r.Fix)
	}
	return nil
}
