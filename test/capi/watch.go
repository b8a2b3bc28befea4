// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/provider/fake"
)

// AwaitCluster waits until a cluster has that many machines of its control
// plane and that many workers, all of the version if there is one, Running and
// up to date, and says in its conditions that all is well. It returns the
// names of the machines.
func (m *Management) AwaitCluster(t testing.TB, namespace, name, version string, controlPlanes, workers int) []string {
	t.Helper()
	var names []string
	Eventually(t, fmt.Sprintf("cluster %s to have %d+%d machines", name, controlPlanes, workers), func(ctx context.Context) error {
		var c clusterv1.Cluster
		if err := m.Client.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, &c); err != nil {
			return err
		}
		machines, err := m.Machines(ctx, namespace, name)
		if err != nil {
			return err
		}
		var wrong []error
		count := map[bool]int{}
		names = nil
		for _, machine := range machines {
			_, controlPlane := machine.Labels[clusterv1.MachineControlPlaneLabel]
			count[controlPlane]++
			names = append(names, machine.Name)
			wrong = append(wrong, running(&machine, version))
		}
		slices.Sort(names)
		if count[true] != controlPlanes || count[false] != workers {
			wrong = append(wrong, fmt.Errorf("there are %d+%d machines", count[true], count[false]))
		}
		if !meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ClusterAvailableCondition) {
			wrong = append(wrong, fmt.Errorf("the cluster is not Available: %v", meta.FindStatusCondition(c.Status.Conditions, clusterv1.ClusterAvailableCondition)))
		}
		return errors.Join(wrong...)
	})
	return names
}

// Machines returns those of a cluster.
func (m *Management) Machines(ctx context.Context, namespace, cluster string) ([]clusterv1.Machine, error) {
	var list clusterv1.MachineList
	err := m.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	return list.Items, err
}

// OutriggerMachines returns those of a cluster.
func (m *Management) OutriggerMachines(ctx context.Context, namespace, cluster string) ([]infrav1.OutriggerMachine, error) {
	var list infrav1.OutriggerMachineList
	err := m.Client.List(ctx, &list, client.InNamespace(namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster})
	return list.Items, err
}

func running(m *clusterv1.Machine, version string) error {
	switch {
	case m.Status.Phase != string(clusterv1.MachinePhaseRunning):
		return fmt.Errorf("machine %s is %s: %s", m.Name, m.Status.Phase, said(m, clusterv1.MachineReadyCondition))
	case version != "" && m.Spec.Version != version:
		return fmt.Errorf("machine %s is of version %s", m.Name, m.Spec.Version)
	case !m.DeletionTimestamp.IsZero():
		return fmt.Errorf("machine %s is being deleted", m.Name)
	}
	for _, condition := range []string{clusterv1.MachineReadyCondition, clusterv1.MachineInfrastructureReadyCondition, clusterv1.MachineAvailableCondition} {
		if !meta.IsStatusConditionTrue(m.Status.Conditions, condition) {
			return fmt.Errorf("machine %s is not %s: %s", m.Name, condition, said(m, condition))
		}
	}
	return nil
}

func said(m *clusterv1.Machine, condition string) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, condition); c != nil {
		return c.Reason + " " + c.Message
	}
	return "nothing said"
}

// Ledger returns the ids of the instances that exist and something of which
// costs money, sorted.
func (c *Cloud) Ledger(t testing.TB) []string {
	t.Helper()
	lines, err := c.Leaks()
	must(t, err, "read the ledger")
	var ids []string
	for _, l := range lines {
		ids = append(ids, l.Instance)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Instance returns the id of the instance of a machine.
func (m *Management) Instance(t testing.TB, namespace, machine string) string {
	t.Helper()
	var found clusterv1.Machine
	must(t, m.Client.Get(context.Background(), types.NamespacedName{Namespace: namespace, Name: machine}, &found), "get a machine")
	return found.Spec.ProviderID[strings.LastIndex(found.Spec.ProviderID, "/")+1:]
}

// AwaitLedger waits until exactly so many instances exist, and that nothing of
// others is left.
func (c *Cloud) AwaitLedger(t testing.TB, instances int) {
	t.Helper()
	Eventually(t, fmt.Sprintf("%d instances in the ledger", instances), func(context.Context) error {
		if ids := c.Ledger(t); len(ids) != instances {
			return fmt.Errorf("there are %v", ids)
		}
		return nil
	})
}

// Made is how many instances were ever made.
func (c *Cloud) Made(t testing.TB) int {
	t.Helper()
	lines, err := c.Cloud.Ledger()
	must(t, err, "read the ledger")
	return len(slices.DeleteFunc(lines, func(l fake.Resource) bool { return l.Kind != fake.KindInstance }))
}
