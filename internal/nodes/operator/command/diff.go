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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/controller"
	"github.com/outrigger/outrigger/internal/program"
)

type comparison struct {
	rendering
	kubeconfig, context, manager string
}

func diffCommand() *cobra.Command {
	d := &comparison{}
	cmd := &cobra.Command{
		Use: "diff", Short: "Show what a bundle would change in a cluster", Args: commandline.NoArgs,
		Long: `Show what a bundle would change in a cluster. The API server is asked what it would
make of each object, and changes nothing (a server-side dry run); whoever asks needs
the rights to write them. Labels and annotations of others stay, all else of an
object is replaced, as the operator does it. What the operator would remove is shown
too, if it has deployed something: --ccm says for whom, if there are several
CloudControllerManagers. ConfigMaps cloud-conf and ccm-trusted-ca, which are made of
other ConfigMaps, are not shown.

Exit status: 0 nothing differs, 1 something differs, 2 the command line is wrong or
the cluster does not answer.`,
		Example: `  ccm-operator diff --platform openstack --flavor kubernetes --namespace ccm-system \
    --image cloudControllerManagerOpenStack=registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0`,
		RunE: func(cmd *cobra.Command, _ []string) error { return d.run(cmd.Context(), cmd.OutOrStdout()) },
	}
	f := cmd.Flags()
	f.StringVar(&d.kubeconfig, "kubeconfig", "", "`file` with the cluster's address and credentials; else KUBECONFIG, else ~/.kube/config")
	f.StringVar(&d.context, "context", "", "context of the kubeconfig")
	f.StringVar(&d.manager, "ccm", "", "`name` of the CloudControllerManager; else the only one that has an inventory")
	d.bindPlatform(cmd)
	return cmd
}

func (d *comparison) run(ctx context.Context, out io.Writer) error {
	if d.platform == "" {
		return program.Usagef("--platform is missing; ccm-operator bundle list has the bundles")
	}
	set, err := knownBundles(d.bundleDirs)
	if err != nil {
		return program.UsageError(err)
	}
	objects, err := d.objects(set)
	if err != nil {
		return program.UsageError(err)
	}
	c, err := d.connect(ctx)
	if err != nil {
		return program.UsageError(err)
	}
	inventory, err := d.inventory(ctx, c)
	if err != nil {
		return program.UsageError(err)
	}
	differences, err := (&apply.Applier{Client: c, Manager: name, Inventory: inventory}).Compare(ctx, objects)
	differences = slices.DeleteFunc(differences, fromOthers)
	for _, difference := range differences {
		if err := writeDifference(out, difference); err != nil {
			return err
		}
	}
	switch {
	case err != nil:
		return program.UsageError(err)
	case len(differences) > 0:
		return errBroken
	}
	return nil
}

// inventory returns the inventory of the deployer with which to compare; none if
// nothing was deployed.
func (d *comparison) inventory(ctx context.Context, c client.Client) (client.ObjectKey, error) {
	key := client.ObjectKey{Namespace: d.values.Namespace, Name: controller.Inventory(d.manager)}
	if d.manager != "" || d.flavor == string(bundle.OpenShift) {
		return key, nil
	}
	var all corev1.ConfigMapList
	if err := c.List(ctx, &all, client.InNamespace(d.values.Namespace)); err != nil {
		return key, fmt.Errorf("find the operator's inventory: %w", err)
	}
	var managers []string
	for i := range all.Items {
		if m := controller.ManagerOf(all.Items[i].Name); m != "" {
			managers = append(managers, m)
		}
	}
	switch len(managers) {
	case 0:
		return client.ObjectKey{}, nil
	case 1:
		key.Name = controller.Inventory(managers[0])
		return key, nil
	}
	return key, fmt.Errorf("there are inventories of the CloudControllerManagers %s: give --ccm", strings.Join(managers, ", "))
}

// fromOthers reports whether a difference is a ConfigMap that the operator makes of
// another ConfigMap: no bundle has it.
func fromOthers(d apply.Difference) bool {
	return d.After == nil && d.Ref.Kind == "ConfigMap" && (d.Ref.Name == bundle.CloudConfig || d.Ref.Name == bundle.TrustedCA)
}

// connect looks first whether anything can be asked at all: else each object
// would tell the same.
func (d *comparison) connect(ctx context.Context) (client.Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = d.kubeconfig
	api, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: d.context}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: give --kubeconfig, or set KUBECONFIG", err)
	}
	c, err := client.New(api, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, err
	}
	if _, err := c.RESTMapper().RESTMapping(schema.GroupKind{Kind: "Namespace"}); err != nil {
		return nil, unreachable(api.Host, err)
	}
	var namespace corev1.Namespace
	if err := c.Get(ctx, client.ObjectKey{Name: d.values.Namespace}, &namespace); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("--namespace: there is no namespace %s at %s, so that nothing can be asked of what would be in it: kubectl create namespace %[1]s", d.values.Namespace, api.Host)
	}
	return c, nil
}

// unreachable returns what an API server does not in its answer to somebody whom it
// does not know.
func unreachable(host string, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return fmt.Errorf("reach the cluster at %s: it does not take the credentials: %w", host, err)
	}
	return fmt.Errorf("reach the cluster at %s: %w", host, err)
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

// text returns an object as YAML; nothing for a missing one.
func text(fields map[string]any) (string, error) {
	if fields == nil {
		return "", nil
	}
	all, err := yaml.Marshal(fields)
	return string(all), err
}
