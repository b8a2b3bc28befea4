// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/netprobe"
	"github.com/outrigger/outrigger/internal/redact"
)

const (
	// removalTime bounds the removal of the pods, with their VMs, and then that of the namespace.
	removalTime = 5 * time.Minute
	// probeTime bounds one check; those that wait for an answer in the pod take up to 25 s.
	probeTime = time.Minute
)

// Outcomes of a check.
const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// NetCheck is what one check of the network found.
type NetCheck struct {
	Name    string  `json:"name"`
	Outcome string  `json:"outcome"`
	Seconds float64 `json:"seconds"`
	// Detail is what was measured, or why it failed or was skipped.
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// netOptions are the flags.
type netOptions struct {
	image, runtimeClass, outside string
	skip                         []string
	keep                         bool
	timeout                      time.Duration
}

func (a *App) connectivityCommand() *cobra.Command {
	group := commandline.Group(&cobra.Command{Use: "connectivity", Short: "Test the network of pods in VMs"})
	o, output := netOptions{timeout: 10 * time.Minute}, ""
	cmd := &cobra.Command{
		Use: "test", Short: "Make pods and check every way between them", Args: cobra.NoArgs,
		Long: `Make a namespace with two pods in VMs and an ordinary one, check every way between
them, and remove the namespace, also after an interrupt. Exit code 1 if a check fails.
All checks, by the names that --skip takes: ` + strings.Join(checkNames(), ", ") + `.
The pods run agent-relay's image, which VMs must be able to pull without a Secret;
else name a copy of it by --image. Nothing outside of the cluster is called unless
--outside names it. After a kill of this program:
kubectl delete namespace -l ` + netLabel + `=test`,
		Example: "kubectl outrigger connectivity test --outside 192.0.2.1:443 --skip policy",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, _, err := a.connect()
			if err != nil {
				return err
			}
			return a.testConnectivity(cmd.Context(), c, o, output)
		},
	}
	cmd.Flags().StringVar(&o.image, "image", "", "image of the pods, with the program agent-relay (default: that of DaemonSet agent-relay)")
	cmd.Flags().StringVar(&o.runtimeClass, "runtime-class", RuntimeClass, "runtime class of the pods in VMs")
	cmd.Flags().StringVar(&o.outside, "outside", "", "HOST:PORT outside of the cluster that pods must reach by TCP; empty: not checked")
	cmd.Flags().StringSliceVar(&o.skip, "skip", nil, "names of checks to leave out")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the namespace")
	cmd.Flags().DurationVar(&o.timeout, "timeout", o.timeout, "how long the pods may take to run")
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	group.AddCommand(cmd)
	return group
}

// netTest is one run.
type netTest struct {
	app       *App
	c         *cluster
	options   netOptions
	namespace string
	report    func(NetCheck)
	checks    []NetCheck
	// pods are those that run, and service the address of the Service, both by Kubernetes' word.
	pods    map[string]*pod
	service string
}

func (a *App) testConnectivity(ctx context.Context, c *cluster, o netOptions, output string) error {
	if a.namespace != "" || a.all {
		return errors.New("connectivity test makes a namespace of its own: leave out -n and -A")
	}
	for _, name := range o.skip {
		if !slices.Contains(checkNames(), name) {
			return fmt.Errorf("--skip %q is not a check; the checks are %s", name, strings.Join(checkNames(), ", "))
		}
	}
	n := &netTest{app: a, c: c, options: o, namespace: "outrigger-connectivity-" + rand.String(5), pods: map[string]*pod{}, report: func(NetCheck) {}}
	if output != "json" {
		n.report = func(check NetCheck) { check.print(a.Stdout) }
	}
	if err := n.findImage(ctx); err != nil {
		return err
	}
	err := n.run(ctx)
	number := map[string]int{}
	for _, check := range n.checks {
		number[check.Outcome]++
	}
	switch {
	case len(n.checks) == 0:
	case output == "json":
		err = errors.Join(err, a.print(output, n.checks, nil))
	default:
		fmt.Fprintf(a.Stdout, "%d passed, %d failed, %d skipped\n", number[passed], number[failed], number[skipped])
	}
	if err == nil && number[failed] > 0 {
		return exitCode(exitFailure)
	}
	return err
}

