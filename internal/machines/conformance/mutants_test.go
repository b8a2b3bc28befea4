// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// mutant is a way to get the contract wrong.
type mutant struct {
	name   string
	breaks breakage
	// fails are the checks that must see it, each with what it must say; all
	// others must pass.
	fails map[string]string
}

func seenBy(check, says string) map[string]string { return map[string]string{check: says} }

func set(value any, path ...string) func(*unstructured.Unstructured) {
	return func(crd *unstructured.Unstructured) { unstructured.SetNestedField(crd.Object, value, path...) }
}

// unfield removes a field from the schemas of a definition.
func unfield(path ...string) func(*unstructured.Unstructured) {
	return func(crd *unstructured.Unstructured) {
		versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
		for _, v := range versions {
			unstructured.RemoveNestedField(v.(map[string]any), path...)
		}
		unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")
	}
}

var crdMutants = []mutant{
	{"kind in other letters", defines("OutriggerMachine", set("Outriggermachine", "spec", "names", "kind")), seenBy("crd-name", "has spec.names.kind")},
	{"cluster-scoped", defines("OutriggerCluster", set("Cluster", "spec", "scope")), seenBy("crd-scope", "has spec.scope")},
	{"list of another name", defines("OutriggerMachine", set("OutriggerMachines", "spec", "names", "listKind")), seenBy("crd-list", "has spec.names.listKind")},
	{"no contract label", defines("OutriggerMachineTemplate", func(crd *unstructured.Unstructured) { crd.SetLabels(nil) }), seenBy("crd-contract-label", "has no label")},
	{"contract label of a version that is not served", defines("OutriggerCluster", func(crd *unstructured.Unstructured) {
		crd.SetLabels(map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2_v1beta3"})
	}), seenBy("crd-contract-label", "is not served")},
	{"no status subresource", defines("OutriggerMachine", unfield("subresources")), seenBy("crd-status", "no status subresource")},
	{"cluster without an endpoint", defines("OutriggerCluster", unfield("schema", "openAPIV3Schema", "properties", "spec", "properties", "controlPlaneEndpoint")),
		seenBy("cluster-fields", "has no field spec.controlPlaneEndpoint")},
	{"machine without addresses", defines("OutriggerMachine", unfield("schema", "openAPIV3Schema", "properties", "status", "properties", "addresses")),
		seenBy("machine-fields", "has no field status.addresses")},
	{"template without metadata", defines("OutriggerMachineTemplate", unfield("schema", "openAPIV3Schema", "properties", "spec", "properties", "template", "properties", "metadata")),
		seenBy("template-fields", "has no field spec.template.metadata")},
}

var clusterMutants = []mutant{
	{"provisioned for a moment", afterCluster(func(b *broken, r request, c *infrav1.OutriggerCluster) {
		if done(c.Status.Initialization) && b.first("flip "+r.String()) {
			no := false
			b.patchStatus(c, func() { c.Status.Initialization.Provisioned = &no })
		}
	}), seenBy("cluster-provisioned", "was true and then no more")},
	{"provisioned without an endpoint", endpointless, seenBy("cluster-endpoint", "nobody can reach")},
	{"finalizer without an owner", afterCluster(func(b *broken, _ request, c *infrav1.OutriggerCluster) {
		if len(c.OwnerReferences) == 0 && !deleting(c) {
			b.patch(c, func() { c.Finalizers = []string{infrav1.OutriggerClusterFinalizer} })
		}
	}), seenBy("cluster-owner", "finalizers was")},
	{"cluster never has a finalizer", all(
		written("OutriggerCluster", func(_ client.Object, patch map[string]any) bool {
			unstructured.RemoveNestedField(patch, "metadata", "finalizers")
			return true
		}),
		seen(func(o client.Object) {
			if o.GetAnnotations()[infrav1.KeyAnnotation] != "" {
				o.SetFinalizers([]string{infrav1.OutriggerClusterFinalizer})
			}
		}, "OutriggerCluster")), seenBy("cluster-finalizer", "had no finalizer")},
	{"managed by all", seen(without(clusterv1.ManagedByAnnotation), "OutriggerCluster"), seenBy("cluster-managed-by", "somebody else manages it")},
	{"a failure domain twice", all(
		writtenStatus("OutriggerCluster", func(_ client.Object, patch map[string]any) bool {
			if list, ok, _ := unstructured.NestedSlice(patch, "status", "failureDomains"); ok && len(list) > 0 {
				unstructured.SetNestedSlice(patch, append(list, list[len(list)-1]), "status", "failureDomains")
			}
			return true
		}),
		seen(func(o client.Object) {
			if c := o.(*infrav1.OutriggerCluster); len(c.Status.FailureDomains) == 3 {
				c.Status.FailureDomains = c.Status.FailureDomains[:2]
			}
		}, "OutriggerCluster")), seenBy("cluster-failure-domains", "there twice")},
	{"cluster's reason with a blank", misspeltReason("OutriggerCluster"), seenBy("cluster-conditions", `"is healthy": a condition reason`)},
	{"cluster's Ready unknown", unknownReady("OutriggerCluster"), seenBy("cluster-ready", "Ready is Unknown")},
	{"takes labels off clusters", afterCluster(func(b *broken, _ request, c *infrav1.OutriggerCluster) {
		if done(c.Status.Initialization) || len(c.Finalizers) > 0 {
			b.patch(c, func() { delete(c.Labels, "example.com/kept") })
		}
	}), seenBy("cluster-metadata", "lost a label")},
	{"writes clusters for ever", afterCluster(func(b *broken, r request, c *infrav1.OutriggerCluster) {
		if done(c.Status.Initialization) && b.machinesIn(c.Namespace) == 0 && !deleting(c) && !isPaused(c, b.clusterOf(c)) && b.again(r.String()) {
			b.patchStatus(c, func() { scribble(c.Status.Conditions) })
		}
	}), seenBy("cluster-quiet", "again and again")},
}

// endpointless removes the endpoint that a user gave, and remembers it.
var endpointless = all(
	written("OutriggerCluster", func(_ client.Object, patch map[string]any) bool {
		if _, ok, _ := unstructured.NestedSlice(patch, "metadata", "finalizers"); ok {
			patch["spec"] = map[string]any{"controlPlaneEndpoint": nil}
		}
		return true
	}),
	seen(func(o client.Object) {
		o.(*infrav1.OutriggerCluster).Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}
	}, "OutriggerCluster"))

