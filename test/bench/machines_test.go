// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
)

var (
	machineClusters = flag.Int("machine-clusters", 10, "clusters of 1 + 3 machines in the measurement machines; 30 take half an hour")
	machineIdle     = flag.Duration("machine-idle", time.Minute, "how long the measurement machines watches what has nothing to do")
)

// Each cluster has so many machines.
const (
	controlPlanes = 1
	workers       = 3
)

const machinesHead = `
## Machines for Cluster API

%d clusters of 1 + 3 machines, made, left alone, deleted, and made again with the
manager killed (SIGKILL, started again at once) when half of the machines were provisioned. Core, the
kubeadm providers, API server and etcd are real processes. ` + "`capi-manager`" + ` makes its machines at the
simulated cloud, a process plugin whose file outlives it; their API servers are in a process of
their own. Beside it, in the same run and one after the other, Cluster API's in-memory provider
v1.14, which is machines, API servers and manager in one process: what it has of them is in its
processor time and memory, and lost when it is killed. One run on %s, %d processors%s. Counts are from the
managers' own metrics, and everything but them is subject to what else the machine does.

| what | capi-manager | in-memory provider | ratio |
|---|---|---|---|
`

// fleet is a management cluster with one provider of infrastructure, and what
// it makes clusters of.
type fleet struct {
	*capi.Management
	manager *capi.Manager
	// machine and cluster are the names of the controllers.
	machine, cluster string
	manifest         func(t *testing.T, name string) string
	// cloud is nil where machines are in the manager's memory, and so is world,
	// the process with the API servers of clusters.
	cloud *capi.Cloud
}

// machines is a table of its own: a line for each figure.
func machines(t *testing.T, _ int) measured {
	sides := map[string]*lives{}
	for _, side := range []struct {
		name  string
		start func(*testing.T) *fleet
	}{{"ours", ourFleet}, {"peer", peerFleet}} {
		// As a subtest, so that it is gone when the other begins.
		t.Run(side.name, func(t *testing.T) {
			sides[side.name] = side.start(t).measure(t)
			t.Logf("%+v", *sides[side.name])
		})
	}
	ours, peer := sides["ours"], sides["peer"]
	if ours == nil || peer == nil {
		return measured{}
	}
	table := fmt.Sprintf(machinesHead, *machineClusters, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), busy())
	for _, line := range compare(ours, peer) {
		table += "| " + strings.Join(line, " | ") + " |\n"
	}
	return measured{figures: promised(t, ours, peer), table: table}
}

// promised returns the figures of which something is promised.
func promised(t *testing.T, ours, peer *lives) []promises.Figure {
	lines := []promises.Figure{
		{Promise: "machines-idle-writes", Value: float64(ours.idle.writes), How: fmt.Sprintf("in %s", *machineIdle)},
		{Promise: "machines-twice", Value: float64(ours.twice), How: "instances at the provider"},
	}
	for _, f := range []struct {
		promise    string
		ours, peer int
	}{{"machines-writes", ours.create.writes, peer.create.writes}, {"machines-reconciles", ours.create.total, peer.create.total}} {
		if f.peer == 0 {
			t.Errorf("%s: the in-memory provider has none", f.promise)
			continue
		}
		lines = append(lines, promises.Figure{Promise: f.promise, Value: float64(f.ours) / float64(f.peer), How: "both in this run; see below"})
	}
	return lines
}

func ourFleet(t *testing.T) *fleet {
	r := capi.NewRepository(t)
	r.Release(t, "v0.1.0")
	f := &fleet{cloud: capi.StartCloud(t), machine: "outriggermachine", cluster: "outriggercluster"}
	f.Management = capi.Start(t, r)
	f.Init(t, capi.Name)
	f.manager = f.Run(t, capi.Label, f.cloud.Ours(t))
	const name, port = "cluster-name", "65535"
	w := wanted(name)
	w.Flavor, w.Port = "outrigger", port
	template := f.Generate(t, w)
	f.manifest = func(t *testing.T, as string) string {
		return strings.NewReplacer(name, as, port, cluster.HoldPort(t)).Replace(template) + "\n---\n"
	}
	return f
}

func peerFleet(t *testing.T) *fleet {
	r := capi.NewRepository(t)
	r.Peer(t)
	f := &fleet{machine: "devmachine", cluster: "devcluster"}
	f.Management = capi.Start(t, r)
	f.Init(t, "docker")
	f.manager = f.Run(t, capi.PeerLabel, f.PeerProgram())
	f.manifest = func(_ *testing.T, name string) string { return capi.PeerCluster(wanted(name)) }
	return f
}

func wanted(name string) capi.Wanted {
	return capi.Wanted{Name: name, Namespace: "default", Version: "v1.36.3", ControlPlanes: controlPlanes, Workers: workers}
}

// lives is what is measured of a fleet.
type lives struct {
	create, idle, delete spent
	rss, rssAll          int64
	recovery             time.Duration
	inFlight             int
	// twice are instances beyond the first of a machine, more all of those beyond
	// the machines that were wanted: core may make a Machine in place of another.
	twice, more int
}

