// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var machineChecks = []Check{
	{"machine-provisioned", "An InfraMachine with an owner, a cluster and bootstrap data gets spec.providerID and status.initialization.provisioned, for ever.", nil, func(r *run) {
		fx, name := r.newFixture(), "m-"+unique()
		h := fx.record(fx.Objects.Machine)
		fx.provisionedMachine(name)
		fx.settle(fx.machineReader(name))
		fx.wantForEver(h)
	}},
	{"machine-owner", "No machine is made for an InfraMachine without an owner.", nil, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.alone = true
		fx.addInfra(fx.Objects.Machine, name, nil)
		fx.wantNoMachine("without an owner", name)
	}},
	{"machine-waits-for-cluster", "No machine is made before the Cluster's status.initialization.infrastructureProvisioned.", nil, func(r *run) {
		fx, name := r.newFixture(), "m-"+unique()
		fx.addCluster(nil, waiting...)
		fx.addMachine(name, fx.ownedByMachine)
		fx.wantNoMachine("before the infrastructure of its cluster is provisioned", name)
		infra := empty(fx.Objects.Cluster.GroupVersionKind())
		fx.patch(infra, fx.cluster, func() {
			apply(infra, []change{unannotated(clusterv1.PausedAnnotation), unannotated(clusterv1.ManagedByAnnotation)})
		})
		fx.untilProvisioned(name)
	}},
	{"machine-waits-for-bootstrap", "No machine is made before the Machine's spec.bootstrap.dataSecretName is set.", nil, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachineWith(name, nil, fx.ownedByMachine)
		fx.wantNoMachine("before its Machine names bootstrap data", name)
	}},
	{"machine-bootstrap-late", "A machine is made when spec.bootstrap.dataSecretName comes late.", nil, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachineWith(name, nil, fx.ownedByMachine)
		fx.while("the wait for bootstrap data", func() string { return "" })
		fx.addSecret(name)
		m := &clusterv1.Machine{}
		fx.patch(m, name, func() { m.Spec.Bootstrap.DataSecretName = &name })
		fx.untilProvisioned(name)
	}},
	{"machine-secret-missing", "No machine is made while the bootstrap Secret does not exist.", nil, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name }, fx.ownedByMachine)
		fx.wantNoMachine("without the Secret with its bootstrap data", name)
	}},
	{"machine-secret-late", "A machine is made when the bootstrap Secret comes after its name.", nil, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name }, fx.ownedByMachine)
		fx.while("the wait for the Secret", func() string { return "" })
		fx.addSecret(name)
		fx.untilProvisioned(name)
	}},
	{"machine-wait-shown", "The condition Ready of an InfraMachine that waits says for what.", nil, func(r *run) {
		fx, name := r.provisionedCluster(), "m-"+unique()
		fx.addMachineWith(name, nil, fx.ownedByMachine)
		fx.until(fx.Limits.Provision, "the condition Ready of an InfraMachine that waits for bootstrap data says so", func() string {
			infra := fx.infra(name)
			if c := condition(infra, clusterv1.ReadyCondition); c != nil && c.Status == metav1.ConditionTrue {
				return "condition Ready is True"
			} else if c == nil || c.Reason == "" {
				return "there is no condition Ready with a reason"
			}
			return ""
		})
	}},
	{"machine-finalizer", "An InfraMachine has a finalizer before anything exists outside.", nil, func(r *run) {
		fx, name := r.newFixture(), "m-"+unique()
		h := fx.record(fx.Objects.Machine)
		fx.addCluster(nil)
		fx.addMachine(name)
		if r.Inventory != nil {
			fx.until(fx.Limits.Provision, "something exists outside", func() string {
				if len(fx.inventory()) == 0 {
					return "nothing does"
				}
				return ""
			})
			if infra := fx.infra(name); len(infra.GetFinalizers()) == 0 {
				r.Errorf("something exists outside while the InfraMachine has no finalizer: deleted now, it would leave that behind")
			}
		}
		first := fx.untilSeen(h, "the InfraMachine has a providerID", func(u *unstructured.Unstructured) bool { return providerID(u) != "" })
		if len(first.GetFinalizers()) == 0 {
			r.Errorf("the InfraMachine had a providerID before it had a finalizer: deleted then, it would have left the machine behind")
		}
	}},
	{"machine-once", "One InfraMachine makes one machine.", []need{needsInventory}, func(r *run) {
		fx, name, _ := r.machine()
		fx.settle(fx.machineReader(name))
		if got := r.inventory(); len(got) != 1 {
			r.Errorf("one machine is provisioned, and outside exist %d: %v (the inventory is to name each machine once, and nothing else)", len(got), got)
		}
	}},
	{"machine-same-names", "Machines of clusters of the same name in two namespaces are not mixed up.", nil, func(r *run) {
		cluster, name := "c-"+unique(), "m-"+unique()
		a, b := r.newFixtureNamed(cluster), r.newFixtureNamed(cluster)
		a.provisionedMachine(name)
		b.provisionedMachine(name)
		if id, other := providerID(a.infra(name)), providerID(b.infra(name)); id == other {
			r.Errorf("machines of the same name in two namespaces share the providerID %s", id)
		}
	}},
	{"provider-id-format", "spec.providerID has the form SCHEME://..., up to 512 characters.", nil, func(r *run) {
		_, _, infra := r.machine()
		if id := providerID(infra); !providerIDForm.MatchString(id) || len(id) > 512 {
			r.Errorf("spec.providerID is %q, not SCHEME://... of up to 512 characters: no Node would be found by it", id)
		}
	}},
	{"provider-id-unique", "Two InfraMachines have different providerIDs.", nil, func(r *run) {
		fx, names := r.twoMachines()
		if a, b := providerID(fx.infra(names[0])), providerID(fx.infra(names[1])); a == b {
			r.Errorf("two InfraMachines have the providerID %s", a)
		}
	}},
	{"machine-at-once", "spec.providerID is set when status.initialization.provisioned is.", nil, func(r *run) {
		// Core reads what there is once provisioned is set, and never again.
		fx, name := r.newFixture(), "m-"+unique()
		h := fx.record(fx.Objects.Machine)
		fx.addCluster(nil)
		fx.addMachine(name)
		first := fx.untilSeen(h, "the InfraMachine is provisioned", provisioned)
		if providerID(first) == "" {
			r.Errorf("status.initialization.provisioned was set before spec.providerID")
		}
	}},
	{"machine-addresses-at-once", "status.addresses, if any, are set when status.initialization.provisioned is.", nil, func(r *run) {
		fx, name := r.newFixture(), "m-"+unique()
		h := fx.record(fx.Objects.Machine)
		fx.addCluster(nil)
		fx.addMachine(name)
		first := fx.untilSeen(h, "the InfraMachine is provisioned", provisioned)
		fx.untilProvisioned(name)
		fx.settle(fx.machineReader(name))
		if last := fx.infra(name); len(addresses(first)) == 0 && len(addresses(last)) > 0 {
			r.Errorf("status.addresses came after status.initialization.provisioned")
		}
	}},
	{"machine-addresses", "status.addresses have a known type and 1 to 256 characters.", nil, func(r *run) {
		_, _, infra := r.machine()
		for _, item := range addresses(infra) {
			a, _ := item.(map[string]any)
			address, _ := a["address"].(string)
			if !slices.Contains(addressTypes, fmt.Sprint(a["type"])) || address == "" || len(address) > 256 {
				r.Errorf("status.addresses has %v: the type is one of %v, the address has 1 to 256 characters", a, addressTypes)
			}
		}
	}},
	{"machine-failure-domain", "A machine is in the failure domain that its Machine asks for, and status.failureDomain says so.", nil, func(r *run) {
		// It asks for the last domain: the first may be where machines go anyway.
		fx, name := r.provisionedCluster(), "m-"+unique()
		want := fx.lastDomain()
		fx.addSecret(name)
		fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName, m.Spec.FailureDomain = &name, want })
		fx.untilProvisioned(name)
		if got := text(fx.infra(name), "status", "failureDomain"); got != want {
			r.Errorf("the Machine is to be in failure domain %q, status.failureDomain of the InfraMachine is %q", want, got)
		}
	}},
	{"machine-conditions", "Conditions of an InfraMachine have the shape of metav1.Condition.", nil, func(r *run) {
		_, _, infra := r.machine()
		r.wantConditions(infra)
	}},
	{"machine-ready", "The condition Ready of an InfraMachine that is well is True.", nil, func(r *run) {
		fx, name, _ := r.machine()
		fx.untilCondition(fx.machineReader(name), clusterv1.ReadyCondition, metav1.ConditionTrue)
	}},
	{"machine-metadata", "Labels, annotations and owners that others gave an InfraMachine stay.", nil, func(r *run) {
		fx, name := r.newFixture(), "m-"+unique()
		h := fx.record(fx.Objects.Machine)
		fx.provisionedMachine(name, annotated("example.com/kept", "a"), labelled("example.com/kept", "l"))
		fx.settle(fx.machineReader(name))
		fx.wantMetadata(fx.infra(name))
		fx.wantOwners(h)
	}},
	{"machine-quiet", "An InfraMachine that is provisioned is not written while nothing changes.", nil, func(r *run) {
		fx, name, _ := r.machine()
		fx.wantQuiet("InfraMachine", fx.machineReader(name))
	}},
	{"owner-graph", "What a provider makes in the namespace has owners that lead to the Cluster.", nil, func(r *run) {
		// Objects whose owners do not lead to the Cluster stay behind
		// when clusterctl moves the Cluster, and when it is deleted.
		fx, name, _ := r.machine()
		fx.settle(fx.machineReader(name))
		for _, kind := range r.kindsOfProvider() {
			fx.each(fx.Context(), listOf(empty(kind)), func(o client.Object) {
				if !r.made[o.GetUID()] && !fx.everywhere(o) && !fx.leads(o, 8) {
					r.Errorf("%s, which the provider made, has no owners that lead to the Cluster: clusterctl move leaves it behind, and so does the deletion of the Cluster", named(o))
				}
			})
		}
	}},
}

