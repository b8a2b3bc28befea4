// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

const openstackDeployment = "openstack-cloud-controller-manager"

// onOpenStack is a cluster there in which all is done, with nothing that happens by
// itself.
func onOpenStack(t *testing.T, w *world) *running {
	t.Helper()
	w.platform(t, "OpenStack")
	w.synced(t)
	w.configured(t)
	w.secret(t, "openstack-cloud-credentials", "first")
	p := w.start(t, onClusterOperator)
	w.settles(t)
	return p
}

func (w *world) secret(t *testing.T, name, value string) {
	t.Helper()
	w.apply(t, `apiVersion: v1
kind: Secret
metadata: {name: `+name+`, namespace: `+operands+`}
stringData: {clouds.yaml: `+value+`}
`)
}

func (w *world) configMap(t *testing.T, name, value string) {
	t.Helper()
	w.apply(t, `apiVersion: v1
kind: ConfigMap
metadata: {name: `+name+`, namespace: `+operands+`}
data: {cloud.conf: "`+value+`"}
`)
}

func (w *world) proxy(t *testing.T, status string) {
	t.Helper()
	w.apply(t, "apiVersion: config.openshift.io/v1\nkind: Proxy\nmetadata: {name: cluster}\nspec: {}\nstatus: {"+status+"}\n")
}

func (w *world) tlsProfile(t *testing.T, spec string) {
	t.Helper()
	w.apply(t, "apiVersion: config.openshift.io/v1\nkind: APIServer\nmetadata: {name: cluster}\nspec: {"+spec+"}\n")
}

func (w *world) kubeControllerManager(t *testing.T, force string) {
	t.Helper()
	w.apply(t, "apiVersion: operator.openshift.io/v1\nkind: KubeControllerManager\nmetadata: {name: cluster}\nspec: {managementState: Managed, forceRedeploymentReason: \""+force+"\"}\n")
}

// container is the manager's, as text.
func (w *world) container(t *testing.T, name string) string {
	t.Helper()
	text, err := json.Marshal(w.deployment(t, name).Spec.Template.Spec.Containers[0])
	must(t, err)
	return string(text)
}

// containerHas waits until the manager is started so.
func (w *world) containerHas(t *testing.T, name string, what ...string) {
	t.Helper()
	for _, part := range what {
		not, is := strings.CutPrefix(part, "!")
		eventually(t, part, func() (string, bool) {
			text := w.container(t, name)
			return text, strings.Contains(text, not) != is
		})
	}
}

// hash waits until the pods' configuration is another, and returns its sum.
func (w *world) hash(t *testing.T, not string) (is string) {
	t.Helper()
	eventually(t, "another configuration", func() (string, bool) {
		is = w.deployment(t, openstackDeployment).Spec.Template.Annotations[apply.ConfigHashAnnotation]
		return is, is != "" && is != not
	})
	return is
}

// inputsWatched: a change of whatever the operator reads is seen at once.
func inputsWatched(t *testing.T, w *world) {
	p := onOpenStack(t, w)
	for _, c := range []struct {
		name string
		test func(*testing.T)
	}{
		{"W1_Infrastructure", func(t *testing.T) {
			w.infrastructure(t, "SingleReplica", "type: OpenStack")
			eventually(t, "replicas", func() (string, bool) { return "2", *w.deployment(t, openstackDeployment).Spec.Replicas == 1 })
		}},
		{"W1_Proxy", func(t *testing.T) {
			w.proxy(t, "httpProxy: http://p:1")
			w.containerHas(t, openstackDeployment, `{"name":"HTTP_PROXY","value":"http://p:1"}`)
		}},
		{"W1_APIServer", func(t *testing.T) {
			w.tlsProfile(t, "tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern, modern: {}}")
			w.containerHas(t, openstackDeployment, "--tls-min-version=VersionTLS13")
		}},
		{"W1_FeatureGate", func(t *testing.T) {
			w.gates(t, release, "CloudControllerManagerWebhook", "NobodyKnows")
			w.containerHas(t, openstackDeployment, "--feature-gates=CloudControllerManagerWebhook=true", "!NobodyKnows")
		}},
		{"W1_KubeControllerManager", func(t *testing.T) {
			p.still(t, func() {})
			before := p.passes.Load()
			w.kubeControllerManager(t, "x")
			eventually(t, "a look", func() (string, bool) { return "none", p.passes.Load() > before })
		}},
		{"W1_A5_ConfigMap", func(t *testing.T) {
			p.still(t, func() {})
			d := w.deployment(t, openstackDeployment)
			before := p.passes.Load()
			w.configMap(t, "unrelated", "x")
			eventually(t, "a look", func() (string, bool) { return "none", p.passes.Load() > before })
			w.configMap(t, "cloud-conf", "x")
			w.hash(t, d.Spec.Template.Annotations[apply.ConfigHashAnnotation])
			if is := w.deployment(t, openstackDeployment).Generation; is != d.Generation+1 {
				t.Errorf("rolled out %d times for two changes, of which one matters", is-d.Generation)
			}
		}},
		{"W1_A5_Secret", func(t *testing.T) {
			before := w.hash(t, "")
			w.secret(t, "openstack-cloud-credentials", "second")
			w.hash(t, before)
		}},
		{"W1_ClusterOperator", func(t *testing.T) {
			w.settles(t)
			o := w.operator(t)
			for i := range o.Status.Conditions {
				o.Status.Conditions[i].Reason = "Foreign"
			}
			must(t, w.client.Status().Update(t.Context(), o))
			w.want(t, settled)
			must(t, w.client.Delete(t.Context(), w.operator(t)))
			w.synced(t)
			w.want(t, settled)
		}},
		{"W1_NoOp", func(t *testing.T) { w.noOp(t, p) }},
	} {
		t.Run(c.name, c.test)
	}
}

