// SPDX-License-Identifier: Apache-2.0

package command

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/render"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/program"
)

type rendering struct {
	bootstrap  render.Bootstrap
	platform   string
	flavor     string
	output     string
	images     map[string]string
	bundleDirs []string
	values     bundle.Values
	proxy      bundle.Proxy
}

func renderCommand() *cobra.Command {
	r := &rendering{}
	cmd := &cobra.Command{
		Use: "render", Short: "Write what a bundle is, without a cluster", Args: commandline.NoArgs,
		Long: `Write what a bundle is, without a cluster. There are two forms.

For the machine that an OpenShift cluster is installed from, static Pods and the
cloud's configuration go into folders below --dest-dir:

  bootstrap/NAME-pod.yaml   in namespace kube-system, with their images
  config/cloud.conf         if the infrastructure names a configuration

Which cloud it is says the infrastructure. A cloud without static Pods has none.

With --platform all objects of the cluster go to the standard output, as kubectl
apply takes them. What the cluster would say of itself is given by flags.`,
		Example: `  ccm-operator render --dest-dir /opt/ccm --cluster-infrastructure-file infrastructure.yaml \
    --images-file images.yaml --cloud-config-file cloud-config.yaml

  ccm-operator render --platform openstack --flavor kubernetes --namespace cloud-controllers \
    --image cloudControllerManagerOpenStack=registry.k8s.io/provider-os/openstack-cloud-controller-manager:v1.36.0`,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd) },
	}
	r.bind(cmd)
	return cmd
}

func (r *rendering) bind(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.bootstrap.DestDir, "dest-dir", "", "`folder` for static Pods and configuration")
	f.StringVar(&r.bootstrap.InfrastructureFile, "cluster-infrastructure-file", "", "`file` with the manifest of the cluster's Infrastructure")
	f.StringVar(&r.bootstrap.CloudConfigFile, "cloud-config-file", "", "`file` with the manifest of the ConfigMap that the Infrastructure names as cloudConfig")
	commandline.Form(cmd, &r.output, "output", "form of the output", "yaml", "json")
	for _, flag := range []string{"cluster-infrastructure-file", "cloud-config-file"} {
		cmd.MarkFlagFilename(flag, "yaml", "yml")
	}
	cmd.MarkFlagDirname("dest-dir")
	r.bindPlatform(cmd)
}

// bindPlatform adds what chooses a bundle, and what it is rendered with.
func (r *rendering) bindPlatform(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&r.platform, "platform", "", "the bundle, by name or platform")
	f.StringVar(&r.flavor, "flavor", string(bundle.OpenShift), "kind of cluster: openshift or kubernetes")
	f.StringVar(&r.bootstrap.ImagesFile, "images-file", "", "`file` with the manifest of a ConfigMap that has images.json")
	f.StringToStringVar(&r.images, "image", nil, "`key=image` of images.json; may be given several times")
	bindValues(f, &r.values, &r.proxy)
	bundleDirFlag(f, &r.bundleDirs)
	cmd.MarkFlagFilename("images-file", "yaml", "yml")
	cmd.MarkFlagDirname("bundle-dir")
	flavors := []string{string(bundle.OpenShift), string(bundle.Kubernetes)}
	commandline.Complete(cmd, "flavor", cobra.FixedCompletions(flavors, cobra.ShellCompDirectiveNoFileComp))
	commandline.Complete(cmd, "platform", bundleNames)
}

// bindValues adds what a cluster says of itself.
func bindValues(f *pflag.FlagSet, v *bundle.Values, proxy *bundle.Proxy) {
	f.StringVar(&v.Namespace, "namespace", bundle.DefaultNamespace, "namespace of the objects")
	f.StringVar(&v.InfrastructureName, "infrastructure-name", "", "name that the cluster's machines carry")
	f.BoolVar(&v.SingleReplica, "single-replica", false, "the control plane has one node: nothing runs twice")
	f.StringVar(&v.FeatureGates, "feature-gates", "", "those of the managers, such as A=true,B=true")
	f.StringVar(&v.TLSMinVersion, "tls-min-version", "", "lowest version of TLS that managers serve, such as VersionTLS12")
	f.StringVar(&v.TLSCipherSuites, "tls-cipher-suites", "", "ciphers that managers serve, with commas")
	f.StringVar(&v.AdditionalLabels, "additional-labels", "", "labels that managers give Nodes, where they can")
	f.BoolVar(&v.PublicEndpoint, "public-endpoint", false, "reach the cloud's API from outside its network, where there is a choice")
	f.StringVar(&proxy.HTTP, "http-proxy", "", "HTTP_PROXY of the managers")
	f.StringVar(&proxy.HTTPS, "https-proxy", "", "HTTPS_PROXY of the managers")
	f.StringVar(&proxy.None, "no-proxy", "", "NO_PROXY of the managers")
}

