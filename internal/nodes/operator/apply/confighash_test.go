// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"context"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"
)

// TestConfigHashIsOfTheCacheThatWakes: a manager has two caches of ConfigMaps,
// and the events of one of them wake the operator. The other may know of a
// change only when the operator has looked and gone.
func TestConfigHashIsOfTheCacheThatWakes(t *testing.T) {
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "clouds", Name: "cloud-conf"}, Data: map[string]string{"cloud.conf": "before"}}
	late := cm.DeepCopy()
	c := interceptor.NewClient(fake.NewClientBuilder().WithObjects(cm).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if u, is := o.(*unstructured.Unstructured); is && u.GetKind() == "ConfigMap" {
				return unstructured.SetNestedStringMap(u.Object, late.Data, "data")
			}
			return c.Get(ctx, key, o, opts...)
		},
	})
	a := &Applier{Client: c}
	before := hashOfPods(t, a)
	cm.Data["cloud.conf"] = "after"
	if err := c.Update(t.Context(), cm); err != nil {
		t.Fatal(err)
	}
	if after := hashOfPods(t, a); before == "" || after == before {
		t.Errorf("the hash is %q before a change and %q after it", before, after)
	}
}

func hashOfPods(t *testing.T, a *Applier) string {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: clouds, name: ccm},
spec: {template: {spec: {volumes: [{name: c, configMap: {name: cloud-conf}}]}}}}`), &o.Object); err != nil {
		t.Fatal(err)
	}
	if missing, err := a.addConfigHash(t.Context(), o); err != nil || len(missing) > 0 {
		t.Fatalf("missing %q, error %v", missing, err)
	}
	hash, _, _ := unstructured.NestedString(o.Object, "spec", "template", "metadata", "annotations", ConfigHashAnnotation)
	return hash
}

// TestSources: wherever a pod can name a ConfigMap or Secret. What one container cannot do
// without is needed, though others can.
func TestSources(t *testing.T) {
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(`spec: {template: {metadata: {labels: {secret: no}}, spec: {
nodeSelector: {configMap: no}, imagePullSecrets: [{name: pull}],
volumes: [{name: a, configMap: {name: volume}}, {name: b, secret: {secretName: volume, optional: true}},
  {name: c, projected: {sources: [{configMap: {name: projected}}, {secret: {name: projected, optional: true}}]}}],
initContainers: [{name: d, envFrom: [{configMapRef: {name: all}}, {secretRef: {name: all}}]}],
containers: [{name: e, env: [{name: A, valueFrom: {configMapKeyRef: {name: key, key: k, optional: true}}}, {name: B, valueFrom: {secretKeyRef: {name: key, key: k}}}],
  envFrom: [{configMapRef: {name: all, optional: true}}]}]}}}`), &o.Object); err != nil {
		t.Fatal(err)
	}
	got, err := sourcesOf(o)
	want := sources{
		{"ConfigMap", "volume"}: false, {"Secret", "volume"}: true, {"ConfigMap", "projected"}: false, {"Secret", "projected"}: true,
		{"ConfigMap", "all"}: false, {"Secret", "all"}: false, {"ConfigMap", "key"}: true, {"Secret", "key"}: false,
	}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
