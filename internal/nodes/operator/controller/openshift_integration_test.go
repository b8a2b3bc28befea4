// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
	crds "github.com/outrigger/outrigger/test/openshift"
)

func addOpenShift(scheme *runtime.Scheme) error { return configv1.Install(scheme) }

// platform makes the cluster run on a platform, with the gates of a release.
func (w *world) platform(t *testing.T, name string) {
	t.Helper()
	w.infrastructure(t, "HighlyAvailable", "type: "+name)
	w.gates(t, release)
}

// infrastructure has a platformStatus, in which the type comes first; none if it
// is empty.
func (w *world) infrastructure(t *testing.T, topology, platformStatus string) {
	t.Helper()
	w.apply(t, crds.Infrastructure("", topology, platformStatus))
}

// gates are those of a release that are on.
func (w *world) gates(t *testing.T, release string, on ...string) {
	t.Helper()
	w.apply(t, crds.FeatureGate(release, on...))
}

// synced plays config-sync.
func (w *world) synced(t *testing.T) {
	t.Helper()
	for _, s := range []status.Sync{status.CloudConfig, status.TrustedCA} {
		must(t, status.NewSync(s, w.client, w.client).Available(t.Context(), ""))
	}
}

func (w *world) operator(t *testing.T) *configv1.ClusterOperator {
	t.Helper()
	var o configv1.ClusterOperator
	must(t, client.IgnoreNotFound(w.client.Get(t.Context(), types.NamespacedName{Name: status.Name}, &o)))
	return &o
}

func (w *world) conditions(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, c := range w.operator(t).Status.Conditions {
		all[string(c.Type)] = string(c.Status) + "/" + c.Reason + "/" + c.Message
	}
	return all
}

// want waits until conditions are so.
func (w *world) want(t *testing.T, conditions map[string]string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(conditions)) {
		eventually(t, name, func() (string, bool) {
			is := w.conditions(t)[name]
			return is, is == conditions[name] || strings.HasSuffix(conditions[name], "...") && strings.HasPrefix(is, strings.TrimSuffix(conditions[name], "..."))
		})
	}
}

var settled = map[string]string{
	"Available":   "True/AsExpected/Cluster Cloud Controller Manager Operator is available at " + release,
	"Progressing": "False/AsExpected/", "Degraded": "False/AsExpected/", "Upgradeable": "True/AsExpected/",
}

const onClusterOperator = "/clusteroperators/cloud-controller-manager"

// TestOpenShift runs the operator at a real API server with OpenShift's kinds.
// Tests are named by what they show: see acceptance_test.go.
func TestOpenShift(t *testing.T) {
	w := newWorld(t)
	crds.Install(t, w.ControlPlane)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"EachPlatform", eachPlatform}, {"Inputs", inputsWatched}, {"Operands", operandsWatched},
		{"A3_Defect4_Labels", labelsEdited}, {"A6_Finalizer", heldBack},
		{"C1_Deployment", deployments}, {"C3_DaemonSet", daemonSets},
		{"S1_S2_S3_Status", statusKept}, {"F1_F2_NotBefore", notBefore}, {"F3_NoStorm", noStorm},
		{"R4_Proxy", proxies}, {"R5_Images", imageFiles}, {"R6_Defect5_Infrastructure", halfInfrastructure}, {"R7_TLS", tlsSettings}, {"R7_Flags", tlsFlags},
		{"Defect8_NoManager", noManager}, {"Defect14_Gates", gatesLate}, {"Defect14_WithoutGates", withoutGates},
		{"Defect16_Unwatchable", unwatchable}, {"Defect19_LateCredentials", lateCredentials},
		{"S1/NoInfrastructure", noInfrastructure}, {"G5/BareMetal", bareMetal}, {"S5/FromProgressingToAvailable", rollsOut}, {"A1/NothingToDo", nothingToDo},
		{"W1/Drift", operandDrift}, {"F1/Transient", transient}, {"F3/Terminal", terminal},
		{"WithoutConfigSync", withoutSync}, {"MissingConfiguration", missingInputs}, {"Pruning", pruning}, {"C2/Stalled", stalls},
		{"L1_Leader", leaders}, {"L1_Durations", leaseDurations}, {"Metrics", metricsServed}, {"Guard", guarded},
		{"Mirror", mirrored}, // the last: from here on the API server has CloudControllerManagers
	} {
		t.Run(c.name, func(t *testing.T) { w.clean(t); c.test(t, w) })
	}
}

