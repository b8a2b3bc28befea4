// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/timeline"
)

// timelineWait bounds the wait for node and guest.
const timelineWait = 15 * time.Second

func (a *App) timelineCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "timeline POD",
		Short: "Show where the time of a pod's start went",
		Long: `Show each step of a pod's start with its beginning and its length, in seconds:
those of this node, and those that the guest has noted, on one clock. Steps of
one line contain others: create-instance is the provider-call and more, connect
waits while the guest boots.

The guest keeps its steps: a pod that has ended has none. With --socket the pod
may be one that Kubernetes runs on this node, by its name or sandbox id.`,
		Example: `  outrigger timeline web
  outrigger timeline web -o svg >web.svg
  sudo outrigger --socket /run/peerpod/hypervisor.sock timeline web`,
		ValidArgsFunction: a.podNames,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("timeline needs a POD, e.g. outrigger timeline web; `outrigger ps` lists them")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.timeline(cmd.Context(), a.Stdout, args[0], output)
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", timeline.Forms...)
	return cmd
}

// timeline writes the timeline of a pod that runs.
func (a *App) timeline(ctx context.Context, w io.Writer, name, form string) error {
	title, own := name, []timeline.Step(nil)
	if _, p, err := a.find(name); err == nil {
		if !p.Live() {
			return fmt.Errorf("pod %s is %s: its guest, which keeps the steps, is gone; `outrigger run --timeline` shows them at the start", p.Name, p.Status)
		}
		title, own = p.Name, p.Steps
	}
	ctx, cancel := context.WithTimeout(ctx, timelineWait)
	defer cancel()
	client, id, err := a.findSandbox(ctx, name)
	if err != nil {
		return err
	}
	t, err := client.Timeline(ctx, id)
	if err != nil {
		return fmt.Errorf("timeline of pod %s: %w", title, err)
	}
	_, columns := (&terminal{out: asTerminal(w)}).size()
	return timeline.Write(w, form, title, t.With(own...), max(timeline.LeastWidth, int(columns)))
}

// step notes a step of run that has just ended.
func (r *runner) step(name string, began time.Time) {
	r.steps = append(r.steps, timeline.Step{Name: name, Where: timeline.Node, Start: began, End: time.Now()})
}

// allSteps returns run's own steps, with the calls of the pod's agent.
func (r *runner) allSteps() []timeline.Step { return slices.Concat(r.steps, r.pod.Calls()) }

// showTimeline writes the timeline of a pod that has just started. That it cannot be
// shown does not end the pod.
func (a *App) showTimeline(ctx context.Context, id string) {
	if err := a.timeline(ctx, a.Stderr, id, timeline.Forms[0]); err != nil {
		fmt.Fprintf(a.Stderr, "outrigger: %s\n", commandline.WithoutProtocol(err.Error()))
	}
}
