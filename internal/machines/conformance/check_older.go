// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiversion "k8s.io/apimachinery/pkg/version"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

var olderChecks = []Check{
	{"older-contract-ready", "Where contract v1beta1 is served, status.ready, spec.providerID and spec.controlPlaneEndpoint say there what v1beta2 says.", nil, func(r *run) {
		fx, name, cluster, machine := r.olderPair()
		for _, u := range []*unstructured.Unstructured{cluster, machine} {
			if ready, _, _ := unstructured.NestedBool(u.Object, "status", "ready"); !ready {
				r.Errorf("%s is provisioned, and status.ready in version %s is not true: an older core waits for it", u.GetKind(), u.GroupVersionKind().Version)
			}
		}
		if got, want := providerID(machine), providerID(fx.infra(name)); got != want {
			r.Errorf("spec.providerID in version %s is %q, not %q", machine.GroupVersionKind().Version, got, want)
		}
		if got, want := endpointOf(cluster), endpointOf(fx.infraCluster()); got != want {
			r.Errorf("spec.controlPlaneEndpoint in version %s is %q, not %q", cluster.GroupVersionKind().Version, got.String(), want.String())
		}
	}},
	{"older-contract-failure", "Where contract v1beta1 is served, what is well has neither status.failureReason nor status.failureMessage.", nil, func(r *run) {
		// An older core gives up what has one of them.
		_, _, cluster, machine := r.olderPair()
		for _, u := range []*unstructured.Unstructured{cluster, machine} {
			for _, field := range []string{"failureReason", "failureMessage"} {
				if is := text(u, "status", field); is != "" {
					r.Errorf("%s is well, and status.%s in version %s is %q: an older core gives it up for ever", u.GetKind(), field, u.GroupVersionKind().Version, is)
				}
			}
		}
	}},
	{"older-contract-domains", "Where contract v1beta1 is served, status.failureDomains is a map there, and spec.failureDomain of an InfraMachine says where it is.", nil, func(r *run) {
		r.olderVersion(r.Objects.Cluster)
		r.olderVersion(r.Objects.Machine)
		fx, name := r.provisionedCluster(), "m-"+unique()
		want := fx.lastDomain()
		domains, _, err := unstructured.NestedMap(fx.older(fx.Objects.Cluster, fx.cluster).Object, "status", "failureDomains")
		if _, there := domains[want]; err != nil || !there {
			r.Errorf("status.failureDomains of the InfraCluster in contract v1beta1 is not a map with %q: %v", want, domains)
		}
		fx.addSecret(name)
		fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName, m.Spec.FailureDomain = &name, want })
		fx.untilProvisioned(name)
		is := text(fx.infra(name), "status", "failureDomain")
		if got := text(fx.older(fx.Objects.Machine, name), "spec", "failureDomain"); got != is {
			r.Errorf("status.failureDomain is %q, and spec.failureDomain of the InfraMachine in contract v1beta1 is %q", is, got)
		}
	}},
}

// olderLabel is that of contract v1beta1, which core before 1.11 reads.
const olderLabel = "cluster.x-k8s.io/v1beta1"

// olderVersion returns the version of a kind that core of the older contract
// uses; without one the check is skipped.
func (r *run) olderVersion(kind *unstructured.Unstructured) string {
	crd := r.crdOf(kind)
	label := crd.GetLabels()[olderLabel]
	if label == "" {
		r.Skipf("not checked: %s has no label %s, so no older core is served", crd.GetName(), olderLabel)
	}
	version := slices.MaxFunc(strings.Split(label, "_"), apiversion.CompareKubeAwareVersionStrings)
	if v := versionOf(crd, version); v == nil || v["served"] != true {
		r.Fatalf("%s: label %s names %q, which is not served", crd.GetName(), olderLabel, version)
	}
	return version
}

// older returns an object as core of the older contract reads it.
func (fx *fixture) older(kind *unstructured.Unstructured, name string) *unstructured.Unstructured {
	gvk := kind.GroupVersionKind()
	gvk.Version = fx.olderVersion(kind)
	u := fx.read(empty(gvk), name)
	if u == nil {
		fx.Fatalf("there is no %s %s in version %s", gvk.Kind, name, gvk.Version)
	}
	return u
}

// olderPair returns a cluster and a machine that are provisioned, in the older
// contract.
func (r *run) olderPair() (fx *fixture, name string, cluster, machine *unstructured.Unstructured) {
	r.olderVersion(r.Objects.Cluster)
	r.olderVersion(r.Objects.Machine)
	fx, name, _ = r.machine()
	return fx, name, fx.older(fx.Objects.Cluster, fx.cluster), fx.older(fx.Objects.Machine, name)
}
