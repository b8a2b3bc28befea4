// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/cli/verification"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// maxEvidence is what is read of an answer, in bytes.
const maxEvidence = attest.MaxEvidence * 2

func (a *App) verifyCommand() *cobra.Command {
	var opts verification.Options
	pod := &cobra.Command{
		Use: "pod NAME", Aliases: []string{"pods", "po"}, Short: "Verify where and as what a pod's VM runs", Args: onePod,
		Long: `Ask a pod's VM for evidence that is bound to a random number, verify it on this machine, and say
what it proves and what it does not. Neither the cluster nor the node has to be trusted for that, if
--initdata and --reference-values are files of your own. The VM's image must attest (podvm-image
build --confidential), and the VM needs a TPM, SEV-SNP or TDX. You need the right to run commands in
the pods of DaemonSet agent-relay.

It ends with 0 if the evidence is what was expected, with 1 if it is not.`,
		Example: "kubectl outrigger verify pod web -n shop --initdata initdata.toml --reference-values references.json",
	}
	opts.Flags(pod)
	a.shows(pod, func(ctx context.Context, c *cluster, namespace string, args []string) (printer, error) {
		report, err := a.verifyPod(ctx, c, namespace, args[0], &opts)
		if err != nil {
			return nil, err
		}
		if report.Failed != "" {
			err = exitCode(exitFailure)
		}
		return verified{report}, err
	})
	verify := commandline.Group(&cobra.Command{Use: "verify", Short: "Verify where and as what a pod's VM runs"})
	verify.AddCommand(pod)
	return verify
}

type verified struct{ *verification.Report }

func (v verified) print(w io.Writer) { v.Print(w) }

func (a *App) verifyPod(ctx context.Context, c *cluster, namespace, name string, opts *verification.Options) (*verification.Report, error) {
	d, claims, err := a.claimsOf(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(claims, func(pp *v1alpha1.PeerPod) bool { return pp.Spec.SandboxID != "" && pp.Spec.NodeName != "" })
	if i < 0 || d.pod == nil {
		return nil, fmt.Errorf("pod %s/%s has no VM: kubectl outrigger describe pod %s says why", namespace, name, name)
	}
	nonce, err := verification.Nonce()
	if err != nil {
		return nil, err
	}
	answer, err := a.askVM(ctx, c, claims[i], nonce)
	if err != nil {
		return nil, fmt.Errorf("evidence of pod %s/%s: %w", namespace, name, err)
	}
	return opts.Verify(ctx, namespace+"/"+name, answer, nonce, d.pod.Metadata.Annotations[cloudinit.InitDataAnnotation])
}

// askVM asks by the relay of the pod's node, which may lie, and cannot: the answer is bound to the nonce.
func (a *App) askVM(ctx context.Context, c *cluster, pp *v1alpha1.PeerPod, nonce []byte) (*attest.Answer, error) {
	relays, err := list[pod](ctx, c, core(a.system, "pods"), map[string]string{"labelSelector": "app.kubernetes.io/name=" + relayName})
	if err != nil {
		return nil, fmt.Errorf("list the pods of DaemonSet %s/%s: %w", a.system, relayName, err)
	}
	i := slices.IndexFunc(relays, func(p pod) bool { return p.Spec.NodeName == pp.Spec.NodeName })
	if i < 0 {
		return nil, fmt.Errorf("DaemonSet %s/%s has no pod on node %s", a.system, relayName, pp.Spec.NodeName)
	}
	said, err := a.execIn(c)(ctx, execTarget{a.system, relays[i].Metadata.Name, relayName, maxEvidence},
		[]string{relayName, attest.Argument, pp.Spec.SandboxID, hex.EncodeToString(nonce)})
	if err != nil {
		return nil, err
	}
	answer := &attest.Answer{}
	if err := json.Unmarshal([]byte(said), answer); err != nil {
		return nil, errors.New("the relay's answer is not JSON: it may be of an older version")
	}
	return answer, nil
}
