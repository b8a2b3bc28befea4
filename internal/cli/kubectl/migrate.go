// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/redact"
)

// exitSettleFirst is the code of a plan that has something to settle first.
const exitSettleFirst = 2

func (a *App) migrateCommand() *cobra.Command {
	var from string
	var plan bool
	cmd := a.shows(&cobra.Command{
		Use: "migrate --from PROJECT", Short: "Plan the move from another project to Outrigger", Args: cobra.NoArgs,
		Long: `Plan the move of this cluster from Confidential Containers' cloud-api-adaptor,
OpenShift's cluster-cloud-controller-manager-operator (cccmo) or Cluster API's
Docker provider (capd): what is found, what each setting is here, what to settle
first, what restarts, the steps, and the way back. Nothing is changed. Exit codes:
0 the steps can be followed, 1 the cluster cannot be read or has nothing of the
project, 2 something is to be settled first.`,
		PreRunE: func(*cobra.Command, []string) error {
			switch {
			case !plan:
				return errors.New("migrate changes nothing itself: follow the steps of the plan")
			case a.planners()[from] == nil:
				return fmt.Errorf("--from %q: want cloud-api-adaptor, cccmo or capd", from)
			}
			return nil
		},
	}, func(ctx context.Context, c *cluster, _ string, _ []string) (printer, error) {
		planned, err := a.planners()[from](ctx, c)
		if err == nil && len(planned.SettleFirst) > 0 {
			err = exitCode(exitSettleFirst)
		}
		return planned, err
	})
	cmd.Flags().StringVar(&from, "from", "", "project that runs in the cluster: cloud-api-adaptor, cccmo, capd")
	commandline.Complete(cmd, "from", cobra.FixedCompletions([]string{"cloud-api-adaptor", "cccmo", "capd"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.Flags().BoolVar(&plan, "plan", true, "only print the plan; the one way there is")
	return cmd
}

func (a *App) planners() map[string]func(context.Context, *cluster) (*Plan, error) {
	return map[string]func(context.Context, *cluster) (*Plan, error){
		"cloud-api-adaptor": a.planAdaptor, "cccmo": a.planOperator, "capd": a.planDocker,
	}
}

// Plan is what migrate prints.
type Plan struct {
	From string `json:"from"`
	// Page is the documentation of the move.
	Page  string  `json:"page"`
	Found []Found `json:"found"`
	// Settings are those that are something else here, and advice on others.
	Settings []Moved `json:"settings"`
	// Same is how many settings stay as they are.
	Same int `json:"same"`
	// SettleFirst is what would not work after the move.
	SettleFirst []string `json:"settleFirst"`
	Restarts    []string `json:"restarts"`
	Steps       []Step   `json:"steps"`
	Rollback    []Step   `json:"rollback"`
}

// Found is an object, or several of a kind, that the move is about.
type Found struct {
	Object string `json:"object"`
	Detail string `json:"detail"`
}

// Moved is what a setting is here.
type Moved struct {
	Name   string `json:"name"`
	Here   string `json:"here"`
	Advice string `json:"advice,omitempty"`
}

// Step is a thing to do, by commands if there are any.
type Step struct {
	Do  string   `json:"do"`
	Run []string `json:"run,omitempty"`
}

func newPlan(from, page string) *Plan {
	return &Plan{From: from, Page: "docs/" + page, Found: []Found{}, Settings: []Moved{}, SettleFirst: []string{}, Restarts: []string{}, Steps: []Step{}, Rollback: []Step{}}
}

func (p *Plan) found(object, format string, args ...any) {
	p.Found = append(p.Found, Found{object, redact.Foreign(fmt.Sprintf(format, args...))})
}

func (p *Plan) settle(format string, args ...any) {
	p.SettleFirst = append(p.SettleFirst, redact.Foreign(fmt.Sprintf(format, args...)))
}

func (p *Plan) restart(format string, args ...any) {
	p.Restarts = append(p.Restarts, fmt.Sprintf(format, args...))
}

func (p *Plan) step(do string, run ...string) { p.Steps = append(p.Steps, Step{do, run}) }
func (p *Plan) back(do string, run ...string) { p.Rollback = append(p.Rollback, Step{do, run}) }

func (p *Plan) print(w io.Writer) {
	fmt.Fprintf(w, "From %s; %s says more.\n\nFound:\n", p.From, p.Page)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, f := range p.Found {
		fmt.Fprintf(table, "  %s\t%s\n", f.Object, f.Detail)
	}
	table.Flush()
	if p.Same > 0 || len(p.Settings) > 0 {
		fmt.Fprintf(w, "\nSettings: %d stay as they are.\n", p.Same)
	}
	for _, m := range p.Settings {
		fmt.Fprintf(table, "  %s\t%s\t%s\n", m.Name, m.Here, m.Advice)
	}
	table.Flush()
	printLines(w, "Settle first", p.SettleFirst)
	printLines(w, "What restarts", p.Restarts)
	printSteps(w, "Steps", p.Steps)
	printSteps(w, "The way back", p.Rollback)
}

func printLines(w io.Writer, head string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", head)
	for _, line := range lines {
		fmt.Fprintf(w, "  - %s\n", line)
	}
}

func printSteps(w io.Writer, head string, steps []Step) {
	fmt.Fprintf(w, "\n%s:\n", head)
	for i, s := range steps {
		fmt.Fprintf(w, "  %d. %s\n", i+1, s.Do)
		for _, line := range s.Run {
			fmt.Fprintf(w, "       %s\n", line)
		}
	}
}

// nothingOf is the error for a cluster without the project.
func nothingOf(what string, err error) error {
	return fmt.Errorf("nothing to move: %s cannot be read: %w", what, err)
}

// release is the Helm release that an object is of, from its annotations.
func release(o *object) (name, namespace string) {
	name = o.Metadata.Annotations["meta.helm.sh/release-name"]
	return name, cmp.Or(o.Metadata.Annotations["meta.helm.sh/release-namespace"], o.Metadata.Namespace)
}
