// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/ccmoperator/apply"
)

// comparison is one run of diff.
type comparison struct {
	rendering
	kubeconfig, context string
}

func diffCommand() *cobra.Command {
	d := &comparison{}
	cmd := &cobra.Command{
		Use: "diff", Short: "Show what a bundle would change in a cluster", Args: noArgs,
		Long: `Show what a bundle would change in a cluster. The API server is asked what it would
make of each object, and changes nothing (a server-side dry run); whoever asks needs
the rights to write them. Labels and annotations of others stay, all else of an
object is replaced, as the operator does it. Objects that the operator would remove
are not shown.

Exit status: 0 nothing differs, 1 something differs, 2 the command line is wrong or
the cluster does not answer.`,
		Example: `  ccm-operator diff --platform openstack --flavor kubernetes --namespace ccm-system \
    --image cloudControllerManagerOpenStack=registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0`,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&d.kubeconfig, "kubeconfig", "", "`file` with the cluster's address and credentials; else KUBECONFIG, else ~/.kube/config")
	f.StringVar(&d.context, "context", "", "context of the kubeconfig")
	d.bindPlatform(cmd)
	return cmd
}

func (d *comparison) run(ctx context.Context, out io.Writer) error {
	if d.platform == "" {
		return usagef("--platform is missing; ccm-operator bundle list has the bundles")
	}
	set, err := knownBundles(d.bundleDirs)
	if err != nil {
		return usageError{err}
	}
	objects, err := d.objects(set)
	if err != nil {
		return usageError{err}
	}
	c, err := d.connect()
	if err != nil {
		return usageError{err}
	}
	differences, err := (&apply.Applier{Client: c, Events: events.NewFakeRecorder(0), Manager: name}).Compare(ctx, objects)
	for _, difference := range differences {
		if err := writeDifference(out, difference); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return usageError{err}
	case len(differences) > 0:
		return errBroken
	}
	return nil
}

func (d *comparison) connect() (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = d.kubeconfig
	api, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: d.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: give --kubeconfig, or set KUBECONFIG", err)
	}
	return client.New(api, client.Options{Scheme: scheme.Scheme})
}

func writeDifference(out io.Writer, d apply.Difference) error {
	before, err := text(d.Before)
	if err != nil {
		return err
	}
	after, err := text(d.After)
	if err != nil {
		return err
	}
	return difflib.WriteUnifiedDiff(out, difflib.UnifiedDiff{
		A: slices.Collect(strings.Lines(before)), B: slices.Collect(strings.Lines(after)), Context: 3,
		FromFile: d.Ref.String() + " of the cluster", ToFile: d.Ref.String() + " of the bundle",
	})
}

// text is nothing for an object that is not there.
func text(fields map[string]any) (string, error) {
	if fields == nil {
		return "", nil
	}
	all, err := yaml.Marshal(fields)
	return string(all), err
}
