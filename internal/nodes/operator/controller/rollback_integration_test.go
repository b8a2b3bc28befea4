// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
)

// rollsBackWhole: not the images alone go back but all that a spec and what it names
// have made, also when the operator ends between the stall and the way back; and it is
// tried again when something is mended that is not in the spec.
func rollsBackWhole(t *testing.T, w *world) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "config"}, Data: map[string]string{"cloud.conf": "LIBVIRT_URI=qemu:///system\n"}}
	must(t, w.client.Create(t.Context(), config))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Delete(w.background(), config))) })
	p := w.start(t, onVersion)
	w.brought(t, libvirt(func(c *ccmv1alpha1.CloudControllerManager) {
		c.Spec.CloudConfig = &ccmv1alpha1.ConfigMapKey{Name: "config", Key: "cloud.conf"}
	}))
	good := w.deployment(t, libvirtDeployment).Spec.Template
	w.cloudConf(t, config, "LIBVIRT_URI=qemu:///broken\n")
	c := w.ccm(t)
	c.Spec.Images["cloudControllerManagerOutrigger"] = "example.test/ccm:broken"
	c.Spec.Proxy = &ccmv1alpha1.Proxy{HTTPProxy: "http://broken"}
	must(t, w.client.Update(t.Context(), c))
	w.image(t, ":broken")

	// The operator cannot go back, and then ends.
	allow := w.withoutUpdates(t)
	w.progress(t, libvirtDeployment, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	eventually(t, "the stall in the status", func() (string, bool) { return "absent", w.ccm(t).Status.Stalled != nil })
	p.stop()
	if is := imageOf(w.deployment(t, libvirtDeployment)); !strings.HasSuffix(is, ":broken") {
		t.Fatalf("it is back at %q already", is)
	}
	allow()
	p = w.start(t, onVersion)
	w.image(t, ":1")
	w.rolledOut(t, libvirtDeployment)
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, "back to generation 1, images")
	w.is(t, ccmv1alpha1.ProgressingCondition, metav1.ConditionFalse, "")
	is := w.deployment(t, libvirtDeployment).Spec.Template
	hash := is.Annotations[apply.ConfigHashAnnotation]
	if env := is.Spec.Containers[0].Env; hash != good.Annotations[apply.ConfigHashAnnotation] || hash == "" || slices.ContainsFunc(env, func(e corev1.EnvVar) bool { return e.Name == "HTTP_PROXY" }) {
		t.Errorf("hash %q, environment %v", hash, env)
	}
	w.deployedConfig(t, "LIBVIRT_URI=qemu:///system\n")

	// What is named in the spec was at fault.
	w.cloudConf(t, config, "LIBVIRT_URI=qemu:///mended\n")
	w.image(t, ":broken")
	w.deployedConfig(t, "LIBVIRT_URI=qemu:///mended\n")
	w.rolledOut(t, libvirtDeployment)
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionFalse, "")
	p.stop()
	w.without(t)
	var kept corev1.ConfigMap
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: keptPrefix + ccmName}, &kept); !apierrors.IsNotFound(err) {
		t.Errorf("what was kept stays: %v", err)
	}
}

func (w *world) image(t *testing.T, suffix string) {
	t.Helper()
	eventually(t, "the image "+suffix, func() (string, bool) {
		is := imageOf(w.deployment(t, libvirtDeployment))
		return is, strings.HasSuffix(is, suffix)
	})
}

func (w *world) cloudConf(t *testing.T, config *corev1.ConfigMap, text string) {
	t.Helper()
	config.Data["cloud.conf"] = text
	must(t, w.client.Update(t.Context(), config))
}

func (w *world) deployedConfig(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the configuration", func() (string, bool) {
		var cm corev1.ConfigMap
		must(t, w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: "cloud-conf"}, &cm))
		return cm.Data["cloud.conf"], cm.Data["cloud.conf"] == want
	})
}

// withoutUpdates takes the operator's right to change Deployments, until it is allowed
// again.
func (w *world) withoutUpdates(t *testing.T) (allow func()) {
	t.Helper()
	var role rbacv1.Role
	must(t, w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: "ccm-operator"}, &role))
	had := role.DeepCopy()
	for i := range role.Rules {
		if slices.Contains(role.Rules[i].Resources, "deployments") {
			role.Rules[i].Verbs = []string{"get", "list", "watch"}
		}
	}
	may := func(want bool) {
		eventually(t, "the operator's right", func() (string, bool) {
			review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
				User: w.account, Groups: []string{"system:serviceaccounts", "system:authenticated"},
				ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: operands, Verb: "update", Group: "apps", Resource: "deployments"},
			}}
			must(t, w.client.Create(t.Context(), review))
			return fmt.Sprint(review.Status.Allowed), review.Status.Allowed == want
		})
	}
	must(t, w.client.Update(t.Context(), &role))
	may(false)
	return func() {
		had.ResourceVersion = ""
		must(t, w.client.Update(t.Context(), had))
		may(true)
	}
}

// ofOthers: a Deployment of the same name is not taken over, until somebody allows it.
func ofOthers(t *testing.T, w *world) {
	labels := map[string]string{"app": "theirs"}
	theirs := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: libvirtDeployment}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "theirs:1"}}}},
	}}
	must(t, w.client.Create(t.Context(), theirs))
	p := w.start(t, onVersion)
	must(t, w.client.Create(t.Context(), libvirt()))
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionTrue, "Deployment "+operands+"/"+libvirtDeployment+": it is there already, and something else has made it")
	if is := w.deployment(t, libvirtDeployment); is.UID != theirs.UID || is.Generation != 1 {
		t.Errorf("it was written: %+v", is)
	}
	w.Kubectl(t, "annotate", "--namespace="+operands, "deployment", libvirtDeployment, apply.AdoptAnnotation+"="+apply.Allow)
	w.image(t, "example.test/ccm:1")
	w.rolledOut(t, libvirtDeployment)
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionFalse, "")
	p.stop()
}

// readSecrets: a Secret that the manager reads through the API is missed at once.
func readSecrets(t *testing.T, w *world) {
	own := needsKeys()
	own.Data["bundle.yaml"] = strings.Replace(own.Data["bundle.yaml"], "    secrets: [{name: keys, mountPath: /keys}]\n", "secrets: [read-keys]\n", 1)
	must(t, w.client.Create(t.Context(), own))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Delete(w.background(), own))) })
	p := w.start(t, onVersion)
	w.brought(t, libvirt(func(c *ccmv1alpha1.CloudControllerManager) {
		c.Spec.Provider, c.Spec.Bundle = "mine", &ccmv1alpha1.BundleReference{ConfigMap: own.Name}
		c.Spec.Images = map[string]string{"mine": "example.test/mine:1"}
	}))
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionTrue, "the cloud controller manager reads what is not there: Secret "+operands+"/read-keys")
	// A stall says it too.
	w.progress(t, libvirtDeployment, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionTrue, "rollout stalled: ProgressDeadlineExceeded; the cloud controller manager reads what is not there: Secret "+operands+"/read-keys")
	w.rolledOut(t, libvirtDeployment)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "read-keys"}}
	must(t, w.client.Create(t.Context(), secret))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Delete(w.background(), secret))) })
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionFalse, "")
	p.stop()
}
