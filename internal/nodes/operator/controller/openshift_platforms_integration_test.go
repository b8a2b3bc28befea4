// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// platforms are those with a cloud controller manager, as platformStatus has
// them, and what each has besides the PodDisruptionBudget and Service that are
// named after the platform.
var platforms = []struct {
	status string
	prefix string
	has    []string
}{
	{"type: AWS", "aws", []string{
		"Deployment clouds/aws-cloud-controller-manager",
		"ValidatingAdmissionPolicy openshift-cloud-controller-manager-cloud-provider-aws", "ValidatingAdmissionPolicyBinding openshift-cloud-controller-manager-cloud-provider-aws",
	}},
	{"type: Azure, azure: {resourceGroupName: g, cloudName: AzurePublicCloud}", "azure", []string{
		"Deployment clouds/azure-cloud-controller-manager", "DaemonSet clouds/azure-cloud-node-manager",
		"Role kube-system/azure-cloud-provider", "RoleBinding kube-system/azure-cloud-provider:azure-cloud-provider",
		"ClusterRole azure-cloud-controller-manager", "ClusterRoleBinding cloud-controller-manager:azure-cloud-controller-manager",
		"ValidatingAdmissionPolicy azure-load-balancer-tcp-idle-timeout-annotation-validation-policy",
		"ValidatingAdmissionPolicyBinding azure-load-balancer-tcp-idle-timeout-validation-annotation-binding",
		"ValidatingAdmissionPolicy openshift-cloud-controller-manager-cloud-provider-azure-node-admission",
		"ValidatingAdmissionPolicyBinding openshift-cloud-controller-manager-cloud-provider-azure-node-admission",
	}},
	{"type: Azure, azure: {resourceGroupName: g, cloudName: AzureStackCloud}", "azure", []string{
		"Deployment clouds/azure-cloud-controller-manager", "DaemonSet clouds/azure-cloud-node-manager",
		"Role kube-system/azure-cloud-provider", "RoleBinding kube-system/azure-cloud-provider:azure-cloud-provider",
	}},
	{"type: GCP", "gcp", []string{
		"Deployment clouds/gcp-cloud-controller-manager", "ClusterRole gcp-cloud-controller-manager", "ClusterRoleBinding gcp-cloud-controller-manager:cloud-provider",
		"ValidatingAdmissionPolicy network-tier-annotation-validation-policy", "ValidatingAdmissionPolicyBinding network-tier-annotation-binding",
	}},
	{"type: IBMCloud", "ibmcloud", []string{"Deployment clouds/ibm-cloud-controller-manager"}},
	{"type: PowerVS", "powervs", []string{"Deployment clouds/powervs-cloud-controller-manager"}},
	{"type: Nutanix", "nutanix", []string{
		"Deployment clouds/nutanix-cloud-controller-manager", "Role clouds/nutanix-cloud-controller-manager", "RoleBinding clouds/nutanix-cloud-controller-manager:nutanix-cloud-controller-manager",
		"ClusterRole nutanix-cloud-controller-manager", "ClusterRoleBinding nutanix-cloud-controller-manager:nutanix-cloud-controller-manager",
	}},
	{"type: OpenStack", "openstack", []string{"Deployment clouds/openstack-cloud-controller-manager"}},
	{"type: VSphere", "vsphere", []string{
		"Deployment clouds/vsphere-cloud-controller-manager", "Role clouds/vsphere-cloud-controller-manager", "RoleBinding clouds/vsphere-cloud-controller-manager:vsphere-cloud-controller-manager",
		"RoleBinding clouds/vsphere-cloud-controller-manager:cloud-controller-manager", "ClusterRole vsphere-cloud-controller-manager",
		"ClusterRoleBinding vsphere-cloud-controller-manager:vsphere-cloud-controller-manager", "ClusterRoleBinding vsphere-cloud-controller-manager:cloud-controller-manager",
	}},
	{"type: AlibabaCloud", "alibabacloud", []string{"Deployment clouds/alibabacloud-cloud-controller-manager"}},
}

// eachPlatform takes one operator through all platforms, with two replicas and
// with one: what belongs to the platform is there and nothing else, the operator
// is available once that is rolled out and not before, and then writes nothing.
func eachPlatform(t *testing.T, w *world) {
	w.synced(t)
	w.configured(t)
	w.gates(t, release)
	p := w.start(t, onClusterOperator, func(o *Options) { o.Resync = 10 * time.Millisecond })
	for _, f := range platforms {
		for _, topology := range []string{"HighlyAvailable", "SingleReplica"} {
			t.Run("R1_S5_A1_"+statusName(f.status)+"_"+topology, func(t *testing.T) {
				w.infrastructure(t, topology, f.status)
				want := append([]string{"Service clouds/" + f.prefix + "-cloud-controller-manager"}, f.has...)
				replicas := int32(1)
				if topology == "HighlyAvailable" {
					want, replicas = append(want, "PodDisruptionBudget clouds/"+f.prefix+"-cloud-controller-manager"), 2
				}
				w.has(t, want)
				w.want(t, map[string]string{"Progressing": "True/..."})
				w.settles(t)
				w.has(t, want)
				if d := w.deployment(t, strings.TrimPrefix(f.has[0], "Deployment clouds/")); *d.Spec.Replicas != replicas {
					t.Errorf("%d replicas, want %d", *d.Spec.Replicas, replicas)
				}
				for _, o := range w.owned(t) {
					allImages(t, &o)
				}
				if related := len(w.operator(t).Status.RelatedObjects); related != len(want)+3 {
					t.Errorf("%d related objects, want %d", related, len(want)+3)
				}
				p.idle(t)
			})
		}
	}
}

