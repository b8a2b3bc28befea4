// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"regexp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

func checkMachineProvisioned(r *run) {
	fx, name := r.newFixture(), "m-"+unique()
	h := fx.record(fx.Objects.Machine)
	fx.provisionedMachine(name)
	fx.settle(fx.machineReader(name))
	fx.wantForEver(h)
}

// machine makes a machine that is provisioned, and returns its infrastructure.
func (r *run) machine(changes ...change) (fx *fixture, name string, infra *unstructured.Unstructured) {
	fx, name = r.newFixture(), "m-"+unique()
	fx.provisionedMachine(name, changes...)
	return fx, name, fx.infra(name)
}

// As core's providerID parser wants them: a scheme, and something at the end.
var providerIDForm = regexp.MustCompile(`^[^:/\s]+://.*[^/\s]$`)

func checkProviderIDFormat(r *run) {
	_, _, infra := r.machine()
	if id := providerID(infra); !providerIDForm.MatchString(id) || len(id) > 512 {
		r.Errorf("spec.providerID is %q, not SCHEME://... of up to 512 characters: no Node would be found by it", id)
	}
}

func checkProviderIDUnique(r *run) {
	fx := r.newFixture()
	fx.addCluster(nil)
	names := []string{"m-" + unique(), "m-" + unique()}
	for _, name := range names {
		fx.addMachine(name)
	}
	for _, name := range names {
		fx.untilProvisioned(name)
	}
	if a, b := providerID(fx.infra(names[0])), providerID(fx.infra(names[1])); a == b {
		r.Errorf("two InfraMachines have the providerID %s", a)
	}
}

// checkMachineAtOnce: core reads what there is once provisioned is set, and
// never again.
func checkMachineAtOnce(r *run) {
	fx, name := r.newFixture(), "m-"+unique()
	h := fx.record(fx.Objects.Machine)
	fx.addCluster(nil)
	fx.addMachine(name)
	first := fx.untilSeen(h, "the InfraMachine is provisioned", provisioned)
	if providerID(first) == "" {
		r.Errorf("status.initialization.provisioned was set before spec.providerID")
	}
}

func checkMachineAddressesAtOnce(r *run) {
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
}

func addresses(u *unstructured.Unstructured) []any {
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "addresses")
	return list
}

var addressTypes = []string{"Hostname", "ExternalIP", "InternalIP", "ExternalDNS", "InternalDNS"}

func checkMachineAddresses(r *run) {
	_, _, infra := r.machine()
	for _, item := range addresses(infra) {
		a, _ := item.(map[string]any)
		address, _ := a["address"].(string)
		if !slices.Contains(addressTypes, fmt.Sprint(a["type"])) || address == "" || len(address) > 256 {
			r.Errorf("status.addresses has %v: the type is one of %v, the address has 1 to 256 characters", a, addressTypes)
		}
	}
}

func checkMachineConditions(r *run) {
	_, _, infra := r.machine()
	if wrong := malformed(infra); wrong != "" {
		r.Errorf("%s", wrong)
	}
}

func checkMachineReady(r *run) {
	fx, name, _ := r.machine()
	fx.until(fx.Limits.Provision, "the condition Ready of the InfraMachine is True", func() string {
		return lacksCondition(fx.infra(name), clusterv1.ReadyCondition, metav1.ConditionTrue)
	})
}

func checkMachineOwner(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	fx.alone = true
	fx.addInfra(fx.Objects.Machine, name, nil)
	fx.wantNoMachine("without an owner", name)
}

// wantNoMachine fails if a machine appears.
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

func checkMachineWaitsForCluster(r *run) {
	fx, name := r.newFixture(), "m-"+unique()
	fx.addCluster(nil, waiting...)
	fx.addMachine(name, fx.ownedByMachine)
	fx.wantNoMachine("before the infrastructure of its cluster is provisioned", name)
	fx.patchInfraCluster(unannotated(clusterv1.PausedAnnotation), unannotated(clusterv1.ManagedByAnnotation))
	fx.untilProvisioned(name)
}

func checkMachineWaitsForBootstrap(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	fx.addMachineWith(name, nil, fx.ownedByMachine)
	fx.wantNoMachine("before its Machine names bootstrap data", name)
}

func checkMachineBootstrapLate(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	fx.addMachineWith(name, nil, fx.ownedByMachine)
	fx.while("the wait for bootstrap data", func() string { return "" })
	fx.addSecret(name)
	m := &clusterv1.Machine{}
	fx.patch(m, name, func() { m.Spec.Bootstrap.DataSecretName = &name })
	fx.untilProvisioned(name)
}

func checkBootstrapSecretMissing(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name }, fx.ownedByMachine)
	fx.wantNoMachine("without the Secret with its bootstrap data", name)
}

func checkBootstrapSecretLate(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName = &name }, fx.ownedByMachine)
	fx.while("the wait for the Secret", func() string { return "" })
	fx.addSecret(name)
	fx.untilProvisioned(name)
}

func checkMachineWaitShown(r *run) {
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
}

func checkMachineFinalizer(r *run) {
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
}

// checkFailureDomain asks for the last domain: the first may be where machines
// go anyway.
func checkFailureDomain(r *run) {
	fx, name := r.provisionedCluster(), "m-"+unique()
	want := fx.lastDomain()
	fx.addSecret(name)
	fx.addMachineWith(name, func(m *clusterv1.Machine) { m.Spec.Bootstrap.DataSecretName, m.Spec.FailureDomain = &name, want })
	fx.untilProvisioned(name)
	if got := text(fx.infra(name), "status", "failureDomain"); got != want {
		r.Errorf("the Machine is to be in failure domain %q, status.failureDomain of the InfraMachine is %q", want, got)
	}
}

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

func checkMachineQuiet(r *run) {
	fx, name, _ := r.machine()
	fx.wantQuiet("InfraMachine", fx.machineReader(name))
}

func checkMachineMetadataKept(r *run) {
	fx, name := r.newFixture(), "m-"+unique()
	h := fx.record(fx.Objects.Machine)
	fx.provisionedMachine(name, annotated("example.com/kept", "a"), labelled("example.com/kept", "l"))
	fx.settle(fx.machineReader(name))
	fx.wantMetadata(fx.infra(name))
	fx.wantOwners(h)
}

func checkMachineOnce(r *run) {
	fx, name, _ := r.machine()
	fx.settle(fx.machineReader(name))
	if got := r.inventory(); len(got) != 1 {
		r.Errorf("one machine is provisioned, and outside exist %d: %v (the inventory is to name each machine once, and nothing else)", len(got), got)
	}
}

func checkSameNames(r *run) {
	cluster, name := "c-"+unique(), "m-"+unique()
	a, b := r.newFixtureNamed(cluster), r.newFixtureNamed(cluster)
	a.provisionedMachine(name)
	b.provisionedMachine(name)
	if id, other := providerID(a.infra(name)), providerID(b.infra(name)); id == other {
		r.Errorf("machines of the same name in two namespaces share the providerID %s", id)
	}
}
