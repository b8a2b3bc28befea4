// SPDX-License-Identifier: Apache-2.0

package bundles

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// own are the kinds and names of each platform's own objects on OpenShift, apart
// from PodDisruptionBudget and Service.
var own = map[string][]string{
	"aws": {"Deployment aws-cloud-controller-manager", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
	"azure": {
		"Deployment azure-cloud-controller-manager", "DaemonSet azure-cloud-node-manager", "Role kube-system/azure-cloud-provider",
		"RoleBinding kube-system/azure-cloud-provider:azure-cloud-provider", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
		"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	},
	"azurestackhub": {
		"Deployment azure-cloud-controller-manager", "DaemonSet azure-cloud-node-manager", "Role kube-system/azure-cloud-provider", "RoleBinding kube-system/azure-cloud-provider:azure-cloud-provider",
	},
	"gcp": {
		"Deployment gcp-cloud-controller-manager", "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	},
	"ibmcloud":     {"Deployment ibm-cloud-controller-manager"},
	"powervs":      {"Deployment powervs-cloud-controller-manager"},
	"nutanix":      {"Deployment nutanix-cloud-controller-manager", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"},
	"openstack":    {"Deployment openstack-cloud-controller-manager"},
	"vsphere":      {"Deployment vsphere-cloud-controller-manager", "Role", "RoleBinding", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ClusterRoleBinding"},
	"alibabacloud": {"Deployment alibabacloud-cloud-controller-manager"},
}

// totals are how many objects a platform has on OpenShift with two replicas.
var totals = map[string]int{
	"aws": 5, "azure": 12, "azurestackhub": 6, "gcp": 7, "ibmcloud": 3, "powervs": 3, "nutanix": 7, "openstack": 3, "vsphere": 9, "alibabacloud": 3,
}

func set(t *testing.T) bundle.Set {
	t.Helper()
	s, err := Set()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func images(b *bundle.Bundle) bundle.Images {
	all := bundle.Images{}
	for _, key := range b.ImageKeys() {
		all[key] = "registry.example/" + key
	}
	return all
}

// TestR1ObjectsOfEachPlatform: kinds, names and numbers, with two replicas and
// with one.
func TestR1ObjectsOfEachPlatform(t *testing.T) {
	for _, b := range set(t) {
		if !b.For(bundle.OpenShift) {
			continue
		}
		for _, single := range []bool{false, true} {
			objects, err := b.Resources(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", SingleReplica: single})
			if err != nil {
				t.Fatal(err)
			}
			prefix := strings.ToLower(b.Platform)
			want := append([]string{"Service " + prefix + "-cloud-controller-manager"}, own[b.Name]...)
			total := totals[b.Name] - 1
			if !single {
				want = append(want, "PodDisruptionBudget "+prefix+"-cloud-controller-manager")
				total++
			}
			slices.Sort(want)
			if diff := cmp.Diff(want, told(want, objects)); diff != "" || len(objects) != total {
				t.Errorf("%s, single replica %t: %d objects, want %d: %s", b.Name, single, len(objects), total, diff)
			}
		}
	}
}

// told are objects as want reports them: with the name where that has one.
func told(want []string, objects []client.Object) (all []string) {
	for _, o := range objects {
		kind := o.GetObjectKind().GroupVersionKind().Kind
		full := kind + " " + o.GetName()
		if o.GetNamespace() == bundle.SystemNamespace {
			full = kind + " " + o.GetNamespace() + "/" + o.GetName()
		}
		if !slices.Contains(want, full) {
			full = kind
		}
		all = append(all, full)
	}
	slices.Sort(all)
	return all
}

// TestR1PlatformsWithoutAManager have no bundle on OpenShift.
func TestR1PlatformsWithoutAManager(t *testing.T) {
	for _, platform := range []string{"oVirt", "Libvirt", "KubeVirt", "BareMetal", "None", "External", "EquinixMetal", ""} {
		if b := set(t).Find(platform, "", bundle.OpenShift); b != nil {
			t.Errorf("%s has bundle %s", platform, b.Name)
		}
	}
	for platform, want := range map[string]string{
		"AWS": "aws", "Azure": "azure", "GCP": "gcp", "IBMCloud": "ibmcloud", "PowerVS": "powervs", "Nutanix": "nutanix", "OpenStack": "openstack",
		"VSphere": "vsphere", "AlibabaCloud": "alibabacloud",
	} {
		if b := set(t).Find(platform, "", bundle.OpenShift); b == nil || b.Name != want {
			t.Errorf("%s has %v", platform, b)
		}
	}
	if b := set(t).Find("Azure", "AzureStackCloud", bundle.OpenShift); b == nil || b.Name != "azurestackhub" {
		t.Errorf("Azure Stack Hub has %v", b)
	}
	for _, platform := range []string{"libvirt", "docker", "qemu", "alibabacloud"} {
		if b := set(t).Find(platform, "", bundle.Kubernetes); b == nil {
			t.Errorf("%s has no bundle on plain Kubernetes", platform)
		}
	}
}

// TestStaticPodsOfAWSAndAzure and of no other.
func TestStaticPodsOfAWSAndAzure(t *testing.T) {
	for _, b := range set(t) {
		flavor := b.Flavors[0]
		objects, err := b.BootstrapResources(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", Flavor: flavor})
		if err != nil {
			t.Fatal(err)
		}
		want := 0
		if b.Name == "aws" || b.Name == "azure" {
			want = 1
		}
		if len(objects) != want {
			t.Errorf("%s has %d", b.Name, len(objects))
		}
	}
}

// TestBudgetLetsSickPodsGo: a pod that is not ready must not hold up a drain.
func TestBudgetLetsSickPodsGo(t *testing.T) {
	for _, b := range set(t) {
		objects, err := b.Resources(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", Flavor: b.Flavors[0]})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(objects, func(o client.Object) bool { _, is := o.(*policyv1.PodDisruptionBudget); return is })
		spec := objects[i].(*policyv1.PodDisruptionBudget).Spec
		if spec.MinAvailable.IntValue() != 1 || *spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow || spec.Selector.MatchLabels["infrastructure.openshift.io/cloud-controller-manager"] != b.Platform {
			t.Errorf("%s: %+v", b.Name, spec)
		}
	}
}

// serve are the platforms of OpenShift whose managers serve: all others are started
// as OpenShift's own operator starts them, with --secure-port=0.
var serve = []string{"alibabacloud", "ibmcloud", "powervs"}

// TestAllManagersServeTheirHealth: the Service has a listener, and a kubelet
// sees a manager that hangs.
func TestAllManagersServeTheirHealth(t *testing.T) {
	for _, b := range set(t) {
		for _, flavor := range b.Flavors {
			objects, err := b.Resources(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", Flavor: flavor})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range objects {
				spec := bundle.PodSpec(o)
				if spec == nil || spec.Containers[0].Name != bundle.Manager {
					continue
				}
				c := spec.Containers[0]
				serves := flavor == bundle.Kubernetes || slices.Contains(serve, b.Name)
				if strings.Contains(strings.Join(append(c.Command, c.Args...), " "), "--secure-port") == serves {
					t.Errorf("%s for %s: --secure-port, and it serves: %t", b.Name, flavor, serves)
				}
				if serves != (c.LivenessProbe != nil && c.LivenessProbe.HTTPGet.Port.IntValue() == 10258) || flavor == bundle.Kubernetes && c.ReadinessProbe == nil {
					t.Errorf("%s, %s: %+v", b.Name, flavor, c.LivenessProbe)
				}
			}
		}
	}
}

// TestNameOfTheClusterIsWanted: a manager that names what it makes by the cluster would
// take what another has made for its own.
func TestNameOfTheClusterIsWanted(t *testing.T) {
	wanted := []string{"azure", "azurestackhub", "gcp", "nutanix", "openstack", "vsphere"}
	for _, b := range set(t) {
		if !b.For(bundle.OpenShift) {
			continue
		}
		_, err := b.Resources(bundle.Values{Images: images(b)})
		if refused := err != nil && strings.Contains(err.Error(), "infrastructureName is empty"); refused != slices.Contains(wanted, b.Name) {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
}

// TestNothingOfAnotherNamespace: no bundle insists on the default namespace.
func TestNothingOfAnotherNamespace(t *testing.T) {
	for _, b := range set(t) {
		for _, flavor := range b.Flavors {
			r, err := b.Render(bundle.Values{Images: images(b), InfrastructureName: "cluster-x7k2p", Flavor: flavor, Namespace: "mine"})
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range append(r.Resources, r.Bootstrap...) {
				text, err := json.Marshal(o)
				// The name of a policy begins so, wherever the policy's operator is.
				if err != nil || strings.Contains(strings.ReplaceAll(string(text), bundle.DefaultNamespace+"-cloud-provider-", ""), bundle.DefaultNamespace) {
					t.Errorf("%s, %s, %s: %v %s", b.Name, flavor, o.GetName(), err, text)
				}
			}
		}
	}
}

// TestOurOwnSeeTheirInstances: what a provider of this project looks at is in the
// pod, and cannot be written there.
func TestOurOwnSeeTheirInstances(t *testing.T) {
	for name, path := range map[string]string{"libvirt": "/etc/libvirt-client", "docker": "/etc/docker-client", "qemu": "/var/lib/outrigger/qemu"} {
		b := set(t).Find(name, "", bundle.Kubernetes)
		objects, err := b.Resources(bundle.Values{Images: images(b), Flavor: bundle.Kubernetes})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(objects, func(o client.Object) bool { return bundle.PodSpec(o) != nil })
		pod := bundle.PodSpec(objects[i])
		mounts := pod.Containers[0].VolumeMounts
		if !slices.ContainsFunc(mounts, func(m corev1.VolumeMount) bool { return m.MountPath == path && m.ReadOnly }) {
			t.Errorf("%s mounts %v, not %s", name, mounts, path)
		}
		// A process is told from another of the same number by what /proc says.
		if pod.HostPID != (name == "qemu") {
			t.Errorf("%s sees the node's processes: %t", name, pod.HostPID)
		}
	}
}
