// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/guard"
	teststand "github.com/outrigger/outrigger/test/stand"
)

const (
	ccmName           = "main"
	libvirtDeployment = "libvirt-cloud-controller-manager"
	onVersion         = "/version"
)

// TestPlain runs the operator at a real API server that knows nothing of OpenShift.
func TestPlain(t *testing.T) {
	w := newWorld(t)
	t.Run("NeitherKind", func(t *testing.T) { neitherKind(t, w) })
	w.withPlain(t)
	w.withRights(t)
	for _, c := range []struct {
		name string
		test func(*testing.T, *world)
	}{
		{"FromNothingToNothing", lifecycle}, {"NothingToDo", nothingToDoPlain}, {"BadConfiguration", badConfiguration},
		{"Versions", versionRules}, {"RollsBack", rollsBack}, {"RollsBackWhole", rollsBackWhole},
		{"OfOthers", ofOthers}, {"ReadSecrets", readSecrets}, {"UnknownProvider", unknownProvider}, {"Two", two},
		{"BundleOfAConfigMap", bundleOfConfigMap}, {"BadDurations", badDurations}, {"Watchdog", watchdogNames},
	} {
		t.Run(c.name, func(t *testing.T) { t.Cleanup(func() { w.without(t) }); c.test(t, w) })
	}
}

// withRights gives the operator the rights of its installation and no others;
// it is in the namespace of its operands there.
func (w *world) withRights(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(teststand.Root(), "deploy/ccm-operator/kubernetes/rbac.yaml"))
	must(t, err)
	path := filepath.Join(t.TempDir(), "rbac.yaml")
	must(t, os.WriteFile(path, bytes.ReplaceAll(text, []byte("ccm-system"), []byte(operands)), 0o600))
	w.Kubectl(t, "apply", "--filename="+path)
	w.account = "system:serviceaccount:" + operands + ":ccm-operator"
	// A controller that does not run here would do this.
	w.Kubectl(t, "create", "clusterrolebinding", "grants", "--clusterrole=ccm-operator-grants-built-in", "--serviceaccount="+operands+":ccm-operator")
}

// without removes the CloudControllerManager with the operator that a test left.
func (w *world) without(t *testing.T) {
	w.Kubectl(t, "delete", "--ignore-not-found", "--wait=false", "ccm", ccmName)
	p := w.start(t, onVersion)
	eventually(t, "the end", func() (string, bool) {
		err := w.client.Get(w.background(), types.NamespacedName{Name: ccmName}, &ccmv1alpha1.CloudControllerManager{})
		return "there", apierrors.IsNotFound(err)
	})
	p.stop()
}

func libvirt(change ...func(*ccmv1alpha1.CloudControllerManager)) *ccmv1alpha1.CloudControllerManager {
	c := &ccmv1alpha1.CloudControllerManager{ObjectMeta: metav1.ObjectMeta{Name: ccmName}}
	c.Spec.Provider = "libvirt"
	c.Spec.Images = map[string]string{"cloudControllerManagerOutrigger": "example.test/ccm:1"}
	for _, f := range change {
		f(c)
	}
	return c
}

func (w *world) ccm(t *testing.T) *ccmv1alpha1.CloudControllerManager {
	t.Helper()
	var c ccmv1alpha1.CloudControllerManager
	must(t, w.client.Get(t.Context(), types.NamespacedName{Name: ccmName}, &c))
	return &c
}

// is waits until a condition has a status and a message that contains something.
func (w *world) is(t *testing.T, condition string, status metav1.ConditionStatus, says string) {
	t.Helper()
	eventually(t, condition, func() (string, bool) {
		c := apimeta.FindStatusCondition(w.ccm(t).Status.Conditions, condition)
		if c == nil {
			return "not said", false
		}
		return string(c.Status) + "/" + c.Reason + "/" + c.Message, c.Status == status && strings.Contains(c.Message, says)
	})
}

// brought is a CloudControllerManager that is out.
func (w *world) brought(t *testing.T, c *ccmv1alpha1.CloudControllerManager) {
	t.Helper()
	must(t, w.client.Create(t.Context(), c))
	w.is(t, ccmv1alpha1.ProgressingCondition, metav1.ConditionTrue, "Deployment "+libvirtDeployment)
	w.rolledOut(t, libvirtDeployment)
	w.is(t, ccmv1alpha1.AvailableCondition, metav1.ConditionTrue, "")
	w.is(t, ccmv1alpha1.ProgressingCondition, metav1.ConditionFalse, "")
}

func neitherKind(t *testing.T, w *world) {
	err := Run(t.Context(), w.RESTConfig(), Options{
		Namespace: operands, OperatorNamespace: home, Requeue: time.Hour, Resync: time.Hour, Leader: daemon.Election{Lock: "leases"},
	}, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "has neither the kind CloudControllerManager") {
		t.Errorf("error %v", err)
	}
}