// clean removes what the former test left.
func (w *world) clean(t *testing.T) {
	t.Helper()
	for _, o := range []client.Object{
		&configv1.Infrastructure{}, &configv1.FeatureGate{}, &configv1.ClusterOperator{}, &configv1.Proxy{}, &configv1.APIServer{}, &configv1.ClusterVersion{},
	} {
		must(t, w.client.DeleteAllOf(t.Context(), o))
	}
	for _, o := range w.owned(t) {
		must(t, client.IgnoreNotFound(w.client.Delete(t.Context(), &o)))
	}
	for _, o := range []client.Object{&appsv1.Deployment{}, &corev1.ConfigMap{}, &corev1.Secret{}} {
		must(t, w.client.DeleteAllOf(t.Context(), o, client.InNamespace(operands)))
	}
	w.writeImages(t, images)
}

// owned are the objects that say that they were applied on OpenShift.
func (w *world) owned(t *testing.T) []unstructured.Unstructured {
	t.Helper()
	var all []unstructured.Unstructured
	for _, kind := range apply.Kinds() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind)
		must(t, w.client.List(t.Context(), list))
		for _, o := range list.Items {
			if o.GetAnnotations()[apply.OwnerAnnotation] == operands+"/"+inventoryName {
				all = append(all, o)
			}
		}
	}
	return all
}

func noInfrastructure(t *testing.T, w *world) {
	w.start(t, onClusterOperator)
	w.want(t, settled)
	if v := w.operator(t).Status.Versions; len(v) != 1 || v[0] != (configv1.OperandVersion{Name: "operator", Version: release}) {
		t.Errorf("versions %+v", v)
	}
}

// bareMetal has no cloud controller manager: no image is missed.
func bareMetal(t *testing.T, w *world) {
	w.platform(t, "BareMetal")
	w.synced(t)
	must(t, os.Remove(w.images))
	w.start(t, onClusterOperator)
	w.want(t, settled)
}

const awsDeployment = "aws-cloud-controller-manager"

func rollsOut(t *testing.T, w *world) {
	told := w.history(t)
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	w.start(t, onClusterOperator)
	d := w.deployment(t, awsDeployment)
	w.want(t, map[string]string{"Progressing": "True/SyncingResources/Progressing towards operator: " + release, "Upgradeable": "True/AsExpected/"})
	if imageOf(d) != "example.test/aws:1" {
		t.Errorf("image %q", imageOf(d))
	}
	is := w.operator(t)
	if len(is.Status.Versions) > 0 || w.conditions(t)["Available"] != "" {
		t.Errorf("said before it is rolled out: %+v", is.Status)
	}
	w.progress(t, awsDeployment, corev1.ConditionTrue, "ReplicaSetUpdated")
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
	for condition, want := range map[configv1.ClusterStatusConditionType][]string{"Progressing": {"True", "False"}, "Available": {"True"}, "Degraded": {"False"}, "Upgradeable": {"True"}} {
		eventually(t, "what was said of "+string(condition), func() (string, bool) {
			is := told(condition)
			return fmt.Sprint(is), slices.Equal(is, want)
		})
	}
	var names []string
	for _, r := range w.operator(t).Status.RelatedObjects {
		names = append(names, r.Resource+" "+r.Name)
	}
	for _, want := range []string{"namespaces " + home, "clusteroperators cloud-controller-manager", "namespaces " + operands, "deployments " + awsDeployment} {
		if !slices.Contains(names, want) {
			t.Errorf("related objects %q: no %s", names, want)
		}
	}
}

// history returns the statuses that a condition has had from now on, each once
// until it became another.
func (w *world) history(t *testing.T) func(configv1.ClusterStatusConditionType) []string {
	t.Helper()
	c, err := client.NewWithWatch(w.RESTConfig(), client.Options{Scheme: w.client.Scheme()})
	must(t, err)
	watch, err := c.Watch(t.Context(), &configv1.ClusterOperatorList{})
	must(t, err)
	t.Cleanup(watch.Stop)
	var mu sync.Mutex
	said := map[configv1.ClusterStatusConditionType][]string{}
	go func() {
		for e := range watch.ResultChan() {
			o, is := e.Object.(*configv1.ClusterOperator)
			if !is {
				continue
			}
			mu.Lock()
			for _, c := range o.Status.Conditions {
				said[c.Type] = slices.Compact(append(said[c.Type], string(c.Status)))
			}
			mu.Unlock()
		}
	}()
	return func(of configv1.ClusterStatusConditionType) []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(said[of])
	}
}

// configured plays what config-sync makes for pods.
func (w *world) configured(t *testing.T) {
	t.Helper()
	for _, name := range []string{"cloud-conf", "ccm-trusted-ca"} {
		cm := &corev1.ConfigMap{Data: map[string]string{"cloud.conf": "", "ca-bundle.crt": ""}}
		cm.Namespace, cm.Name = operands, name
		must(t, w.client.Create(t.Context(), cm))
	}
}

// up is a cluster on AWS in which all is done.
func up(t *testing.T, w *world, change ...func(*Options)) *running {
	t.Helper()
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	p := w.start(t, onClusterOperator, change...)
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
	return p
}