func (f *fleet) measure(t *testing.T) *lives {
	l := &lives{}
	names := f.names("first")
	l.create = f.spend(t, func() {
		f.apply(t, names)
		f.awaitMachines(t, len(names), running)
	})
	l.rss, l.rssAll = f.rss(t)
	f.awaitQuiet(t)
	l.idle = f.spend(t, func() { time.Sleep(*machineIdle) })
	l.delete = f.spend(t, func() { f.remove(t, names) })
	f.recover(t, l)
	return l
}

func (f *fleet) names(batch string) []string {
	var names []string
	for i := range *machineClusters {
		names = append(names, fmt.Sprintf("%s-%d", batch, i))
	}
	return names
}

func (f *fleet) apply(t *testing.T, names []string) {
	var all strings.Builder
	for _, name := range names {
		all.WriteString(f.manifest(t, name))
	}
	f.Apply(t, all.String())
}

// state says whether a Machine is as far as is waited for.
type state func(*clusterv1.Machine) bool

func running(m *clusterv1.Machine) bool {
	return m.Status.Phase == string(clusterv1.MachinePhaseRunning)
}

func provisioned(m *clusterv1.Machine) bool {
	there := m.Status.Initialization.InfrastructureProvisioned
	return there != nil && *there
}

// awaitMachines waits until all machines of that many clusters are there and
// in a state.
func (f *fleet) awaitMachines(t *testing.T, clusters int, is state) {
	f.await(t, clusters*(controlPlanes+workers), is)
}

func (f *fleet) await(t *testing.T, want int, is state) {
	t.Helper()
	capi.EventuallyIn(t, patience(), fmt.Sprintf("%d machines", want), func(ctx context.Context) error {
		there, n, err := f.count(ctx, is)
		if err != nil {
			return err
		}
		if n < want {
			return fmt.Errorf("of %d Machines %d are so far", there, n)
		}
		return nil
	})
}

// patience is a minute for each cluster, ten times what it takes and more.
func patience() time.Duration { return time.Duration(5+*machineClusters) * time.Minute }

// count returns how many Machines there are, and how many in a state.
func (f *fleet) count(ctx context.Context, is state) (there, n int, err error) {
	var list clusterv1.MachineList
	if err := f.Client.List(ctx, &list); err != nil {
		return 0, 0, err
	}
	for _, m := range list.Items {
		if is(&m) {
			n++
		}
	}
	return len(list.Items), n, nil
}

// awaitQuiet waits until nobody has changed a Machine for a while.
func (f *fleet) awaitQuiet(t *testing.T) {
	const quiet = 15 * time.Second
	var before string
	since := time.Now()
	capi.EventuallyIn(t, patience(), "quiet", func(ctx context.Context) error {
		var list clusterv1.MachineList
		if err := f.Client.List(ctx, &list); err != nil {
			return err
		}
		var now strings.Builder
		for _, m := range list.Items {
			now.WriteString(m.ResourceVersion + " ")
		}
		if now.String() != before {
			before, since = now.String(), time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("Machines have changed %s ago", time.Since(since))
		}
		return nil
	})
}

func (f *fleet) remove(t *testing.T, names []string) {
	t.Helper()
	for _, name := range names {
		c := &clusterv1.Cluster{}
		c.Namespace, c.Name = "default", name
		if err := f.Client.Delete(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	capi.EventuallyIn(t, patience(), "the clusters to be gone", func(ctx context.Context) error {
		for _, name := range names {
			err := f.Client.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, &clusterv1.Cluster{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("cluster %s is still there: %v", name, err)
			}
		}
		return nil
	})
}

// recover kills the manager when half of the machines are provisioned.
func (f *fleet) recover(t *testing.T, l *lives) {
	names := f.names("second")
	machines := len(names) * (controlPlanes + workers)
	f.apply(t, names)
	f.await(t, machines/2, provisioned)
	f.manager.Kill()
	killed := time.Now()
	there, n, err := f.count(t.Context(), provisioned)
	if err != nil {
		t.Error(err)
	}
	l.inFlight = there - n
	f.manager.Return(t)
	f.awaitMachines(t, len(names), running)
	l.recovery = time.Since(killed)
	if f.cloud != nil {
		l.twice, l.more = f.doubles(t), f.cloud.Made(t)-2*machines
	}
}

// doubles counts instances that were made for a machine that had one already.
func (f *fleet) doubles(t *testing.T) (n int) {
	t.Helper()
	lines, err := f.cloud.Cloud.Ledger()
	if err != nil {
		t.Fatal(err)
	}
	made := map[string]bool{}
	for _, line := range lines {
		if line.Kind != fake.KindInstance {
			continue
		}
		if made[line.Key] {
			t.Logf("made twice: %+v", line)
			n++
		}
		made[line.Key] = true
	}
	return n
}