// noOp: whoever writes what is there already wakes nobody.
func (w *world) noOp(t *testing.T, p *running) {
	n := 0
	p.still(t, func() {
		n++ // another owner of the same: only managedFields change
		for resource, object := range map[string]string{
			"Infrastructure": "config.openshift.io/v1", "Proxy": "config.openshift.io/v1", "APIServer": "config.openshift.io/v1",
			"FeatureGate": "config.openshift.io/v1", "KubeControllerManager": "operator.openshift.io/v1",
		} {
			w.own(t, object, resource, "", "cluster", n)
		}
		w.own(t, "config.openshift.io/v1", "ClusterOperator", "", status.Name, n)
		w.own(t, "v1", "ConfigMap", operands, "cloud-conf", n)
		w.own(t, "v1", "Secret", operands, "openstack-cloud-credentials", n)
		w.own(t, "apps/v1", "Deployment", operands, openstackDeployment, n)
	})
}

// own makes somebody the n-th owner of an annotation.
func (w *world) own(t *testing.T, version, kind, namespace, name string, n int) {
	t.Helper()
	u := &unstructured.Unstructured{}
	u.SetAPIVersion(version)
	u.SetKind(kind)
	u.SetNamespace(namespace)
	u.SetName(name)
	was := u.DeepCopy()
	must(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(u), was))
	u.SetAnnotations(map[string]string{"example.test/annotation": "x"})
	must(t, w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fmt.Sprint("somebody-", n))))
	if n > 1 && u.GetResourceVersion() == was.GetResourceVersion() {
		t.Errorf("%s %s: nothing was written", kind, name)
	}
}

// edits are how somebody changes an object of a kind by hand.
var edits = map[string]string{
	"Deployment": `{"spec":{"replicas":7}}`, "DaemonSet": `{"spec":{"minReadySeconds":7}}`,
	"Role": `{"rules":[]}`, "ClusterRole": `{"rules":[]}`, "RoleBinding": `{"subjects":[]}`, "ClusterRoleBinding": `{"subjects":[]}`,
	"ValidatingAdmissionPolicy": `{"spec":{"failurePolicy":"Ignore"}}`, "ValidatingAdmissionPolicyBinding": `{"spec":{"validationActions":["Audit"]}}`,
	"PodDisruptionBudget": `{"spec":{"minAvailable":0}}`, "Service": `{"spec":{"ports":[{"name":"https","port":1,"protocol":"TCP"}]}}`,
}

// operandsWatched: whatever of the objects somebody edits or deletes is put back,
// on the platform that has all kinds.
func operandsWatched(t *testing.T, w *world) {
	w.platform(t, "Azure")
	w.synced(t)
	w.configured(t)
	w.secret(t, "azure-cloud-credentials", "x")
	w.start(t, onClusterOperator)
	w.settles(t)
	for _, o := range w.owned(t) {
		t.Run("W1_A2_A7_"+o.GetKind()+"_"+o.GetName(), func(t *testing.T) {
			must(t, w.client.Patch(t.Context(), o.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(edits[o.GetKind()]))))
			w.back(t, &o)
			must(t, w.client.Delete(t.Context(), o.DeepCopy()))
			w.back(t, &o)
		})
	}
	t.Run("Defect16_Namesake", func(t *testing.T) { w.namesake(t) })
	w.settles(t)
}

// back waits until an object is what it was.
func (w *world) back(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	text := func(o *unstructured.Unstructured) map[string]any {
		c := o.DeepCopy()
		delete(c.Object, "metadata")
		delete(c.Object, "status")
		unstructured.RemoveNestedField(c.Object, "spec", "clusterIP")
		unstructured.RemoveNestedField(c.Object, "spec", "clusterIPs")
		return c.Object
	}
	eventually(t, o.GetKind()+" "+o.GetName(), func() (string, bool) {
		is := o.DeepCopy()
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), is); err != nil {
			return err.Error(), false
		}
		return fmt.Sprint(text(is)), is.GetDeletionTimestamp() == nil && reflect.DeepEqual(text(is), text(o))
	})
}