func without(annotation string) func(client.Object) {
	return func(o client.Object) {
		kept := map[string]string{}
		for k, v := range o.GetAnnotations() {
			if k != annotation {
				kept[k] = v
			}
		}
		o.SetAnnotations(kept)
	}
}

func misspeltReason(kind string) breakage {
	return misspelt(kind, reconciler.HealthyCondition,
		func(c map[string]any) { c["reason"] = "is healthy" },
		func(c *metav1.Condition) { c.Reason = reconciler.ReasonHealthy })
}

func unknownReady(kind string) breakage {
	return misspelt(kind, clusterv1.ReadyCondition,
		func(c map[string]any) {
			if c["status"] == "True" {
				c["status"] = "Unknown"
			}
		},
		func(c *metav1.Condition) {
			if c.Status == metav1.ConditionUnknown {
				c.Status = metav1.ConditionTrue
			}
		})
}

// again says, not too often, that it is time to write for no reason.
func (b *broken) again(what string) bool {
	if b.since("again "+what) < 100*time.Millisecond {
		return false
	}
	delete(b.marks, "again "+what)
	b.since("again " + what)
	return true
}

// machinesIn returns how many there are in a namespace.
func (b *broken) machinesIn(namespace string) int {
	var machines infrav1.OutriggerMachineList
	b.raw().List(context.Background(), &machines, client.InNamespace(namespace))
	return len(machines.Items)
}

