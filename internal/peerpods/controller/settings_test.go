// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func (s *stand) write(config map[string]string, secret map[string]string) {
	s.t.Helper()
	data := map[string][]byte{}
	for key, value := range secret {
		data[key] = []byte(value)
	}
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: ConfigMapName}, Data: config}
	sec := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: SecretName}, Data: data}
	s.client.Delete(s.t.Context(), cm.DeepCopy())
	s.client.Delete(s.t.Context(), sec.DeepCopy())
	if err := s.client.Create(s.t.Context(), cm); err != nil {
		s.t.Fatal(err)
	}
	if secret == nil {
		return
	}
	if err := s.client.Create(s.t.Context(), sec); err != nil {
		s.t.Fatal(err)
	}
}

func TestSettingsNameTheMissingKey(t *testing.T) {
	s := newStand(t, nil)
	settings := &Settings{s.r}
	pp, _ := s.run("web", "s1")
	s.write(map[string]string{"CLOUD_PROVIDER": "fake"}, nil)
	result, err := settings.Reconcile(t.Context(), reconcile.Request{})
	if err != nil || result.RequeueAfter == 0 {
		t.Fatal(result, err)
	}
	s.events.want(t, "ConfigMap/peer-pods-cm Warning ProviderNotConfigured", "FAKE_TOKEN", "there is no Secret peer-pods-secret")
	// What worked before goes on.
	s.delete(pp)
	s.settle(pp)
	s.wantInstances()
}

func TestSettingsOnceRightRetryWhatFailed(t *testing.T) {
	s := newStand(t, nil)
	settings := &Settings{s.r}
	pp, _ := s.run("web", "s1")
	s.delete(pp)
	s.write(map[string]string{"CLOUD_PROVIDER": "fake"}, map[string]string{"FAKE_TOKEN": "new"})
	if _, err := settings.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	if s.queue.Len() != 1 {
		t.Errorf("%d PeerPods queued by new settings, want the one in deletion", s.queue.Len())
	}
}
