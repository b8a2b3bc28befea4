// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/protocol/adaptor"
)

// listedPod is one pod in the output of ps.
type listedPod struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	ID        string `json:"id"`
	Image     string `json:"image,omitempty"`
	// Status is creating, running, exited, or orphaned if its owner was killed. For a
	// pod that was not started with `outrigger run` it is the adaptor's state.
	Status   string    `json:"status"`
	ExitCode *int      `json:"exitCode,omitempty"`
	Error    string    `json:"error,omitempty"`
	Created  time.Time `json:"created"`
	Command  []string  `json:"command,omitempty"`
	IPs      []string  `json:"ips,omitempty"`
	Provider string    `json:"provider,omitempty"`
	Instance string    `json:"instance,omitempty"`
	VM       []string  `json:"vmAddresses,omitempty"`

	Labels map[string]string `json:"labels,omitempty"`
	Ports  []string          `json:"ports,omitempty"`

	finished time.Time
}

func (a *App) psCommand() *cobra.Command {
	var output, format string
	var all, quiet, whole bool
	var filters []string
	cmd := &cobra.Command{
		Use: "ps", Short: "List pods", Args: cobra.NoArgs,
		Long: `List pods of this host: those of ` + "`outrigger run`" + ` and, with --socket, all of that adaptor.

--filter takes name=PART, id=BEGINNING, status=STATUS, exited=CODE, ancestor=IMAGE and
label=KEY[=VALUE]. Of several with the same key one must match, and all keys.
--format takes json or a template of Go with .ID, .Names, .Image, .Command, .CreatedAt,
.RunningFor, .State, .Status, .Ports, .Labels and .Label "KEY".`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			keep, wanted, err := parseFilters(filters, matchers)
			if err != nil {
				return err
			}
			pods, err := a.list(cmd.Context(), all || wanted["exited"] != nil || slices.Contains(wanted["status"], "exited"))
			if err != nil {
				return err
			}
			pods = slices.DeleteFunc(pods, func(p listedPod) bool { return !keep(p) })
			if hidden(a.root) {
				fmt.Fprintln(a.Stderr, "outrigger: pods that root runs are not shown; sudo outrigger ps shows them")
			}
			if quiet {
				format = "{{.ID}}"
			}
			switch {
			case format != "":
				rows := []podRow{}
				for _, p := range pods {
					rows = append(rows, p.row(whole, time.Now()))
				}
				return printRows(a.Stdout, format, podHead, rows)
			case output == "json":
				return program.WriteJSON(a.Stdout, pods)
			}
			return a.printPods(pods, output == "wide", time.Now())
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also those that have ended")
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "only ids")
	cmd.Flags().BoolVar(&whole, "no-trunc", false, "whole ids and commands, with --quiet and --format")
	cmd.Flags().StringArrayVarP(&filters, "filter", "f", nil, "KEY=VALUE: only such pods")
	cmd.Flags().StringVar(&format, "format", "", "json, or a template; one that begins with table has a head")
	commandline.Form(cmd, &output, "output", "form of the output", "table", "wide", "json")
	return cmd
}

// hidden reports whether root may have pods that this user, whose folder is another,
// does not see.
func hidden(root string) bool {
	_, err := os.Stat(node.DefaultRoot)
	return err == nil && os.Geteuid() != 0 && root == defaultRoot() && root != node.DefaultRoot
}