// findImage takes that of the relays.
func (n *netTest) findImage(ctx context.Context) error {
	if n.options.image != "" {
		return nil
	}
	var relay workload
	if err := n.c.Get(ctx, api(apps, n.app.system, "daemonsets", relayName), &relay); err != nil {
		return fmt.Errorf("find the image of DaemonSet %s/%s, or give --image: %w", n.app.system, relayName, err)
	}
	if len(relay.Spec.Template.Spec.Containers) == 0 {
		return fmt.Errorf("DaemonSet %s/%s has no container: give --image", n.app.system, relayName)
	}
	n.options.image = relay.Spec.Template.Spec.Containers[0].Image
	return nil
}

// run leaves nothing in the cluster, whatever happens, unless it is to keep it.
func (n *netTest) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, n.remove(context.WithoutCancel(ctx))) }()
	for _, o := range n.objects() {
		if err := n.c.create(ctx, o.at, o.object); err != nil {
			return fmt.Errorf("make what the test needs: %w", err)
		}
	}
	if err := n.awaitPods(ctx); err != nil {
		return err
	}
	for _, check := range n.plan() {
		if ctx.Err() != nil {
			break
		}
		n.do(ctx, check)
	}
	return ctx.Err()
}

// remove waits until the namespace is gone.
func (n *netTest) remove(ctx context.Context) error {
	if n.options.keep {
		fmt.Fprintf(n.app.Stderr, "kept: kubectl delete namespace %s\n", n.namespace)
		return nil
	}
	// Pods first: while there are some, the namespace's controller looks again after longer and longer times.
	var pods []string
	for _, name := range testPods {
		pods = append(pods, core(n.namespace, "pods", name))
	}
	at := core("", "namespaces", n.namespace)
	err := errors.Join(n.removed(ctx, pods...), n.removed(ctx, at))
	if err != nil {
		return fmt.Errorf("remove namespace %s: %w; kubectl delete namespace %s", n.namespace, err, n.namespace)
	}
	return nil
}

// removed removes objects of one collection and waits until they are gone.
func (n *netTest) removed(ctx context.Context, objects ...string) error {
	ctx, cancel := context.WithTimeout(ctx, removalTime)
	defer cancel()
	for _, at := range objects {
		if err := n.c.remove(ctx, at); err != nil {
			return err
		}
	}
	changes := n.c.changes(ctx, path.Dir(objects[0]))
	for _, at := range objects {
		for {
			err := n.c.Get(ctx, at, &object{})
			if apierrors.IsNotFound(err) {
				break
			}
			if err != nil {
				return err
			}
			select {
			case <-changes:
			case <-ctx.Done():
				return fmt.Errorf("%s is still there after %s", path.Base(at), removalTime)
			}
		}
	}
	return nil
}

// awaitPods adds a check for each pod: it runs, or why not. It ends when all run, or one never will.
func (n *netTest) awaitPods(ctx context.Context) error {
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, n.options.timeout)
	defer cancel()
	changes := n.c.changes(limited, core(n.namespace, "pods"), core(n.namespace, "events"))
	scheduling := time.NewTimer(n.options.timeout / 20) // a node may have room in a moment
	defer scheduling.Stop()
	for never, waited := false, false; len(n.pods) < len(testPods) && !never && limited.Err() == nil; {
		pods, err := list[pod](limited, n.c, core(n.namespace, "pods"), nil)
		for i := range pods {
			p := &pods[i]
			switch {
			case n.pods[p.Metadata.Name] != nil:
			case p.ready() && p.Status.PodIP != "":
				n.pods[p.Metadata.Name] = p
				n.add(NetCheck{Name: "pod " + p.Metadata.Name, Outcome: passed, Detail: p.Status.PodIP + " on node " + p.Spec.NodeName}, began)
			default:
				d, err := n.app.describePod(limited, n.c, n.namespace, p.Metadata.Name)
				never = never || err == nil && d.hopeless(waited)
			}
		}
		if err != nil && limited.Err() == nil && !apierrors.IsServerTimeout(err) {
			return fmt.Errorf("look at the pods: %w", err)
		}
		if len(n.pods) < len(testPods) && !never {
			select {
			case <-changes:
			case <-scheduling.C:
				waited = true
			case <-limited.Done():
			}
		}
	}
	for _, name := range testPods {
		if n.pods[name] == nil && ctx.Err() == nil {
			n.add(n.whyNot(ctx, name, limited.Err() != nil), began)
		}
	}
	var service struct {
		Spec struct {
			ClusterIP string `json:"clusterIP"`
		} `json:"spec"`
	}
	err := n.c.Get(ctx, core(n.namespace, "services", serverPod), &service)
	n.service = service.Spec.ClusterIP
	return cmp.Or(ctx.Err(), err)
}