func lifecycle(t *testing.T, w *world) {
	p := w.start(t, onVersion)
	w.brought(t, libvirt())
	c := w.ccm(t)
	if c.Status.KubernetesVersion == "" || c.Status.LastGood == nil || len(c.Status.RelatedObjects) < 5 {
		t.Errorf("status %+v", c.Status)
	}
	if image := imageOf(w.deployment(t, libvirtDeployment)); image != "example.test/ccm:1" {
		t.Errorf("image %q", image)
	}
	if table := w.Kubectl(t, "get", "ccm"); !strings.Contains(table, "PROVIDER") || !strings.Contains(table, "libvirt") {
		t.Errorf("kubectl get ccm:\n%s", table)
	}
	var policy admissionv1.ValidatingAdmissionPolicy
	eventually(t, "the policy", func() (string, bool) {
		return "absent", w.client.Get(t.Context(), types.NamespacedName{Name: guard.Name}, &policy) == nil
	})
	d := w.deployment(t, libvirtDeployment)
	held := d.DeepCopy()
	held.Finalizers = []string{"example.test/held"}
	must(t, w.client.Patch(t.Context(), held, client.MergeFrom(d)))
	must(t, w.client.Delete(t.Context(), c))
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionTrue, "held by the finalizers [example.test/held]")
	must(t, w.client.Patch(t.Context(), d, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	eventually(t, "the end", func() (string, bool) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(c), c)
		return "there", apierrors.IsNotFound(err)
	})
	for _, what := range []string{"deployments", "services", "poddisruptionbudgets", "serviceaccounts"} {
		if left := w.Kubectl(t, "get", "--namespace="+operands, what, "--output=name"); strings.Contains(left, "cloud") {
			t.Errorf("left: %s", left)
		}
	}
	eventually(t, "the policy's end", func() (string, bool) {
		err := w.client.Get(t.Context(), types.NamespacedName{Name: guard.Name}, &policy)
		return "there", apierrors.IsNotFound(err)
	})
	p.stop()
}

func nothingToDoPlain(t *testing.T, w *world) {
	p := w.start(t, onVersion, often)
	w.brought(t, libvirt())
	p.idle(t)
	p.stop()
}

func badConfiguration(t *testing.T, w *world) {
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "config"}, Data: map[string]string{"cloud.conf": "LIBVIRT_URI=qemu:///system\n"}}
	must(t, w.client.Create(t.Context(), config))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Delete(w.background(), config))) })
	p := w.start(t, onVersion)
	w.brought(t, libvirt(func(c *ccmv1alpha1.CloudControllerManager) {
		c.Spec.CloudConfig = &ccmv1alpha1.ConfigMapKey{Name: "config", Key: "cloud.conf"}
	}))
	good := w.deployment(t, libvirtDeployment).Spec.Template
	config.Data["cloud.conf"] = "no equals sign\n"
	must(t, w.client.Update(t.Context(), config))
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, "spec.cloudConfig: it is not valid for Libvirt")
	w.is(t, ccmv1alpha1.AvailableCondition, metav1.ConditionTrue, "")
	var deployed corev1.ConfigMap
	must(t, w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: "cloud-conf"}, &deployed))
	if deployed.Data["cloud.conf"] != "LIBVIRT_URI=qemu:///system\n" {
		t.Errorf("deployed %q", deployed.Data)
	}
	config.Data["cloud.conf"] = "LIBVIRT_URI=qemu:///session\n"
	must(t, w.client.Update(t.Context(), config))
	eventually(t, "another template", func() (string, bool) {
		is := w.deployment(t, libvirtDeployment).Spec.Template
		return "", is.Annotations["operator.openshift.io/config-hash"] != good.Annotations["operator.openshift.io/config-hash"]
	})
	w.rolledOut(t, libvirtDeployment)
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionFalse, "")
	p.stop()
}

func versionRules(t *testing.T, w *world) {
	p := w.start(t, onVersion)
	image := func(v string) map[string]string {
		return map[string]string{"cloudControllerManagerOutrigger": "example.test/ccm:" + v}
	}
	w.brought(t, libvirt(func(c *ccmv1alpha1.CloudControllerManager) {
		c.Spec.Images = nil
		c.Spec.Versions = []ccmv1alpha1.VersionRule{
			{Kubernetes: "1.20-1.30", Images: image("old")}, {Kubernetes: "1.31-1.99", Version: "9.8.7", Images: image("new")},
		}
	}))
	if is := imageOf(w.deployment(t, libvirtDeployment)); is != "example.test/ccm:new" {
		t.Errorf("image %q", is)
	}
	if v := w.ccm(t).Status.Version; v != "9.8.7" {
		t.Errorf("version %q", v)
	}
	c := w.ccm(t)
	c.Spec.Versions = c.Spec.Versions[:1]
	must(t, w.client.Update(t.Context(), c))
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, "versions: none is for Kubernetes 1.")
	p.stop()
}