// ofPlatform and ofBootstrap are the flags that only one form has.
var (
	ofBootstrap = []string{"dest-dir", "cluster-infrastructure-file", "cloud-config-file"}
	ofPlatform  = []string{
		"flavor", "output", "image", "namespace", "infrastructure-name", "single-replica", "feature-gates", "tls-min-version",
		"tls-cipher-suites", "additional-labels", "public-endpoint", "http-proxy", "https-proxy", "no-proxy",
	}
)

func (r *rendering) run(cmd *cobra.Command) error {
	wrong, of := ofPlatform, "without --platform"
	if r.platform != "" {
		wrong, of = ofBootstrap, "with --platform"
	}
	for _, flag := range wrong {
		if cmd.Flags().Changed(flag) {
			return program.Usagef("--%s means nothing %s; see ccm-operator render --help", flag, of)
		}
	}
	set, err := knownBundles(r.bundleDirs)
	if err != nil {
		return err
	}
	if r.platform != "" {
		return r.print(cmd.OutOrStdout(), set)
	}
	return r.write(cmd.OutOrStdout(), cmd.ErrOrStderr(), set)
}

// write renders into files, for the machine of a bootstrap.
func (r *rendering) write(out, warnings io.Writer, set bundle.Set) error {
	var missing []string
	for _, f := range []struct{ flag, value string }{
		{"--dest-dir", r.bootstrap.DestDir}, {"--cluster-infrastructure-file", r.bootstrap.InfrastructureFile}, {"--images-file", r.bootstrap.ImagesFile},
	} {
		if f.value == "" {
			missing = append(missing, f.flag)
		}
	}
	if len(missing) > 0 {
		return program.Usagef("missing: %s; or give --platform to print the objects of a bundle; see ccm-operator render --help", strings.Join(missing, ", "))
	}
	r.bootstrap.Bundles = set
	r.bootstrap.Warn = func(message string) { fmt.Fprintln(warnings, "warning: "+message) }
	files, err := r.bootstrap.Write()
	if err != nil {
		return err
	}
	for _, file := range files {
		fmt.Fprintln(out, "wrote "+file)
	}
	return nil
}

func (r *rendering) print(out io.Writer, set bundle.Set) error {
	objects, err := r.objects(set)
	if err != nil {
		return err
	}
	if r.output == "json" {
		return render.WriteJSON(out, objects)
	}
	return render.WriteYAML(out, objects)
}

func (r *rendering) objects(set bundle.Set) ([]client.Object, error) {
	b, err := set.Named(r.platform)
	if err != nil {
		return nil, program.Usagef("--platform: %w", err)
	}
	if err := r.checkValues(); err != nil {
		return nil, program.UsageError(err)
	}
	if r.values.Images, err = r.allImages(); err != nil {
		return nil, err
	}
	r.values.Flavor = bundle.Flavor(r.flavor)
	if r.proxy != (bundle.Proxy{}) {
		r.values.Proxy = &r.proxy
	}
	objects, err := b.Resources(r.values)
	if err != nil {
		return nil, r.explain(b, err)
	}
	return objects, nil
}

// checkValues refuses what a cluster would not say, and managers would not start
// with.
func (r *rendering) checkValues() error {
	tls, err := settings.TLSFromFlags(r.values.TLSMinVersion, r.values.TLSCipherSuites)
	if err != nil {
		return err
	}
	r.values.TLSMinVersion, r.values.TLSCipherSuites = tls.MinVersion, tls.CipherSuites
	gates := map[string]bool{}
	if err := cliflag.NewMapStringBool(&gates).Set(r.values.FeatureGates); err != nil {
		return fmt.Errorf("--feature-gates %q: %w", r.values.FeatureGates, err)
	}
	return nil
}

// explain returns how images are given where one was not.
func (r *rendering) explain(b *bundle.Bundle, err error) error {
	if !errors.Is(err, bundle.ErrMissedImages) {
		return err
	}
	var missing []string
	for _, key := range b.ImageKeys() {
		if r.values.Images[key] == "" {
			missing = append(missing, "--image "+key+"=IMAGE")
		}
	}
	given := ""
	if len(r.values.Images) > 0 {
		given = "; given are " + strings.Join(slices.Sorted(maps.Keys(r.values.Images)), ", ")
	}
	return fmt.Errorf("%w\ngive --images-file, or %s%s", err, strings.Join(missing, " "), given)
}

// allImages returns the images of the file; those of flags replace them.
func (r *rendering) allImages() (bundle.Images, error) {
	all := bundle.Images{}
	if file := r.bootstrap.ImagesFile; file != "" {
		var err error
		if all, err = render.Images(file); err != nil {
			return nil, fmt.Errorf("error reading --images-file: %w", err)
		}
	}
	maps.Copy(all, r.images)
	return all, nil
}