func (r *run) machine(changes ...change) (fx *fixture, name string, infra *unstructured.Unstructured) {
	fx, name = r.newFixture(), "m-"+unique()
	fx.provisionedMachine(name, changes...)
	return fx, name, fx.infra(name)
}

// As core's providerID parser wants them: a scheme, and something at the end.
var providerIDForm = regexp.MustCompile(`^[^:/\s]+://.*[^/\s]$`)

func addresses(u *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses")
	return list
}

var addressTypes = []string{"Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"}

func (fx *fixture) wantNoMachine(when, name string) {
	fx.while("a machine was made "+when, func() string {
		infra := fx.infra(name)
		switch {
		case infra == nil:
			return "the InfraMachine is gone"
		case providerID(infra) != "" || provisioned(infra):
			return "it has the providerID " + providerID(infra)
		case fx.Inventory != nil:
			if ids := fx.inventory(); len(ids) > 0 {
				return fmt.Sprintf("there are %v outside", ids)
			}
		}
		return ""
	})
}

// waiting keeps an InfraCluster from being provisioned, twice over.
var waiting = []change{annotated(clusterv1.PausedAnnotation, ""), annotated(clusterv1.ManagedByAnnotation, "conformance")}

// lastDomain returns the name of the last failure domain; without one the check
// is skipped.
func (fx *fixture) lastDomain() string {
	domains, _, _ := unstructured.NestedSlice(fx.infraCluster().Object, "status", "failureDomains")
	if len(domains) == 0 {
		fx.Skipf("not checked: the InfraCluster has no status.failureDomains")
	}
	domain, _ := domains[len(domains)-1].(map[string]any)
	return fmt.Sprint(domain["name"])
}

