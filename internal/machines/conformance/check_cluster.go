// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

var clusterChecks = []Check{
	{"cluster-provisioned", "An InfraCluster that has an owner gets status.initialization.provisioned, for ever.", nil, func(r *run) {
		fx := r.newFixture()
		h := fx.record(fx.Objects.Cluster)
		fx.addCluster(nil)
		fx.untilClusterProvisioned()
		fx.settle(fx.infraCluster)
		fx.wantForEver(h)
	}},
	{"cluster-endpoint", "An InfraCluster that is provisioned has spec.controlPlaneEndpoint, unless the Cluster has one.", nil, func(r *run) {
		fx := r.provisionedCluster()
		c := &clusterv1.Cluster{}
		fx.get(fx.Context(), c, fx.cluster)
		if endpoint := endpointOf(fx.infraCluster()); !endpoint.IsValid() && !c.Spec.ControlPlaneEndpoint.IsValid() {
			r.Errorf("the InfraCluster is provisioned, spec.controlPlaneEndpoint is %q, and the Cluster has none: nobody can reach the control plane", endpoint.String())
		}
	}},
	{"cluster-owner", "An InfraCluster without an owner is left alone.", nil, func(r *run) {
		fx := r.newFixture()
		fx.alone = true
		fx.wantUntouched("without an owner", fx.addInfra(fx.Objects.Cluster, fx.cluster, nil))
	}},
	{"cluster-finalizer", "An InfraCluster has a finalizer before it is provisioned.", nil, func(r *run) {
		fx := r.newFixture()
		h := fx.record(fx.Objects.Cluster)
		fx.addCluster(nil)
		if u := fx.untilSeen(h, "the InfraCluster is provisioned", provisioned); len(u.GetFinalizers()) == 0 {
			r.Errorf("the InfraCluster was provisioned while it had no finalizer: deleted then, it would have left behind what there is")
		}
	}},
	{"cluster-managed-by", "An InfraCluster with the annotation cluster.x-k8s.io/managed-by is left alone, its status too.", nil, func(r *run) {
		fx := r.newFixture()
		made := fx.addCluster(nil, annotated(clusterv1.ManagedByAnnotation, "conformance"), fx.ownedByCluster)
		fx.wantUntouched("although somebody else manages it (annotation "+clusterv1.ManagedByAnnotation+")", made)
	}},
	{"cluster-failure-domains", "status.failureDomains is a list without two of a name.", nil, func(r *run) {
		fx := r.provisionedCluster()
		domains, ok, err := unstructured.NestedSlice(fx.infraCluster().Object, "status", "failureDomains")
		if err != nil {
			r.Fatalf("status.failureDomains is not a list: %v", err)
		}
		if !ok {
			r.Skipf("not checked: the InfraCluster has no status.failureDomains")
		}
		seen := map[string]bool{}
		for _, item := range domains {
			domain, _ := item.(map[string]any)
			name, _ := domain["name"].(string)
			if name == "" || seen[name] {
				r.Errorf("status.failureDomains has a name that is empty or there twice: %q in %v", name, domains)
			}
			seen[name] = true
		}
	}},
	{"cluster-conditions", "Conditions of an InfraCluster have the shape of metav1.Condition.", nil, func(r *run) {
		r.wantConditions(r.provisionedCluster().infraCluster())
	}},
	{"cluster-ready", "The condition Ready of an InfraCluster that is well is True.", nil, func(r *run) {
		fx := r.provisionedCluster()
		fx.untilCondition(fx.infraCluster, clusterv1.ReadyCondition, metav1.ConditionTrue)
	}},
	{"cluster-metadata", "Labels, annotations and owners that others gave an InfraCluster stay.", nil, func(r *run) {
		fx := r.newFixture()
		fx.addCluster(nil, annotated("example.com/kept", "a"), labelled("example.com/kept", "l"), fx.ownedByCluster)
		fx.untilClusterProvisioned()
		fx.wantMetadata(fx.infraCluster())
	}},
	{"cluster-quiet", "An InfraCluster that is provisioned is not written while nothing changes.", nil, func(r *run) {
		fx := r.provisionedCluster()
		fx.wantQuiet("InfraCluster", fx.infraCluster)
	}},
	{"cluster-with-machines-quiet", "Neither an InfraCluster with machines nor its InfraMachines are written while nothing changes.", nil, func(r *run) {
		// Objects that depend on each other must not cause endless writes.
		fx, names := r.twoMachines()
		for _, name := range names {
			fx.settle(fx.machineReader(name))
		}
		fx.wantQuiet("InfraCluster with machines", fx.infraCluster)
		for _, name := range names {
			fx.wantQuiet("InfraMachine beside another", fx.machineReader(name))
		}
	}},
}