// scribble changes what is not looked at while paused.
func scribble(conditions []metav1.Condition) {
	for i := range conditions {
		if conditions[i].Type == clusterv1.PausedCondition {
			conditions[i].Message = fmt.Sprint(time.Now().UnixNano())
		}
	}
}

var machineMutants = []mutant{
	{"machine provisioned for a moment", afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
		if done(m.Status.Initialization) && b.number == 1 && b.isFirst(m) && b.first("flip "+r.String()) {
			no := false
			b.patchStatus(m, func() { m.Status.Initialization.Provisioned = &no })
		}
	}), seenBy("machine-provisioned", "was true and then no more")},
	{"machine without an owner", afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
		if len(m.OwnerReferences) == 0 && !deleting(m) && b.since("unowned "+r.String()) > 100*time.Millisecond {
			b.patch(m, func() { m.Spec.ProviderID = "outrigger://fake/none" })
		}
	}), seenBy("machine-owner", "without an owner")},
	{"does not wait for the cluster", seen(func(o client.Object) {
		yes := true
		o.(*clusterv1.Cluster).Status.Initialization.InfrastructureProvisioned = &yes
	}, "Cluster"), seenBy("machine-waits-for-cluster", "before the infrastructure")},
	{"does not wait for bootstrap data", all(
		seen(func(o client.Object) {
			if m := o.(*clusterv1.Machine); m.Spec.Bootstrap.DataSecretName == nil {
				none := "none"
				m.Spec.Bootstrap.DataSecretName = &none
			}
		}, "Machine"), madeUpSecret(func(name string) bool { return name == "none" })),
		seenBy("machine-waits-for-bootstrap", "before its Machine names bootstrap data")},
	{"gives up waiting for bootstrap data", ignoringMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) bool {
		owner := b.ownerOf(r)
		if owner == nil || deleting(m) {
			return false
		}
		mark := "waits " + r.String()
		if _, waits := b.marks[mark]; waits || owner.Spec.Bootstrap.DataSecretName == nil {
			return b.since(mark) > 200*time.Millisecond
		}
		return false
	}), seenBy("machine-bootstrap-late", "not provisioned")},
	{"makes up a Secret", madeUpSecret(func(name string) bool { return true }), seenBy("machine-secret-missing", "without the Secret")},
	{"gives up waiting for the Secret", ignoringMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) bool {
		owner := b.ownerOf(r)
		if owner == nil || deleting(m) || owner.Spec.Bootstrap.DataSecretName == nil || m.Spec.ProviderID != "" {
			return false
		}
		mark := "waits " + r.String()
		_, waits := b.marks[mark]
		if waits || fetch(b, &corev1.Secret{}, client.ObjectKey{Namespace: r.Namespace, Name: *owner.Spec.Bootstrap.DataSecretName}) == nil {
			return b.since(mark) > 200*time.Millisecond
		}
		return false
	}), seenBy("machine-secret-late", "not provisioned")},
	{"waits in silence", writtenStatus("OutriggerMachine", func(_ client.Object, patch map[string]any) bool {
		silent := false
		eachCondition(patch, clusterv1.ReadyCondition, func(c map[string]any) { silent = c["reason"] == clusterv1.WaitingForBootstrapDataReason })
		return !silent
	}), seenBy("machine-wait-shown", "no condition Ready")},
	{"finalizer comes last", lateFinalizer, seenBy("machine-finalizer", "no finalizer")},
	{"makes two for a while", twins, seenBy("machine-once", "outside exist 2")},
	{"found by name", creates(func(b *broken, ctx context.Context, pod, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec, create creator) (*provider.Instance, error) {
		list, err := b.world.cloud.ListInstances(ctx, map[string]string{provider.TagPod: pod})
		if err == nil && len(list) > 0 && list[0].State == provider.StateRunning {
			list[0].Key = key
			return &list[0], nil
		}
		return create(ctx, pod, key, config, spec)
	}), seenBy("machine-same-names", "share the providerID")},
	{"providerID without a scheme", renamed(func(_ client.Object, id string) string { return id[strings.LastIndex(id, "/")+1:] }), seenBy("provider-id-format", "SCHEME://")},
	{"one providerID for all", renamed(func(m client.Object, _ string) string { return "outrigger://fake/" + m.GetNamespace() }), seenBy("provider-id-unique", "two InfraMachines have")},
	{"provisioned too early", all(
		afterMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) {
			if m.Annotations[infrav1.BeganAnnotation] != "" && m.Spec.ProviderID == "" && !done(m.Status.Initialization) && !deleting(m) && !refused(m) {
				yes := true
				b.patchStatus(m, func() {
					m.Status.Initialization.Provisioned = &yes
					m.Status.Addresses = clusterv1.MachineAddresses{{Type: clusterv1.MachineInternalIP, Address: "192.0.2.7"}}
				})
			}
		})), seenBy("machine-at-once", "before spec.providerID")},
	{"addresses come later", writtenStatus("OutriggerMachine", func(_ client.Object, patch map[string]any) bool {
		if is, _, _ := unstructured.NestedBool(patch, "status", "initialization", "provisioned"); is {
			unstructured.RemoveNestedField(patch, "status", "addresses")
		}
		return true
	}), seenBy("machine-addresses-at-once", "addresses came after")},
	{"address of an unknown type", all(
		writtenStatus("OutriggerMachine", func(_ client.Object, patch map[string]any) bool {
			list, _, _ := unstructured.NestedFieldNoCopy(patch, "status", "addresses")
			items, _ := list.([]any)
			for _, item := range items {
				if a := item.(map[string]any); a["type"] == "Hostname" {
					a["type"] = "Name"
				}
			}
			return true
		}),
		seen(func(o client.Object) {
			for i, a := range o.(*infrav1.OutriggerMachine).Status.Addresses {
				if a.Type == "Name" {
					o.(*infrav1.OutriggerMachine).Status.Addresses[i].Type = clusterv1.MachineHostName
				}
			}
		}, "OutriggerMachine")), seenBy("machine-addresses", "the type is one of")},
	{"another failure domain", all(
		writtenStatus("OutriggerMachine", func(_ client.Object, patch map[string]any) bool {
			if is, _, _ := unstructured.NestedString(patch, "status", "failureDomain"); is == "b" {
				unstructured.SetNestedField(patch, "a", "status", "failureDomain")
			}
			return true
		})), seenBy("machine-failure-domain", `is "a"`)},
	{"machine's reason with a blank", misspeltReason("OutriggerMachine"), seenBy("machine-conditions", `"is healthy": a condition reason`)},
	{"machine's Ready unknown", unknownReady("OutriggerMachine"), seenBy("machine-ready", "Ready is Unknown")},
	{"takes annotations off machines", afterMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) {
		if len(m.Finalizers) > 0 {
			b.patch(m, func() { delete(m.Annotations, "example.com/kept") })
		}
	}), seenBy("machine-metadata", "lost an annotation")},
	{"takes owners off machines", afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
		if m.Labels["example.com/kept"] != "" && done(m.Status.Initialization) && b.first("owner "+r.String()) {
			b.patch(m, func() { m.OwnerReferences = nil })
		}
	}), seenBy("machine-metadata", "lost its owner")},
	{"writes machines for ever", afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
		if m.Spec.ProviderID != "" && b.machinesIn(m.Namespace) == 1 && !deleting(m) && !isPaused(m, b.clusterOf(m)) && b.again(r.String()) {
			b.patchStatus(m, func() { scribble(m.Status.Conditions) })
		}
	}), seenBy("machine-quiet", "again and again")},
}

