// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
)

// maxConsole is the most that is asked of a provider.
const maxConsole = 1 << 20

func (a *App) logsCommand() *cobra.Command {
	var console bool
	tail := "64Ki"
	cmd := &cobra.Command{
		Use: "logs --console POD", Short: "Show the serial console of a pod's VM", Args: onePod,
		Long: `Show the serial console of a pod's VM, where its kernel and agent write. The
provider is asked from this machine, with the settings of the cluster, so it
must be built in or be a plugin here, and you must be allowed to read
peer-pods-secret; otherwise the command says how to get at the console.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			size, err := resource.ParseQuantity(tail)
			if err != nil || size.Value() < 1 || size.Value() > maxConsole {
				return fmt.Errorf("--tail %q: want a size from 1 to 1Mi bytes", tail)
			}
			if !console {
				return fmt.Errorf("for the output of containers: kubectl logs %s; for the VM's console say --console", args[0])
			}
			text, err := a.console(cmd.Context(), args[0], size.Value())
			a.Stdout.Write(redact.Terminal(text))
			return err
		},
	}
	cmd.Flags().BoolVar(&console, "console", false, "the console of the VM; the one kind of log there is here")
	cmd.Flags().StringVar(&tail, "tail", tail, "how much from the end, in bytes")
	return cmd
}

func (a *App) console(ctx context.Context, name string, tail int64) ([]byte, error) {
	c, namespace, err := a.connect()
	if err != nil {
		return nil, err
	}
	pp, err := a.claimOf(ctx, c, namespace, name)
	if err != nil {
		return nil, err
	}
	text, err := a.readConsole(ctx, c, pp, tail)
	if err != nil {
		return text, fmt.Errorf("the console of instance %s cannot be read from here: %w\n%s", pp.Spec.InstanceID, err, elsewhere(pp))
	}
	return text, nil
}

// elsewhere returns how to get at a console by other ways.
func elsewhere(pp *v1alpha1.PeerPod) string {
	return fmt.Sprintf("as root on node %s: outrigger --socket /run/peerpod/hypervisor.sock console %s\nor look at instance %s with the tools of %s",
		dash(pp.Spec.NodeName), dash(pp.Spec.SandboxID), pp.Spec.InstanceID, dash(pp.Spec.CloudProvider))
}

// claimOf returns the newest PeerPod of a pod that has an instance.
func (a *App) claimOf(ctx context.Context, c *cluster, namespace, pod string) (*v1alpha1.PeerPod, error) {
	d, claims, err := a.claimsOf(ctx, c, namespace, pod)
	if err != nil {
		return nil, err
	}
	for _, pp := range claims {
		if pp.Spec.InstanceID != "" {
			return pp, nil
		}
	}
	return nil, withProblems(fmt.Sprintf("pod %s/%s has no instance yet", namespace, pod), d.Problems)
}

func (a *App) readConsole(ctx context.Context, c *cluster, pp *v1alpha1.PeerPod, tail int64) ([]byte, error) {
	s, err := a.settings(ctx, c)
	if err != nil {
		return nil, err
	}
	name := cmp.Or(pp.Spec.CloudProvider, s.provider())
	cloud, err := a.open(ctx, s, name)
	if err != nil {
		return nil, err
	}
	reader, ok := provider.As[provider.ConsoleReader](cloud.provider)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%w: provider %s has no consoles", provider.ErrUnimplemented, name), cloud.close())
	}
	ctx, cancel := context.WithTimeout(ctx, cloudTimeout)
	defer cancel()
	text, err := reader.Console(ctx, pp.Spec.InstanceID, tail)
	return slices.Clip(text), errors.Join(err, cloud.close())
}