var failureChecks = []Check{
	{"machine-failure-shown", "The condition Ready of an InfraMachine that cannot be made says why.", []need{needsFailing}, func(r *run) {
		// The reason of a wait before the attempt does not count,
		// nor does a message that comes and goes: it has to stay for a while.
		fx, name := r.failing()
		fx.until(fx.Limits.Provision, "the condition Ready of an InfraMachine that cannot be made says why", func() string {
			infra := fx.infra(name)
			if infra == nil {
				return "the InfraMachine is gone"
			}
			c := condition(infra, clusterv1.ReadyCondition)
			switch {
			case provisioned(infra):
				fx.Fatalf("the InfraMachine that is not to be possible is provisioned: is the file's one really refused?")
			case c == nil || c.Status == metav1.ConditionTrue:
				return "condition Ready is missing or True"
			case c.Reason == "" || c.Message == "":
				return "its reason is " + c.Reason + ", its message is empty"
			}
			return ""
		})
	}},
	{"machine-failure-quiet", "An InfraMachine that cannot be made is not tried in a loop: its status comes to rest.", []need{needsFailing}, func(r *run) {
		fx, name := r.failing()
		for range 6 { // growing pauses are not a loop
			if !fx.writtenWithin(fx.infra(name), fx.machineReader(name)) {
				return
			}
		}
		r.Errorf("an InfraMachine that cannot be made is written again and again: within %s each its resourceVersion changed six times. A cloud throttles or blocks clients that ask that often", r.Limits.Quiet)
	}},
	{"machine-failure-delete", "An InfraMachine that cannot be made can be deleted, and leaves nothing.", []need{needsFailing}, func(r *run) {
		fx, name := r.failing()
		fx.while("the failure", func() string { return "" })
		fx.wantDeleted(name)
	}},
}

// failing makes a machine that cannot be provisioned, and waits until its
// conditions say so.
func (r *run) failing() (fx *fixture, name string) {
	fx, name = r.provisionedCluster(), "m-"+unique()
	fx.addSecret(name)
	fx.addOwner(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name })
	fx.addInfra(fx.Objects.FailingMachine, name, []change{fx.ownedByMachine})
	fx.untilBegun(name)
	return fx, name
}