// list returns our records, completed by the adaptors' lists, and the pods that only an
// adaptor knows. If our adaptor has died while pods of ours run, it is started again.
func (a *App) list(ctx context.Context, all bool) ([]listedPod, error) {
	n, err := a.node()
	if err != nil {
		return nil, err
	}
	records, err := n.Pods().List()
	if err != nil {
		return nil, err
	}
	if needAdaptor(records) {
		a.reviveOwn(ctx, n)
		if records, err = n.Pods().List(); err != nil {
			return nil, err
		}
	}
	if err := a.checkSocket(); err != nil {
		return nil, err
	}
	sandboxes := a.sandboxes(ctx, n, records)
	pods := []listedPod{}
	for _, p := range records {
		if p.Live() || all {
			pods = append(pods, describePod(p, sandboxes[p.ID]))
		}
		delete(sandboxes, p.ID)
	}
	for _, s := range sandboxes {
		pods = append(pods, listedPod{
			Name: s.PodName, Namespace: s.PodNamespace, ID: s.Id, Status: s.State, Error: s.LastError,
			Created: time.Unix(0, s.CreatedUnixNano).UTC(), Instance: s.InstanceName, VM: s.Addresses,
		})
	}
	return pods, nil
}

// checkSocket returns an error if nobody serves --socket. Without it that would look
// like an adaptor without pods.
func (a *App) checkSocket() error {
	if a.socket == "" || node.Served(a.socket) {
		return nil
	}
	return fmt.Errorf("nobody serves the hypervisor socket %s; start cloud-api-adaptor, or leave out --socket (REMOTE_HYPERVISOR_ENDPOINT)", a.socket)
}

// reviveOwn restarts the adaptor and the monitors of our pods if they have died. Pods
// that stay without a monitor are shown as orphaned.
func (a *App) reviveOwn(ctx context.Context, n *node.Node) {
	if err := a.revive(ctx, n); err != nil {
		fmt.Fprintf(a.Stderr, "outrigger: cloud-api-adaptor has died and does not start again: %s\n", commandline.WithoutProtocol(err.Error()))
	}
	unlock, err := n.Lock(ctx)
	if err != nil {
		return
	}
	defer unlock()
	pods, _ := n.Pods().List()
	for _, p := range pods {
		if p.Detached && p.Status == record.Running && !p.Owner.Alive() {
			a.adopt(ctx, n, p)
		}
	}
}