func nothingToDo(t *testing.T, w *world) {
	p := up(t, w, often)
	p.idle(t)
}

func operandDrift(t *testing.T, w *world) {
	up(t, w)
	w.Kubectl(t, "scale", "--namespace="+operands, "--replicas=7", "deployment/"+awsDeployment)
	eventually(t, "replicas", func() (string, bool) {
		n := *w.deployment(t, awsDeployment).Spec.Replicas
		return "7", n == 2
	})
	var pdb policyv1.PodDisruptionBudget
	key := types.NamespacedName{Namespace: operands, Name: awsDeployment}
	must(t, w.client.Get(t.Context(), key, &pdb))
	must(t, w.client.Delete(t.Context(), &pdb))
	eventually(t, "PodDisruptionBudget", func() (string, bool) { return "gone", w.client.Get(t.Context(), key, &pdb) == nil })
}

func transient(t *testing.T, w *world) {
	p := up(t, w, func(o *Options) { o.DegradedAfter = 2 * time.Second })
	// Nobody may write Deployments any more except for those of another image.
	w.Kubectl(t, "apply", "--filename="+writePolicy(t))
	t.Cleanup(func() { w.Kubectl(t, "delete", "--ignore-not-found", "--filename="+writePolicy(t)) })
	w.awaitPolicy(t)
	w.writeImages(t, map[string]string{"cloudControllerManagerAWS": "example.test/aws:refused"})
	w.want(t, map[string]string{
		"Degraded":    "True/SyncingFailed/Failed to resync for operator: " + release + " because failed to sync operands: Deployment clouds/" + awsDeployment + ": ...",
		"Upgradeable": "False/AsExpected/",
	})
	w.Kubectl(t, "delete", "--filename="+writePolicy(t))
	eventually(t, "image", func() (string, bool) {
		is := imageOf(w.deployment(t, awsDeployment))
		return is, strings.HasSuffix(is, ":refused")
	})
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
	p.stop()
}

func writePolicy(t *testing.T) string {
	t.Helper()
	path := t.TempDir() + "/policy.yaml"
	must(t, os.WriteFile(path, []byte(`apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: refuse}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}]}
  validations: [{expression: "!object.spec.template.spec.containers[0].image.endsWith(':refused')"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: refuse}
spec: {policyName: refuse, validationActions: [Deny]}
`), 0o600))
	return path
}

// awaitPolicy waits until the policy is enforced.
func (w *world) awaitPolicy(t *testing.T) {
	t.Helper()
	eventually(t, "policy", func() (string, bool) {
		d := w.deployment(t, awsDeployment)
		d.Spec.Template.Spec.Containers[0].Image = "x:refused"
		return "not enforced", w.client.Update(t.Context(), d, client.DryRunAll) != nil
	})
}

func terminal(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	must(t, os.WriteFile(w.images, []byte("{"), 0o600))
	w.start(t, onClusterOperator)
	w.want(t, map[string]string{
		"Degraded": "True/SyncingFailed/Failed when progressing towards operator: " + release + " because terminal error: failed to build operator config: unable to decode images content...",
	})
	w.writeImages(t, map[string]string{})
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed when progressing towards operator: " + release + " because terminal error: failed to build operator config: aws: missed images in config: cloudControllerManagerAWS..."})
	w.writeImages(t, images)
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
}

func withoutSync(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.start(t, onClusterOperator, func(o *Options) { o.DegradedAfter = time.Second })
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed when progressing towards operator: " + release + " because waiting for ccm-operator config-sync..."})
	w.synced(t)
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
}

func missingInputs(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	w.start(t, onClusterOperator)
	before := w.deployment(t, awsDeployment)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "True/InputIncomplete/pods cannot start: not there: ConfigMap clouds/ccm-trusted-ca, wanted by Deployment " + awsDeployment + "..."})
	w.configured(t)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "False/AsExpected/"})
	eventually(t, "a new template", func() (string, bool) {
		return "", w.deployment(t, awsDeployment).Generation > before.Generation
	})
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
}

func pruning(t *testing.T, w *world) {
	up(t, w)
	w.platform(t, "OpenStack")
	d := &policyv1.PodDisruptionBudget{}
	w.deployment(t, "openstack-cloud-controller-manager")
	w.gone(t, d, awsDeployment)
	w.rolledOut(t, "openstack-cloud-controller-manager")
	w.want(t, settled)
	w.platform(t, "BareMetal")
	w.gone(t, d, "openstack-cloud-controller-manager")
	w.want(t, settled)
}

func stalls(t *testing.T, w *world) {
	up(t, w, func(o *Options) { o.DegradedAfter = time.Second })
	w.progress(t, awsDeployment, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed to resync for operator: " + release + " because deployment " + awsDeployment + " rollout stalled: ProgressDeadlineExceeded"})
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
}
