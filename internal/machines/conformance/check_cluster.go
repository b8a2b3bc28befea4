// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

func checkClusterProvisioned(r *run) {
	p := r.newFixture()
	h := p.record(p.Objects.Cluster)
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.settle(p.infraCluster)
	p.wantForEver(h)
}

// wantForEver: core never reads it again, others do.
func (p *fixture) wantForEver(h *history) {
	p.Helper()
	was := false
	for _, u := range h.all() {
		if was && !provisioned(u) {
			p.Errorf("status.initialization.provisioned of %s was true and then no more: report later failures in conditions", named(u))
			return
		}
		was = was || provisioned(u)
	}
}

func checkClusterEndpoint(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	c := &clusterv1.Cluster{}
	p.get(p.Context(), c, p.cluster)
	if endpoint := endpointOf(p.infraCluster()); !endpoint.IsValid() && !c.Spec.ControlPlaneEndpoint.IsValid() {
		r.Errorf("the InfraCluster is provisioned, spec.controlPlaneEndpoint is %q, and the Cluster has none: nobody can reach the control plane", endpoint.String())
	}
}

func checkClusterOwner(r *run) {
	p := r.newFixture()
	p.alone = true
	p.wantUntouched("without an owner", p.addInfra(p.Objects.Cluster, p.cluster, nil))
}

// wantUntouched fails if anything is written into an object after the given
// state. Pass what the API server returned at its creation: a later read may be
// of a changed object.
func (p *fixture) wantUntouched(when string, before *unstructured.Unstructured) {
	p.Helper()
	if before == nil {
		p.Fatalf("%s the object is gone", when)
	}
	p.while("an object was written "+when, func() string { return touched(before, p.read(before, before.GetName())) })
}

// ownedByCluster makes the Cluster the owner at once, as core may have before.
func (p *fixture) ownedByCluster(o client.Object) { p.ownedBy(&clusterv1.Cluster{}, p.cluster, o) }

func (p *fixture) ownedByMachine(o client.Object) { p.ownedBy(&clusterv1.Machine{}, o.GetName(), o) }

func (p *fixture) ownedBy(owner client.Object, name string, o client.Object) {
	p.Helper()
	if !p.get(p.Context(), owner, name) {
		p.Fatalf("there is no %s to own %s", named(owner), named(o))
	}
	if err := controllerutil.SetOwnerReference(owner, o, p.Client.Scheme()); err != nil {
		p.Fatalf("own %s: %v", named(o), err)
	}
}

func checkClusterFinalizer(r *run) {
	p := r.newFixture()
	h := p.record(p.Objects.Cluster)
	p.addCluster(nil)
	if u := p.untilSeen(h, "the InfraCluster is provisioned", provisioned); len(u.GetFinalizers()) == 0 {
		r.Errorf("the InfraCluster was provisioned while it had no finalizer: deleted then, it would have left behind what there is")
	}
}

func checkClusterManaged(r *run) {
	p := r.newFixture()
	made := p.addCluster(nil, annotated(clusterv1.ManagedByAnnotation, "conformance"), p.ownedByCluster)
	p.wantUntouched("although somebody else manages it (annotation "+clusterv1.ManagedByAnnotation+")", made)
}

func checkClusterDomains(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	domains, ok, err := unstructured.NestedSlice(p.infraCluster().Object, "status", "failureDomains")
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
}

func checkClusterConditions(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	if wrong := malformed(p.infraCluster()); wrong != "" {
		r.Errorf("%s", wrong)
	}
}

func checkClusterReady(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.until(p.Limits.Provision, "the condition Ready of the InfraCluster is True", func() string {
		return lacksCondition(p.infraCluster(), clusterv1.ReadyCondition, metav1.ConditionTrue)
	})
}

func checkClusterQuiet(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.wantQuiet("InfraCluster", p.infraCluster)
}

// checkAllQuiet: objects that depend on each other must not cause endless
// writes.
func checkAllQuiet(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	names := []string{"m-" + unique(), "m-" + unique()}
	for _, name := range names {
		p.addMachine(name)
	}
	for _, name := range names {
		p.untilProvisioned(name)
		p.settle(p.machineReader(name))
	}
	p.wantQuiet("InfraCluster with machines", p.infraCluster)
	for _, name := range names {
		p.wantQuiet("InfraMachine beside another", p.machineReader(name))
	}
}