// wantForEver: core never reads it again, others do.
func (fx *fixture) wantForEver(h *history) {
	was := false
	for _, u := range h.all() {
		if was && !provisioned(u) {
			fx.Errorf("status.initialization.provisioned of %s was true and then no more: report later failures in conditions", named(u))
			return
		}
		was = was || provisioned(u)
	}
}

// wantUntouched fails if anything is written into an object after the given
// state. Pass what the API server returned at its creation: a later read may be
// of a changed object.
func (fx *fixture) wantUntouched(when string, before *unstructured.Unstructured) {
	if before == nil {
		fx.Fatalf("%s the object is gone", when)
	}
	fx.while("an object was written "+when, func() string { return touched(before, fx.read(before, before.GetName())) })
}

// ownedByCluster makes the Cluster the owner at once, as core may have before.
func (fx *fixture) ownedByCluster(o client.Object) { fx.ownedBy(&clusterv1.Cluster{}, fx.cluster, o) }

func (fx *fixture) ownedByMachine(o client.Object) { fx.ownedBy(&clusterv1.Machine{}, o.GetName(), o) }

func (fx *fixture) ownedBy(owner client.Object, name string, o client.Object) {
	if !fx.get(fx.Context(), owner, name) {
		fx.Fatalf("there is no %s to own %s", named(owner), named(o))
	}
	if err := controllerutil.SetOwnerReference(owner, o, fx.Client.Scheme()); err != nil {
		fx.Fatalf("own %s: %v", named(o), err)
	}
}

// settle gives a provider time to stop writing.
func (fx *fixture) settle(read func() *unstructured.Unstructured) {
	for range 3 {
		if !fx.writtenWithin(read(), read) {
			return
		}
	}
}

// wantQuiet waits until nothing is written into an object for a while. Endless
// writes are a hot loop.
func (fx *fixture) wantQuiet(what string, read func() *unstructured.Unstructured) {
	for range 3 {
		before := read()
		if !fx.writtenWithin(before, read) {
			return
		}
	}
	fx.Fatalf("the %s is written again and again though nothing changes: within %s each its resourceVersion changed three times", what, fx.Limits.Quiet)
}

func (fx *fixture) writtenWithin(before *unstructured.Unstructured, read func() *unstructured.Unstructured) bool {
	return fx.poll(fx.Context(), fx.Limits.Quiet, func() string {
		if now := read(); now == nil || before == nil || now.GetResourceVersion() == before.GetResourceVersion() {
			return "not written"
		}
		return ""
	}) == ""
}

func (fx *fixture) stillThere() string {
	return fmt.Sprintf("InfraMachines %s, InfraCluster %s", fx.names(fx.Objects.Machine), fx.names(fx.Objects.Cluster))
}

func (fx *fixture) names(kind *unstructured.Unstructured) (names []string) {
	fx.each(fx.Context(), listOf(kind), func(o client.Object) { names = append(names, o.GetName()) })
	return names
}

func (fx *fixture) wantMetadata(u *unstructured.Unstructured) {
	switch {
	case u == nil:
		fx.Errorf("the object is gone")
	case u.GetAnnotations()["example.com/kept"] != "a":
		fx.Errorf("%s has lost an annotation of somebody else: %v", named(u), u.GetAnnotations())
	case u.GetLabels()["example.com/kept"] != "l":
		fx.Errorf("%s has lost a label of somebody else: %v", named(u), u.GetLabels())
	case len(u.GetOwnerReferences()) == 0:
		fx.Errorf("%s has lost its owner: clusterctl move and the garbage collector rely on it", named(u))
	}
}

// wantOwners looks for a moment without an owner: core would give it again.
func (fx *fixture) wantOwners(h *history) {
	had := false
	for _, u := range h.all() {
		has := len(u.GetOwnerReferences()) > 0
		if had && !has {
			fx.Errorf("%s has lost its owner: clusterctl move and the garbage collector rely on it", named(u))
			return
		}
		had = has
	}
}

func (fx *fixture) untilCondition(read func() *unstructured.Unstructured, kind string, status metav1.ConditionStatus) {
	fx.until(fx.Limits.Provision, "the condition "+kind+" is "+string(status), func() string {
		return lacksCondition(read(), kind, status)
	})
}
