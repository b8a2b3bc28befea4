// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/cli/agentpolicy"
	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// maxPod bounds a manifest, in bytes; an API server takes 3 MiB.
const maxPod = 3 << 20

func (a *App) policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Write, and explain, what a node may ask of a pod's VM", Args: commandline.NoArgs}
	cmd.AddCommand(a.policyGenerateCommand(), a.policyExplainCommand())
	return cmd
}

func (a *App) policyGenerateCommand() *cobra.Command {
	var opts agentpolicy.Options
	var output, platform string
	cmd := &cobra.Command{
		Use: "generate FILE", Short: "Write the policy of a Pod", Args: cobra.ExactArgs(1),
		Long: `Write the policy of the Pod in FILE (- is standard input): the agent in its VM then makes
the Pod's containers as they are there, with the images by digest, and nothing else, and runs
the commands of its probes and no others. Whoever has the node, or may use kubectl exec, gets
an error that names the request and what differs.

The VM's image must have policies (podvm-image build --confidential); without them the pod does
not start. What no policy can say is an error by its field.`,
		Example: `  outrigger policy generate -o pod --allow-logs pod.yaml | kubectl apply -f -
  outrigger policy generate pod.yaml > policy.rego`,
		RunE: func(cmd *cobra.Command, args []string) error {
			opts.Resolve = func(ctx context.Context, reference string) (*agentpolicy.Image, error) {
				img, err := registry.Open(ctx, reference, registry.Options{Platform: platform, Policy: registry.Guest})
				if err != nil {
					return nil, err
				}
				pinned, err := img.ByDigest()
				return &agentpolicy.Image{Pinned: pinned, Config: img.Config}, err
			}
			pod, err := a.readPod(args[0], yaml.UnmarshalStrict)
			if err == nil && pod.Annotations[cloudinit.InitDataAnnotation] != "" {
				err = fmt.Errorf("metadata.annotations: the Pod has initdata already: remove %s, and put its entries beside the policy", cloudinit.InitDataAnnotation)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			text, err := agentpolicy.Generate(cmd.Context(), pod, opts)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return a.printPolicy(output, text, pod)
		},
	}
	f := cmd.Flags()
	commandline.Form(cmd, &output, "output", "what to write: the policy, the initdata with it as the annotation has it, or the Pod with both and its images by digest", "policy", "initdata", "pod")
	f.StringVar(&platform, "platform", "", "os/arch of the images (default: linux and this machine's)")
	f.BoolVar(&opts.Logs, "allow-logs", false, "the node may read what containers write (kubectl logs)")
	f.BoolVar(&opts.Exec, "allow-exec", false, "the node may run any command (kubectl exec)")
	f.BoolVar(&opts.Stdin, "allow-stdin", false, "the node may write to containers (kubectl attach -i)")
	return cmd
}

// readPod takes how strictly it reads: yaml.Unmarshal or yaml.UnmarshalStrict.
func (a *App) readPod(file string, unmarshal func([]byte, any, ...yaml.JSONOpt) error) (*corev1.Pod, error) {
	data, err := a.readInput(file, maxPod)
	if err != nil {
		return nil, err
	}
	pod := &corev1.Pod{}
	if err := unmarshal(data, pod); err != nil {
		return nil, err
	}
	if pod.APIVersion != "v1" || pod.Kind != "Pod" {
		return nil, fmt.Errorf("%s %s: want v1 Pod: of a Deployment and the like write the policy of its template, as a Pod", pod.APIVersion, pod.Kind)
	}
	if len(pod.Spec.Containers) == 0 {
		return nil, fmt.Errorf("the Pod has no containers")
	}
	return pod, nil
}

// readInput reads a file, or standard input (-), of at most so many bytes.
func (a *App) readInput(file string, most int64) ([]byte, error) {
	in := a.Stdin
	if file != "-" {
		opened, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer opened.Close()
		in = opened
	}
	data, err := io.ReadAll(io.LimitReader(in, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	return data, err
}

func (a *App) printPolicy(output, text string, pod *corev1.Pod) error {
	if output == "policy" {
		_, err := io.WriteString(a.Stdout, text)
		return err
	}
	data, err := cloudinit.NewInitData("sha256", "0.1.0", map[string]string{"policy.rego": text})
	if err != nil {
		return err
	}
	initdata, err := data.Encode()
	if err != nil {
		return err
	}
	if output == "initdata" {
		_, err := fmt.Fprintln(a.Stdout, initdata)
		return err
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[cloudinit.InitDataAnnotation] = initdata
	out, err := yaml.Marshal(pod)
	if err != nil {
		return err
	}
	_, err = a.Stdout.Write(out)
	return err
}