// madeUpSecret returns Secrets that do not exist.
func madeUpSecret(is func(name string) bool) breakage {
	return func(b *broken) {
		got := b.got
		b.got = func(key client.ObjectKey, o client.Object, err error) error {
			secret, ok := o.(*corev1.Secret)
			if !ok || !apierrors.IsNotFound(err) || !is(key.Name) {
				return got(key, o, err)
			}
			secret.Data = map[string][]byte{"value": []byte("#cloud-config\n")}
			return nil
		}
	}
}

// lateFinalizer holds the finalizer back until there is a providerID.
var lateFinalizer = all(
	written("OutriggerMachine", func(o client.Object, patch map[string]any) bool {
		m := o.(*infrav1.OutriggerMachine)
		if _, ok, _ := unstructured.NestedString(patch, "spec", "providerID"); ok {
			if !slices.Contains(m.Finalizers, infrav1.OutriggerMachineFinalizer) {
				unstructured.SetNestedStringSlice(patch, append(slices.Clone(m.Finalizers), infrav1.OutriggerMachineFinalizer), "metadata", "finalizers")
			}
		} else if m.Spec.ProviderID == "" && !deleting(m) && !refused(m) {
			unstructured.RemoveNestedField(patch, "metadata", "finalizers")
		}
		return true
	}),
	seen(func(o client.Object) {
		m := o.(*infrav1.OutriggerMachine)
		if m.Spec.ProviderID == "" && m.Annotations[infrav1.KeyAnnotation] != "" && len(m.Finalizers) == 0 && !refused(m) {
			m.Finalizers = []string{infrav1.OutriggerMachineFinalizer}
		}
	}, "OutriggerMachine"))