// settle gives a provider time to stop writing.
func (p *fixture) settle(read func() *unstructured.Unstructured) {
	p.Helper()
	for range 3 {
		if !p.writtenWithin(read(), read) {
			return
		}
	}
}

// wantQuiet waits until nothing is written into an object for a while. Endless
// writes are a hot loop.
func (p *fixture) wantQuiet(what string, read func() *unstructured.Unstructured) {
	p.Helper()
	for range 3 {
		before := read()
		if !p.writtenWithin(before, read) {
			return
		}
	}
	p.Fatalf("the %s is written again and again though nothing changes: within %s each its resourceVersion changed three times", what, p.Limits.Quiet)
}

func (p *fixture) writtenWithin(before *unstructured.Unstructured, read func() *unstructured.Unstructured) bool {
	p.Helper()
	return p.poll(p.Context(), p.Limits.Quiet, func() string {
		if now := read(); now == nil || before == nil || now.GetResourceVersion() == before.GetResourceVersion() {
			return "not written"
		}
		return ""
	}) == ""
}

func checkClusterDelete(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.deleteInfraCluster()
	p.untilInfraClusterGone()
}

// checkClusterDeleteWithoutOwner: everything else may be gone already.
func checkClusterDeleteWithoutOwner(r *run) {
	p := r.newFixture()
	p.addCluster(nil)
	p.untilClusterProvisioned()
	p.alone = true
	p.vanish(p.Context(), &clusterv1.Cluster{}, p.cluster)
	p.deleteInfraCluster()
	p.untilInfraClusterGone()
}

func checkClusterDeleteAll(r *run) {
	p := r.newFixture()
	p.provisionedMachine("m-" + unique())
	p.delete(&clusterv1.Cluster{}, p.cluster)
	p.until(p.Limits.Delete, "the Cluster is gone with its machines", func() string {
		c := &clusterv1.Cluster{}
		if !p.get(p.Context(), c, p.cluster) {
			return ""
		}
		return "the Cluster is still there, and " + p.stillThere()
	})
	p.wantNothingOutside()
}

// stillThere names the infrastructure of the place.
func (p *fixture) stillThere() string {
	return fmt.Sprintf("InfraMachines %s, InfraCluster %s", p.names(p.Objects.Machine), p.names(p.Objects.Cluster))
}

func (p *fixture) names(kind *unstructured.Unstructured) (names []string) {
	p.each(p.Context(), listOf(kind), func(o client.Object) { names = append(names, o.GetName()) })
	return names
}

func checkClusterMetadataKept(r *run) {
	p := r.newFixture()
	p.addCluster(nil, annotated("example.com/kept", "a"), labelled("example.com/kept", "l"), p.ownedByCluster)
	p.untilClusterProvisioned()
	p.wantMetadata(p.infraCluster())
}

// wantMetadata: labels, annotations and owners of others must stay.
func (p *fixture) wantMetadata(u *unstructured.Unstructured) {
	p.Helper()
	switch {
	case u == nil:
		p.Errorf("the object is gone")
	case u.GetAnnotations()["example.com/kept"] != "a":
		p.Errorf("%s has lost an annotation of somebody else: %v", named(u), u.GetAnnotations())
	case u.GetLabels()["example.com/kept"] != "l":
		p.Errorf("%s has lost a label of somebody else: %v", named(u), u.GetLabels())
	case len(u.GetOwnerReferences()) == 0:
		p.Errorf("%s has lost its owner: clusterctl move and the garbage collector rely on it", named(u))
	}
}

// wantOwners looks for a moment without an owner: core would give it again.
func (p *fixture) wantOwners(h *history) {
	p.Helper()
	had := false
	for _, u := range h.all() {
		has := len(u.GetOwnerReferences()) > 0
		if had && !has {
			p.Errorf("%s has lost its owner: clusterctl move and the garbage collector rely on it", named(u))
			return
		}
		had = has
	}
}

// untilPaused waits for the condition.
func (p *fixture) untilPaused(ctx context.Context, read func() *unstructured.Unstructured, status metav1.ConditionStatus) {
	p.Helper()
	p.until(p.Limits.Provision, "the condition Paused is "+string(status), func() string {
		return lacksCondition(read(), clusterv1.PausedCondition, status)
	})
}