// allImages wants each container to have one of images.json.
func allImages(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	for _, kind := range []string{"containers", "initContainers"} {
		all, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", kind)
		for _, c := range all {
			if image := c.(map[string]any)["image"]; !strings.HasPrefix(image.(string), "example.test/") {
				t.Errorf("%s %s has image %v", o.GetKind(), o.GetName(), image)
			}
		}
	}
}

// statusName is a platformStatus as part of a test's name.
func statusName(status string) string {
	return strings.NewReplacer("type: ", "", ", azure: {resourceGroupName: g, cloudName: ", "_", "}", "").Replace(status)
}

// has waits until exactly these objects are applied.
func (w *world) has(t *testing.T, want []string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	eventually(t, "the platform's objects", func() (string, bool) {
		var is []string
		for _, o := range w.owned(t) {
			is = append(is, o.GetKind()+" "+strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
		}
		slices.Sort(is)
		return cmp.Diff(want, is), slices.Equal(want, is)
	})
}

// settles plays the controllers of all workloads until the operator is settled.
func (w *world) settles(t *testing.T) {
	t.Helper()
	eventually(t, "an operator that is settled", func() (string, bool) {
		w.play(t)
		is := w.conditions(t)
		for name, want := range settled {
			if is[name] != want {
				return name + " " + is[name], false
			}
		}
		return "", true
	})
}

// play brings all workloads out that are not.
func (w *world) play(t *testing.T) {
	t.Helper()
	var deployments appsv1.DeploymentList
	must(t, w.client.List(t.Context(), &deployments, client.InNamespace(operands)))
	for _, d := range deployments.Items {
		if c := d.Status.Conditions; d.Status.ObservedGeneration == d.Generation && len(c) == 1 && c[0].Reason == "NewReplicaSetAvailable" {
			continue
		}
		was := d.DeepCopy()
		d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = d.Generation, 1, 1
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"}}
		must(t, client.IgnoreNotFound(w.client.Status().Patch(t.Context(), &d, client.MergeFrom(was))))
	}
	var sets appsv1.DaemonSetList
	must(t, w.client.List(t.Context(), &sets, client.InNamespace(operands)))
	for _, d := range sets.Items {
		w.scheduled(t, &d, 3, 3, 0)
	}
}

// scheduled plays the controller of a DaemonSet.
func (w *world) scheduled(t *testing.T, d *appsv1.DaemonSet, current, updated, unavailable int32) {
	t.Helper()
	was := d.DeepCopy()
	d.Status = appsv1.DaemonSetStatus{
		ObservedGeneration: d.Generation, DesiredNumberScheduled: current + 1, CurrentNumberScheduled: current, UpdatedNumberScheduled: updated,
		NumberUnavailable: unavailable, NumberMisscheduled: 1,
	}
	must(t, client.IgnoreNotFound(w.client.Status().Patch(t.Context(), d, client.MergeFrom(was))))
}

// noManager: platforms without a cloud controller manager are available, which
// installers wait for; where Nodes wait for one, it is said that nobody comes.
func noManager(t *testing.T, w *world) {
	w.gates(t, release)
	w.synced(t)
	w.start(t, onClusterOperator)
	const external = "type: External, external: {cloudControllerManager: {state: "
	for _, quiet := range []string{"type: BareMetal", "type: None", "type: oVirt", "type: Libvirt", "type: EquinixMetal", "type: External", external + "None}}"} {
		for _, waits := range []string{"type: KubeVirt", external + "External}}"} {
			must(t, w.client.DeleteAllOf(t.Context(), &configv1.Infrastructure{}))
			w.infrastructure(t, "HighlyAvailable", waits)
			w.want(t, map[string]string{"CloudControllerManagerWarning": "True/NoCloudControllerManager/no cloud controller manager is deployed, and Nodes of platform ..."})
			w.want(t, settled)
		}
		must(t, w.client.DeleteAllOf(t.Context(), &configv1.Infrastructure{}))
		w.infrastructure(t, "HighlyAvailable", quiet)
		w.want(t, map[string]string{"CloudControllerManagerWarning": "False/AsExpected/"})
		w.want(t, settled)
		w.has(t, nil)
	}
	// A release has no image for this one, though there is a bundle.
	w.writeImages(t, map[string]string{})
	w.infrastructure(t, "HighlyAvailable", "type: AlibabaCloud")
	w.want(t, map[string]string{"CloudControllerManagerWarning": "True/NoCloudControllerManager/no cloud controller manager is deployed, and Nodes of platform AlibabaCloud wait for one: images.json lacks what bundle alibabacloud needs: cloudControllerManagerOutrigger"})
	w.want(t, settled)
	w.has(t, nil)
}