// namesake: an object of the same kind and name in another namespace is
// somebody else's, and takes nothing away from ours.
func (w *world) namesake(t *testing.T) {
	theirs := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "azure-cloud-provider"}}
	must(t, w.client.Create(t.Context(), theirs))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Delete(w.background(), theirs))) })
	ours := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: theirs.Name}}
	must(t, w.client.Delete(t.Context(), ours.DeepCopy()))
	eventually(t, "ours", func() (string, bool) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(ours), ours)
		return fmt.Sprint(err), err == nil && len(ours.Rules) > 0
	})
	must(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))
	if len(theirs.Rules) > 0 || len(theirs.Annotations) > 0 {
		t.Errorf("theirs is %+v", theirs)
	}
	must(t, w.client.Delete(t.Context(), theirs))
	must(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(ours), ours))
}

// labelsEdited: what users add stays, what they take away comes back, and the operator
// comes to rest though no generation changes.
func labelsEdited(t *testing.T, w *world) {
	w.platform(t, "Azure")
	w.synced(t)
	w.configured(t)
	w.secret(t, "azure-cloud-credentials", "x")
	p := w.start(t, onClusterOperator, often)
	w.settles(t)
	key := types.NamespacedName{Namespace: operands, Name: "azure-cloud-node-manager"}
	var was, is appsv1.DaemonSet
	must(t, w.client.Get(t.Context(), key, &was))
	must(t, w.client.Patch(t.Context(), was.DeepCopy(), client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"k8s-app":null,"theirs":"x"},"annotations":{"theirs":"x"}}}`))))
	eventually(t, "our label", func() (string, bool) {
		must(t, w.client.Get(t.Context(), key, &is))
		return fmt.Sprint(is.Labels), was.Labels["k8s-app"] != "" && is.Labels["k8s-app"] == was.Labels["k8s-app"]
	})
	if is.Labels["theirs"] != "x" || is.Annotations["theirs"] != "x" || is.Generation != was.Generation {
		t.Errorf("labels %v, annotations %v, generation %d, was %d", is.Labels, is.Annotations, is.Generation, was.Generation)
	}
	w.want(t, settled)
	p.idle(t)
}

// heldBack: an object that has to be made again and that a finalizer holds is
// an error that is told, and ends when the finalizer does.
func heldBack(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	app := map[string]string{"app": "old"}
	old := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: awsDeployment, Finalizers: []string{"example.test/held"}}}
	old.Spec.Selector = &metav1.LabelSelector{MatchLabels: app}
	old.Spec.Template.Labels = app
	old.Spec.Template.Spec.Containers = []corev1.Container{{Name: "c", Image: "example.test/old"}}
	must(t, w.client.Create(t.Context(), old))
	free := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Patch(w.background(), old.DeepCopy(), free))) })
	w.start(t, onClusterOperator, func(o *Options) { o.DegradedAfter = 0 })
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed when progressing towards operator: " + release + " because failed to sync operands: Deployment clouds/" + awsDeployment + ": ..."})
	if said := w.conditions(t)["Degraded"]; !strings.Contains(said, "held by the finalizers [example.test/held]") {
		t.Error(said)
	}
	must(t, w.client.Patch(t.Context(), old.DeepCopy(), free))
	eventually(t, "the new one", func() (string, bool) {
		var d appsv1.Deployment
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(old), &d)
		return fmt.Sprint(err), err == nil && d.UID != old.UID
	})
	w.settles(t)
}

// unwatchable: an operator that may not see a kind ends, and says what it lacks.
func unwatchable(t *testing.T, w *world) {
	w.Apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: no-apps}
rules:
- {apiGroups: ["", config.openshift.io, operator.openshift.io, policy, rbac.authorization.k8s.io, admissionregistration.k8s.io, coordination.k8s.io, events.k8s.io], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: no-apps}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: no-apps}
subjects: [{kind: User, name: no-apps}]
`)
	api := w.RESTConfig()
	api.Impersonate = rest.ImpersonationConfig{UserName: "no-apps", Groups: []string{"system:authenticated"}}
	var err error
	for within := 2 * time.Second; within < patience && !apierrors.IsForbidden(err); within *= 5 {
		options := w.options(t, func(o *Options) { o.watchWithin = within })
		if err = Run(t.Context(), api, options, slog.New(slog.NewTextHandler(t.Output(), nil))); err == nil {
			break
		}
	}
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `User "no-apps" cannot list resource "d`) {
		t.Errorf("error %v", err)
	}
}