// hopeless reports whether the pod will not run, however long one waits; scheduling, that a node was waited for. A VM that
// was too slow may be faster the next time.
func (d *Description) hopeless(scheduling bool) bool {
	final := []string{"ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CrashLoopBackOff"}
	if scheduling {
		final = append(final, corev1.PodReasonUnschedulable)
	}
	return slices.ContainsFunc(d.Problems, func(p Problem) bool { return slices.Contains(final, p.Reason) }) ||
		slices.ContainsFunc(d.Events, func(e Event) bool {
			again := func(text string) bool { return strings.Contains(e.Message, text) }
			return e.Reason == noSandbox && !slices.ContainsFunc(transient, again)
		})
}

// transient are texts of sandboxes that the kubelet makes again with more luck: a slow VM, an adaptor that is exchanged.
var transient = []string{"the time for it was over", "the VM was not ready within", "the adaptor is shutting down", "hypervisor.sock", "failed to reserve sandbox name"}

// noSandbox is the reason of the kubelet's Event when the container runtime has no VM for a pod.
const noSandbox = "FailedCreatePodSandBox"

// whyNot explains as `describe pod` does. A pod that may still come up was not waited for, unless the time is over.
func (n *netTest) whyNot(ctx context.Context, name string, late bool) NetCheck {
	check := NetCheck{Name: "pod " + name, Outcome: failed, Detail: "it does not run after " + n.options.timeout.String(), Fix: "kubectl outrigger describe pod " + name + ", with --keep"}
	d, err := n.app.describePod(ctx, n.c, n.namespace, name)
	switch {
	case err == nil && !late && !d.hopeless(true):
		return NetCheck{Name: check.Name, Outcome: skipped, Detail: "not waited for, since another pod cannot run"}
	case err == nil && len(d.Problems) > 0:
		p := d.Problems[0]
		check.Detail, check.Fix = p.Where+": "+prefixed(p.Reason)+p.Message, cmp.Or(p.Hint, check.Fix)
	}
	return check
}

// do runs one check in its pod.
func (n *netTest) do(ctx context.Context, p netPlan) {
	began, check := time.Now(), NetCheck{Name: p.name, Outcome: skipped, Detail: p.lacks}
	switch {
	case slices.Contains(n.options.skip, p.group):
		check.Detail = "left out by --skip"
	case p.lacks == "":
		said, err := n.probe(ctx, p)
		check.Outcome, check.Detail = passed, redact.Line(strings.TrimSpace(said))
		if err != nil {
			check.Outcome, check.Detail, check.Fix = failed, redact.Line(err.Error()), p.fix
		}
	}
	if ctx.Err() == nil { // else it failed by the interrupt
		n.add(check, began)
	}
}

func (n *netTest) probe(ctx context.Context, p netPlan) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTime, fmt.Errorf("no answer of the pod within %s", probeTime))
	defer cancel()
	if p.before != nil {
		if err := p.before(ctx); err != nil {
			return "", err
		}
	}
	said, err := n.app.execIn(n.c)(ctx, execTarget{n.namespace, p.from, probeContainer, maxSaid}, append(slices.Clone(netprobe.Command), p.probe...))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return said, err
}

func (n *netTest) add(check NetCheck, began time.Time) {
	check.Seconds = time.Since(began).Seconds()
	n.checks = append(n.checks, check)
	n.report(check)
}

func (c NetCheck) print(w io.Writer) {
	sign := map[string]string{passed: "✓", failed: "✗", skipped: "-"}
	fmt.Fprintf(w, "%s %-42s %6.1f s  %s\n", sign[c.Outcome], c.Name, c.Seconds, redact.Line(c.Detail))
	if c.Fix != "" {
		fmt.Fprintf(w, "  -> %s\n", redact.Line(c.Fix))
	}
}

func address(host string) string { return net.JoinHostPort(host, netprobe.Port) }