// twins makes a second instance, and removes it when it would be seen by more
// than the check for it.
var twins = afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
	ctx, cloud := context.Background(), b.world.cloud
	age := time.Duration(0)
	if done(m.Status.Initialization) {
		age = b.since("twin " + r.String())
	}
	var machines infrav1.OutriggerMachineList
	b.raw().List(ctx, &machines)
	if len(machines.Items) > 1 {
		b.since("several machines")
	}
	_, several := b.marks["several machines"]
	wanted := b.number == 1 && !several && age > 100*time.Millisecond && age < 2*time.Second && !deleting(m) &&
		!isPaused(m, b.clusterOf(m)) && b.isFirst(m)
	if wanted {
		cloud.CreateInstance(ctx, "twin", "twin", cloudinit.Raw("#cloud-config\n"), provider.InstanceTypeSpec{Tags: map[string]string{"twin": "yes"}})
		return
	}
	list, _ := cloud.ListInstances(ctx, map[string]string{"twin": "yes"})
	for _, i := range list {
		cloud.DeleteInstance(ctx, i.ID)
	}
})

func unfinalized(o client.Object) bool { return len(o.GetFinalizers()) == 0 }

var pauseMutants = []mutant{
	{"cluster begins while paused", unpausedWhile("OutriggerCluster", unfinalized), seenBy("pause-cluster", "while the Cluster is paused")},
	{"cluster begins though annotated", seenUnfinalized("OutriggerCluster"), seenBy("pause-cluster-annotation", "while it is paused")},
	{"cluster's pause in silence", writtenStatus("OutriggerCluster", notPaused), seenBy("pause-cluster-condition", "Paused")},
	{"cluster stays paused", pausedForEver("OutriggerCluster", func(o client.Object) bool {
		_, managed := o.GetAnnotations()[clusterv1.ManagedByAnnotation]
		return !managed && unfinalized(o)
	}), seenBy("pause-cluster-end", "not provisioned")},
	{"cluster is deleted while paused", unpausedWhile("OutriggerCluster", deleting), seenBy("pause-cluster-delete", "in deletion while the Cluster is paused")},
	{"machine begins while paused", unpausedWhile("OutriggerMachine", unfinalized), seenBy("pause-machine", "while the Cluster is paused")},
	{"machine begins though annotated", seenUnfinalized("OutriggerMachine"), seenBy("pause-machine-annotation", "while it is paused")},
	{"machine's pause in silence", writtenStatus("OutriggerMachine", notPaused), seenBy("pause-machine-condition", "Paused")},
	{"machine stays paused", pausedForEver("OutriggerMachine", unfinalized), seenBy("pause-machine-end", "not provisioned")},
	{"machine in deletion is written while paused", afterMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) {
		if deleting(m) && isPaused(m, b.clusterOf(m)) && !takenAway(m) {
			b.patch(m, func() { m.Labels["example.com/deleting"] = "yes" })
		}
	}), seenBy("pause-machine-delete", "labels was")},
	{"instance is deleted while paused", afterMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) {
		if deleting(m) && isPaused(m, b.clusterOf(m)) && !takenAway(m) {
			b.removeInstances(m)
		}
	}), seenBy("pause-machine-outside", "0 exist outside, want 1")},
}