// sandboxes returns the sandboxes of all adaptors that may know pods, by sandbox id.
func (a *App) sandboxes(ctx context.Context, n *node.Node, records []*record.Pod) map[string]*adaptor.Sandbox {
	sockets := map[string]bool{n.Socket(): true}
	if a.socket != "" {
		sockets[a.socket] = true
	}
	for _, p := range records {
		sockets[p.Socket] = true
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	all := map[string]*adaptor.Sandbox{}
	for socket := range sockets {
		list, err := podclient.New(socket).Sandboxes(ctx)
		if err != nil {
			continue // not served, or not our adaptor: it knows none
		}
		for _, s := range list {
			all[s.Id] = s
		}
	}
	return all
}

// orphaned is the status of a pod whose owner was killed.
const orphaned = "orphaned"

func describePod(p *record.Pod, s *adaptor.Sandbox) listedPod {
	l := listedPod{
		Name: p.Name, Namespace: p.Namespace, ID: p.ID, Image: p.Image, Status: string(p.Status), Error: p.Error,
		Created: p.Created, Command: p.First().Command, IPs: p.IPs, Provider: p.Provider,
		Labels: p.Labels, finished: p.Finished,
	}
	for _, m := range p.Ports {
		l.Ports = append(l.Ports, publishedAt(m)+"->"+string(m.Port))
	}
	switch {
	case !p.Live():
		l.ExitCode = &p.ExitCode
	case !p.Owner.Alive():
		l.Status = orphaned
	}
	if s != nil {
		l.Instance, l.VM = s.InstanceName, s.Addresses
	}
	return l
}

func (a *App) printPods(pods []listedPod, wide bool, now time.Time) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 3, ' ', 0)
	head := "NAME\tID\tIMAGE\tSTATUS\tAGE"
	if wide {
		head += "\tIP\tPROVIDER\tINSTANCE\tVM\tCOMMAND"
	}
	fmt.Fprintln(w, head)
	for _, p := range pods {
		status := p.Status
		if p.ExitCode != nil {
			status = fmt.Sprintf("exited (%d)", *p.ExitCode)
		}
		fmt.Fprintf(w, "%s\t%.12s\t%s\t%s\t%s", p.Name, p.ID, cmp.Or(p.Image, "-"), status, duration.HumanDuration(now.Sub(p.Created)))
		if wide {
			for _, column := range []string{strings.Join(p.IPs, ","), p.Provider, p.Instance, strings.Join(p.VM, ","), strings.Join(p.Command, " ")} {
				fmt.Fprint(w, "\t", cmp.Or(column, "-"))
			}
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

// podNames completes names of pods.
func (a *App) podNames(_ *cobra.Command, given []string, _ string) ([]string, cobra.ShellCompDirective) {
	n, err := a.node()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	pods, _ := n.Pods().List()
	for _, p := range pods {
		names = append(names, p.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// usage is one pod's resource usage.
type usage struct {
	Name             string  `json:"name"`
	CPUSeconds       float64 `json:"cpuSeconds"`
	MemoryBytes      uint64  `json:"memoryBytes"`
	MemoryLimitBytes uint64  `json:"memoryLimitBytes,omitempty"`
	PIDs             uint64  `json:"pids"`
	RxBytes          uint64  `json:"rxBytes"`
	TxBytes          uint64  `json:"txBytes"`
}

func (a *App) statsCommand() *cobra.Command {
	return lists(a, &cobra.Command{Use: "stats [POD...]", Short: "Show what running pods use", ValidArgsFunction: a.podNames}, a.stats, printStats)
}

func (a *App) stats(ctx context.Context, names []string) ([]usage, error) {
	if len(names) == 0 {
		n, err := a.node()
		if err != nil {
			return nil, err
		}
		pods, err := n.Pods().List()
		if err != nil {
			return nil, err
		}
		for _, p := range pods {
			if p.Status == "running" {
				names = append(names, p.ID)
			}
		}
	}
	all := []usage{}
	for _, name := range names {
		u, err := a.statsOf(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, u)
	}
	return all, nil
}

func (a *App) statsOf(ctx context.Context, name string) (usage, error) {
	pod, p, err := a.attach(ctx, name)
	if err != nil {
		return usage{}, err
	}
	defer pod.Close()
	resp, err := pod.Container(p.First().ID, p.TTY).Stats(ctx)
	if err != nil {
		return usage{}, fmt.Errorf("stats of pod %s: %w", p.Name, err)
	}
	cg := resp.GetCgroupStats()
	u := usage{
		Name: p.Name, PIDs: cg.GetPidsStats().GetCurrent(),
		CPUSeconds:  math.Round(float64(cg.GetCpuStats().GetCpuUsage().GetTotalUsage())/1e6) / 1e3,
		MemoryBytes: cg.GetMemoryStats().GetUsage().GetUsage(),
	}
	// Without a limit the kernel tells a number close to 2^63 (cgroup v1).
	if limit := cg.GetMemoryStats().GetUsage().GetLimit(); limit < 1<<60 {
		u.MemoryLimitBytes = limit
	}
	for _, n := range resp.GetNetworkStats() {
		if n.Name != "lo" {
			u.RxBytes += n.RxBytes
			u.TxBytes += n.TxBytes
		}
	}
	return u, nil
}

func printStats(w io.Writer, all []usage) {
	fmt.Fprintln(w, "NAME\tCPU TIME\tMEMORY\tLIMIT\tPIDS\tNET I/O")
	for _, u := range all {
		limit := "-"
		if u.MemoryLimitBytes > 0 {
			limit = humanSize(int64(u.MemoryLimitBytes))
		}
		cpu := time.Duration(u.CPUSeconds * float64(time.Second)).Round(10 * time.Millisecond)
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s / %s\n", u.Name, cpu, humanSize(int64(u.MemoryBytes)), limit, u.PIDs,
			humanSize(int64(u.RxBytes)), humanSize(int64(u.TxBytes)))
	}
}