func rollsBack(t *testing.T, w *world) {
	p := w.start(t, onVersion)
	w.brought(t, libvirt())
	c := w.ccm(t)
	c.Spec.Images["cloudControllerManagerOutrigger"] = "example.test/ccm:broken"
	must(t, w.client.Update(t.Context(), c))
	eventually(t, "the new image", func() (string, bool) {
		is := imageOf(w.deployment(t, libvirtDeployment))
		return is, strings.HasSuffix(is, ":broken")
	})
	w.progress(t, libvirtDeployment, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	eventually(t, "the former image", func() (string, bool) {
		is := imageOf(w.deployment(t, libvirtDeployment))
		return is, strings.HasSuffix(is, ":1")
	})
	w.rolledOut(t, libvirtDeployment)
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, "back to")
	w.is(t, ccmv1alpha1.ProgressingCondition, metav1.ConditionFalse, "")
	c = w.ccm(t)
	c.Spec.Images["cloudControllerManagerOutrigger"] = "example.test/ccm:mended"
	must(t, w.client.Update(t.Context(), c))
	eventually(t, "the mended image", func() (string, bool) {
		is := imageOf(w.deployment(t, libvirtDeployment))
		return is, strings.HasSuffix(is, ":mended")
	})
	w.rolledOut(t, libvirtDeployment)
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionFalse, "")
	p.stop()
}

func unknownProvider(t *testing.T, w *world) {
	p := w.start(t, onVersion)
	must(t, w.client.Create(t.Context(), libvirt(func(c *ccmv1alpha1.CloudControllerManager) { c.Spec.Provider = "nowhere" })))
	w.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, `spec.provider: no bundle is named "nowhere"; there are `)
	p.stop()
}

// two: the younger one waits until the older one is gone.
func two(t *testing.T, w *world) {
	p := w.start(t, onVersion)
	must(t, w.client.Create(t.Context(), libvirt(func(c *ccmv1alpha1.CloudControllerManager) { c.Name = "a-first" })))
	w.rolledOut(t, libvirtDeployment)
	second := libvirt(func(c *ccmv1alpha1.CloudControllerManager) { c.Spec.Provider = "docker" })
	must(t, w.client.Create(t.Context(), second))
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionTrue, "a-first is older")
	var d appsv1.Deployment
	if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: "docker-cloud-controller-manager"}, &d); !apierrors.IsNotFound(err) {
		t.Errorf("the second one's Deployment: %v", err)
	}
	w.Kubectl(t, "delete", "ccm", "a-first")
	w.rolledOut(t, "docker-cloud-controller-manager")
	w.is(t, ccmv1alpha1.AvailableCondition, metav1.ConditionTrue, "")
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionFalse, "")
	p.stop()
}

func bundleOfConfigMap(t *testing.T, w *world) {
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: operands, Name: "mine"}, Data: map[string]string{
		"bundle.yaml": `apiVersion: ccm.outrigger.dev/v1alpha1
kind: Bundle
platform: Mine
provider: mine
containers:
  cloud-controller-manager:
    image: mine
    program: /mine
    cloudConfig: /etc/mine/cloud.conf
`,
		"assets.deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: libvirt-cloud-controller-manager
  annotations: {ccm.outrigger.dev/base: cloud-controller-manager}
`,
	}}
	must(t, w.client.Create(t.Context(), own))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Delete(w.background(), own))) })
	p := w.start(t, onVersion)
	w.brought(t, libvirt(func(c *ccmv1alpha1.CloudControllerManager) {
		c.Spec.Provider, c.Spec.Bundle = "mine", &ccmv1alpha1.BundleReference{ConfigMap: "mine"}
		c.Spec.Images = map[string]string{"mine": "example.test/mine:1"}
	}))
	if is := imageOf(w.deployment(t, libvirtDeployment)); is != "example.test/mine:1" {
		t.Errorf("image %q", is)
	}
	p.stop()
}

// badDurations: one that the API server took and the operator could not read would
// keep it from seeing any CloudControllerManager.
func badDurations(t *testing.T, w *world) {
	for field, texts := range map[string][]string{
		"window": {"soon", "0s", "-1m", "9999999999h"}, "notReadyFor": {"10", "-1m"}, "minAge": {"1d", ""},
	} {
		for _, text := range texts {
			c := &unstructured.Unstructured{}
			must(t, json.Unmarshal([]byte(`{"apiVersion":"ccm.outrigger.dev/v1alpha1","kind":"CloudControllerManager","metadata":{"name":"`+ccmName+`"},`+
				`"spec":{"provider":"libvirt","images":{},"nodeDeletions":{"`+field+`":"`+text+`"}}}`), c))
			if err := w.client.Create(t.Context(), c); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.nodeDeletions."+field) {
				t.Errorf("%s %q: error %v", field, text, err)
			}
		}
	}
}