func notPaused(_ client.Object, patch map[string]any) bool {
	is := false
	eachCondition(patch, clusterv1.PausedCondition, func(c map[string]any) { is = c["status"] == "True" })
	return !is
}

// seenUnfinalized ignores the annotation of objects that are new.
func seenUnfinalized(kind string) breakage {
	return seen(func(o client.Object) {
		if unfinalized(o) {
			without(clusterv1.PausedAnnotation)(o)
		}
	}, kind)
}

func takenAway(o client.Object) bool {
	_, is := o.GetAnnotations()[clusterctlv1.DeleteForMoveAnnotation]
	return is
}

func (b *broken) removeInstances(m *infrav1.OutriggerMachine) {
	id := m.Spec.ProviderID
	if id != "" {
		b.world.cloud.DeleteInstance(context.Background(), id[strings.LastIndex(id, "/")+1:])
	}
}

// sole is a machine that is deleted alone in an ordinary way.
func sole(b *broken, r request, m *infrav1.OutriggerMachine) bool {
	var machines infrav1.OutriggerMachineList
	b.raw().List(context.Background(), &machines)
	cluster, owner := b.clusterOf(m), b.ownerOf(r)
	_, ofPool := m.Labels[clusterv1.MachinePoolNameLabel]
	return b.number == 1 && !ofPool && len(machines.Items) == 1 && slices.Equal(m.Finalizers, []string{infrav1.OutriggerMachineFinalizer}) && b.isFirst(m) && deleting(m) &&
		cluster != nil && !deleting(cluster) && !isPaused(m, cluster) && owner != nil && deleting(owner) && m.Spec.ProviderID != ""
}

