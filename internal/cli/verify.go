// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/verification"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/redact"
)

func (a *App) verifyCommand() *cobra.Command {
	var opts verification.Options
	var output string
	cmd := &cobra.Command{
		Use: "verify POD", Short: "Verify where and as what a pod's VM runs", Args: cobra.ExactArgs(1),
		Long: `Ask a pod's VM for evidence that is bound to a random number, verify it here, and say what
it proves and what it does not. Nothing between here and the VM has to be trusted for that. The
VM's image must attest (podvm-image build --confidential), and the VM needs a TPM, SEV-SNP or TDX.

It ends with 0 if the evidence is what was expected, with 1 if it is not.`,
		Example: `  outrigger verify web --initdata initdata.toml --reference-values references.json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			report, err := a.verify(cmd.Context(), args[0], &opts)
			if err != nil {
				return err
			}
			if output == "json" {
				err = program.WriteJSON(a.Stdout, report)
			} else {
				report.Print(redact.Console(a.Stdout))
			}
			if err == nil && report.Failed != "" {
				err = exit(1)
			}
			return err
		},
		ValidArgsFunction: a.podNames,
	}
	opts.Flags(cmd)
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

func (a *App) verify(ctx context.Context, name string, opts *verification.Options) (*verification.Report, error) {
	pod, p, err := a.attach(ctx, name)
	if err != nil {
		return nil, err
	}
	defer pod.Close()
	nonce, err := verification.Nonce()
	if err != nil {
		return nil, err
	}
	answer, err := pod.Attestation(ctx, nonce)
	if err != nil {
		return nil, err
	}
	return opts.Verify(ctx, p.Name, answer, nonce, "")
}
