// SPDX-License-Identifier: Apache-2.0

//go:build integration

package vsphereccm

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	teststand "github.com/outrigger/outrigger/test/stand"
)

// TestBundleIsRight by the program that its author would ask.
func TestBundleIsRight(t *testing.T) {
	out, err := exec.Command(teststand.Binary(t, "ccm-operator"), "bundle", "verify", example("vsphere")).CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestOutOfTreeBundle is deployed by an operator that was not compiled with it.
func TestOutOfTreeBundle(t *testing.T) {
	s := newStand(t)
	stop := s.operator(t)
	t.Run("FromAFolder", func(t *testing.T) { fromAFolder(t, s) })
	t.Run("BadConfiguration", func(t *testing.T) { badConfiguration(t, s) })
	t.Run("ConfigurationRollsOut", func(t *testing.T) { configurationRollsOut(t, s) })
	t.Run("NothingIsLeft", func(t *testing.T) { nothingIsLeft(t, s) })
	stop()
	s.operator(t, withoutFolder)
	t.Run("FromAConfigMap", func(t *testing.T) { fromAConfigMap(t, s) })
}

// ofTheExample reports whether a Deployment is not that of the built-in bundle,
// which reads the Secret through the API.
func ofTheExample(d *appsv1.Deployment) bool {
	spec := d.Spec.Template.Spec
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == secret }) &&
		!slices.ContainsFunc(spec.Containers[0].Env, func(e corev1.EnvVar) bool { return strings.HasPrefix(e.Name, "VSPHERE_") })
}

// fromAFolder: the Secret comes last.
func fromAFolder(t *testing.T, s *stand) {
	s.Apply(t, cloud(t, "ConfigMap")+"\n---\n"+cloud(t, "CloudControllerManager"))
	d := s.deployment(t, manager)
	if !ofTheExample(d) {
		t.Errorf("it is not of the folder: %+v", d.Spec.Template.Spec)
	}
	if is := d.Spec.Template.Spec.Containers[0].Image; !strings.HasSuffix(is, "/cloud-provider-vsphere:v1.36.0") {
		t.Errorf("image %s", is)
	}
	s.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionTrue, secret)
	s.Apply(t, cloud(t, "Secret"))
	s.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionFalse, "")
	s.rolls(t, "")
	before := s.configHash(t)
	s.Apply(t, cloud(t, "Secret", "change-me", "changed"))
	s.rolls(t, before)
}

// badConfiguration is said and not rolled out.
func badConfiguration(t *testing.T, s *stand) {
	before, hash := s.deployed(t), s.configHash(t)
	s.Apply(t, cloud(t, "ConfigMap", "port: 443", "port: many"))
	s.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionTrue, "spec.cloudConfig: it is not valid for VSphere")
	if is := s.deployed(t); is != before {
		t.Errorf("deployed:\n%s", is)
	}
	if is := s.configHash(t); is != hash {
		t.Errorf("it was rolled out: %s", is)
	}
}

func configurationRollsOut(t *testing.T, s *stand) {
	before := s.configHash(t)
	s.Apply(t, cloud(t, "ConfigMap", "port: 443", "port: 8443"))
	s.is(t, ccmv1alpha1.DegradedCondition, metav1.ConditionFalse, "")
	s.rolls(t, before)
	if is := s.deployed(t); !strings.Contains(is, "port: 8443") {
		t.Errorf("deployed:\n%s", is)
	}
}

func nothingIsLeft(t *testing.T, s *stand) {
	s.Kubectl(t, "delete", "ccm", "main", "--timeout=2m")
	err := s.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: manager}, &appsv1.Deployment{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Deployment is there: %v", err)
	}
}

// fromAConfigMap: it is followed while the operator runs.
func fromAConfigMap(t *testing.T, s *stand) {
	own := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "my-bundle"}, Data: s.bundle}
	must(t, s.client.Create(t.Context(), own))
	s.Apply(t, cloud(t, "CloudControllerManager", "provider: vsphere", "provider: vsphere\n  bundle: {configMap: my-bundle}\n  identity: {annotations: {example.test/role: nodes}}"))
	d := s.deployment(t, manager)
	if !ofTheExample(d) {
		t.Errorf("it is not of the ConfigMap: %+v", d.Spec.Template.Spec)
	}
	var account corev1.ServiceAccount
	must(t, s.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: bundle.Manager}, &account))
	if account.Annotations["example.test/role"] != "nodes" {
		t.Errorf("the account's annotations are %v", account.Annotations)
	}
	var m bundle.Metadata
	must(t, yaml.Unmarshal([]byte(own.Data[bundle.MetadataFile]), &m))
	c := m.Containers[bundle.Manager]
	c.Flags = []string{"--concurrent-node-syncs=7"}
	m.Containers[bundle.Manager] = c
	text, err := yaml.Marshal(m)
	must(t, err)
	own.Data[bundle.MetadataFile] = string(text)
	must(t, s.client.Update(t.Context(), own))
	eventually(t, "the new flag", func() (string, bool) {
		args := s.deployment(t, manager).Spec.Template.Spec.Containers[0].Args
		return strings.Join(args, " "), slices.Contains(args, c.Flags[0])
	})
}