var deleteMutants = []mutant{
	{"cluster stays", ignoringCluster(func(b *broken, _ request, c *infrav1.OutriggerCluster) bool {
		var machines clusterv1.MachineList
		b.raw().List(context.Background(), &machines, client.InNamespace(c.Namespace))
		cluster := b.clusterOf(c)
		return deleting(c) && cluster != nil && !deleting(cluster) && !isPaused(c, cluster) && len(machines.Items) == 0
	}), seenBy("delete-cluster", "is gone; at last")},
	{"cluster stays without its owner", ignoringCluster(func(b *broken, _ request, c *infrav1.OutriggerCluster) bool {
		return deleting(c) && b.clusterOf(c) == nil
	}), seenBy("delete-cluster-without-owner", "is gone; at last")},
	{"cluster stays with its owner", ignoringCluster(func(b *broken, _ request, c *infrav1.OutriggerCluster) bool {
		cluster := b.clusterOf(c)
		return deleting(c) && cluster != nil && deleting(cluster)
	}), seenBy("delete-cluster-all", "the Cluster is still there")},
	{"machine stays in a cluster in deletion", ignoringMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) bool {
		c := b.infraClusterOf(request{NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: m.Labels[clusterv1.ClusterNameLabel]}})
		return deleting(m) && c != nil && deleting(c)
	}), seenBy("delete-cluster-first", "the InfraMachine")},
	{"machine stays", ignoringMachine(sole), seenBy("delete-machine", "is gone; at last")},
	{"machine leaks", reconciles("OutriggerMachine", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		m := b.machineOf(r)
		if m != nil && sole(b, r, m) {
			if b.since("deletion of "+r.String()) < time.Second { // a manager that is restarted has ended by then
				return reconcile.Result{RequeueAfter: time.Second}, nil
			}
			b.patch(m, func() { m.Finalizers = nil })
			return reconcile.Result{}, nil
		}
		return next()
	}), seenBy("delete-machine", "nothing is left outside")},
	{"machine stays before its cluster", ignoringMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) bool {
		cluster := b.clusterOf(m)
		return deleting(m) && cluster != nil && cluster.Status.Initialization.InfrastructureProvisioned == nil && b.isFirst(m) && !takenAway(m)
	}), seenBy("delete-machine-early", "the InfraMachine")},
	{"machine stays without bootstrap data", ignoringMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) bool {
		owner := b.ownerOf(r)
		return deleting(m) && owner != nil && owner.Spec.Bootstrap.DataSecretName == nil
	}), seenBy("delete-machine-without-bootstrap", "the InfraMachine")},
	{"machine leaks while it is made", reconciles("OutriggerMachine", func(b *broken, _ context.Context, r request, next next) (reconcile.Result, error) {
		m := b.machineOf(r)
		if m != nil && deleting(m) && m.Spec.ProviderID == "" && m.Annotations[infrav1.BeganAnnotation] != "" {
			b.patch(m, func() { m.Finalizers = nil })
			return reconcile.Result{}, nil
		}
		return next()
	}), seenBy("delete-machine-while-made", "nothing is left outside")},
	{"machine stays without its cluster", ignoringMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) bool {
		c := b.infraClusterOf(request{NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: m.Labels[clusterv1.ClusterNameLabel]}})
		return deleting(m) && c == nil
	}), seenBy("delete-machine-orphan", "the InfraMachine")},
	{"machine is Ready to the end", writtenStatus("OutriggerMachine", func(o client.Object, _ map[string]any) bool { return !deleting(o) }),
		seenBy("delete-machine-ready", "in deletion with a condition Ready")},
	{"takes all finalizers off", written("OutriggerMachine", func(o client.Object, patch map[string]any) bool {
		if deleting(o) {
			unstructured.SetNestedField(patch, nil, "metadata", "finalizers")
		}
		return true
	}), seenBy("delete-machine-finalizers", "removed that too")},
	{"deletes all instances", func(b *broken) {
		remove := b.remove
		b.remove = func(ctx context.Context, id string) error {
			ids, _ := b.world.inventory(ctx)
			for _, other := range ids {
				b.world.cloud.DeleteInstance(ctx, other)
			}
			return remove(ctx, id)
		}
	}, seenBy("delete-machine-other", "0 exist outside, want 1")},
}

var moveMutants = []mutant{
	{"writes into what is moved away", afterMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) {
		if takenAway(m) && !deleting(m) {
			b.patch(m, func() { m.Labels["example.com/moved"] = "yes" })
		}
	}), seenBy("move-source", "labels was")},
	{"does not know what comes", ignoringMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) bool {
		return !b.isFirst(m) && !deleting(m) && m.Spec.ProviderID != "" && !done(m.Status.Initialization)
	}), seenBy("move-rebuilt", "not provisioned")},
	{"makes what comes again", afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
		if !b.isFirst(m) && !deleting(m) && b.first("again "+r.String()) {
			b.second(m)
		}
	}), seenBy("move-same-machine", "2 exist outside, want 1")},
	{"does not delete what came", ignoringMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) bool {
		return !b.isFirst(m) && deleting(m)
	}), seenBy("move-delete", "the InfraMachine")},
	{"believes its status", ignoringMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) bool {
		first := b.isFirst(m)
		if done(m.Status.Initialization) {
			b.since("was " + r.String())
			return false
		}
		_, was := b.marks["was "+r.String()]
		return was && first && !deleting(m)
	}), seenBy("status-lost", "not provisioned")},
}

