// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/timeline"
)

func (a *App) timelineCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "timeline POD", Short: "Show where the time of a pod's start went", Args: onePod,
		Long: `Show the steps of a pod's start, those of its node and those of its guest, with
their beginnings and lengths in seconds. They come from the PeerPod: the guest's
are there if the adaptor has PEERPOD_TIMELINE=true, once the pod's first container
runs, each name once, from the first beginning to the last end. Without that, layer
by layer, and as long as the guest runs: outrigger timeline, on the node.`,
		Example: "kubectl outrigger timeline web -n shop\nkubectl outrigger timeline web -o svg >web.svg",
		RunE: func(cmd *cobra.Command, args []string) error {
			c, namespace, err := a.connect()
			if err != nil {
				return err
			}
			d, peerPods, err := a.claimsOf(cmd.Context(), c, namespace, args[0])
			if err != nil {
				return err
			}
			if len(peerPods) == 0 || len(peerPods[0].Status.Steps) == 0 {
				return withProblems(fmt.Sprintf("no step of the start of pod %s/%s is known yet", namespace, args[0]), d.Problems)
			}
			return timeline.Write(a.Stdout, output, namespace+"/"+args[0], ofSteps(peerPods[0].Status.Steps), timeline.LeastWidth)
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", timeline.Forms...)
	return cmd
}

// withProblems returns an error with the problems that may be why.
func withProblems(text string, problems []Problem) error {
	for _, p := range problems {
		text += "\n" + p.Where + ": " + prefixed(p.Reason) + p.Message
	}
	return errors.New(text)
}

// ofSteps returns the timeline of a PeerPod's steps.
func ofSteps(steps []v1alpha1.Step) timeline.Timeline {
	t := timeline.Timeline{}
	for _, s := range steps {
		step := timeline.Step{Name: s.Name, Where: timeline.Node, Start: s.Time.Time, End: s.Time.Time}
		if s.StartTime != nil {
			step.Start = s.StartTime.Time
		}
		if s.Place == v1alpha1.PlaceGuest {
			step.Where = timeline.Guest
		}
		t.Steps = append(t.Steps, step)
	}
	if !slices.ContainsFunc(t.Steps, func(s timeline.Step) bool { return s.Where == timeline.Guest }) {
		t.Missing = "the PeerPod has no steps of the guest: the adaptor writes them if PEERPOD_TIMELINE is true, once a container runs; on the node, outrigger timeline asks the guest"
	}
	return t.With()
}