// second makes another instance for a machine.
func (b *broken) second(m *infrav1.OutriggerMachine) {
	key := m.Annotations[infrav1.KeyAnnotation]
	spec := provider.InstanceTypeSpec{Tags: map[string]string{provider.TagKey: key, provider.TagPod: m.Name}}
	if _, err := b.world.cloud.CreateInstance(context.Background(), m.Name, key+"-2", cloudinit.Raw("#cloud-config\n"), spec); err != nil {
		b.world.t.Errorf("the mutant cannot make a second instance: %v", err)
	}
}

var restartMutants = []mutant{
	{"forgets who waits", ignoringMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) bool {
		return b.number > 1 && !unfinalized(m) && m.Annotations[infrav1.BeganAnnotation] == "" && !deleting(m)
	}), seenBy("restart-waiting", "not provisioned")},
	{"begins again", creates(func(b *broken, ctx context.Context, pod, key string, config cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec, create creator) (*provider.Instance, error) {
		if list, _ := b.world.cloud.ListInstances(ctx, map[string]string{provider.TagKey: key}); b.number > 1 && len(list) > 0 {
			instance, err := create(ctx, pod, key+"-2", config, spec)
			if instance != nil {
				instance.Key = key
			}
			return instance, err
		}
		return create(ctx, pod, key, config, spec)
	}), seenBy("restart-while-made", "2 exist outside, want 1")},
	{"greets all machines", afterMachine(func(b *broken, r request, m *infrav1.OutriggerMachine) {
		if b.number > 1 && done(m.Status.Initialization) && !deleting(m) && b.first("greeted "+r.String()) {
			b.patch(m, func() { m.Labels["example.com/seen"] = "yes" })
		}
	}), seenBy("restart-provisioned", "labels was")},
	{"forgets deletions", ignoringMachine(func(b *broken, _ request, m *infrav1.OutriggerMachine) bool {
		return b.number > 1 && deleting(m)
	}), seenBy("restart-deleting", "the InfraMachine")},
}

// admits replaces the webhook of templates.
func admits(f func(before, after *unstructured.Unstructured, dryRun bool) error) breakage {
	return func(b *broken) { b.admit = f }
}

func sameSpec(before, after *unstructured.Unstructured) bool {
	return fmt.Sprint(before.Object["spec"]) == fmt.Sprint(after.Object["spec"])
}

var errRefused = errors.New("refused")

var templateMutants = []mutant{
	{"not for machines from templates", ignoringMachine(func(_ *broken, _ request, m *infrav1.OutriggerMachine) bool {
		return m.Annotations[clusterv1.TemplateClonedFromNameAnnotation] != "" && !deleting(m)
	}), seenBy("template-makes", "not provisioned")},
	{"templates cannot change at all", admits(func(before, after *unstructured.Unstructured, dryRun bool) error {
		if sameSpec(before, after) {
			return errRefused
		}
		return admitted(before, after, dryRun)
	}), seenBy("template-metadata", "cannot become the owner")},
	{"templates change", admits(func(before, after *unstructured.Unstructured, dryRun bool) error {
		if _, annotated := after.GetAnnotations()[clusterv1.TopologyDryRunAnnotation]; !annotated {
			return nil
		}
		return admitted(before, after, dryRun)
	}), seenBy("template-immutable", "can be changed in place")},
	{"dry runs are refused", admits(func(before, after *unstructured.Unstructured, _ bool) error {
		if !sameSpec(before, after) {
			return errRefused
		}
		return nil
	}), seenBy("template-dry-run", "is refused")},
	{"the annotation is enough", admits(func(before, after *unstructured.Unstructured, dryRun bool) error {
		_, annotated := after.GetAnnotations()[clusterv1.TopologyDryRunAnnotation]
		return admitted(before, after, dryRun || annotated)
	}), seenBy("template-dry-run-only", "not a dry run")},
}
