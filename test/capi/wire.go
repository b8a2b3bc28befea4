// SPDX-License-Identifier: Apache-2.0

package capi

import (
	"context"
	"encoding/base64"
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// providerLabel is on all that clusterctl installs.
const providerLabel = "cluster.x-k8s.io/provider"

// wired are the kinds that lead to webhooks, each with where it says so.
var wired = []struct {
	gvk     schema.GroupVersionKind
	clients func(object map[string]any) []map[string]any
}{
	{schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}, conversion},
	{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "MutatingWebhookConfiguration"}, webhooks},
	{schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingWebhookConfiguration"}, webhooks},
}

func conversion(object map[string]any) []map[string]any {
	webhook, found, _ := unstructured.NestedFieldNoCopy(object, "spec", "conversion", "webhook")
	if !found {
		return nil
	}
	return []map[string]any{webhook.(map[string]any)}
}

func webhooks(object map[string]any) []map[string]any {
	var list []map[string]any
	all, _ := object["webhooks"].([]any)
	for _, w := range all {
		list = append(list, w.(map[string]any))
	}
	return list
}

// Wire leads the webhooks of a provider to its port, as cert-manager and the
// Service do in a real cluster. It is to be repeated when clusterctl has
// written the manifests again.
func (m *Management) Wire(t testing.TB, provider, port string) {
	t.Helper()
	for _, kind := range wired {
		var list unstructured.UnstructuredList
		list.SetGroupVersionKind(kind.gvk)
		must(t, m.Client.List(context.Background(), &list, client.MatchingLabels{providerLabel: provider}), "list "+kind.gvk.Kind)
		for _, item := range list.Items {
			m.lead(t, &item, kind.clients(item.Object), port)
		}
	}
}

func (m *Management) lead(t testing.TB, item *unstructured.Unstructured, clients []map[string]any, port string) {
	t.Helper()
	if len(clients) == 0 {
		return
	}
	for _, c := range clients {
		path, _, _ := unstructured.NestedString(c, "clientConfig", "service", "path")
		if path != "" {
			m.services[item.GetName()], _, _ = unstructured.NestedMap(c, "clientConfig", "service")
		} else { // led already, to another manager
			path = pathOf(t, c)
		}
		c["clientConfig"] = map[string]any{
			"url":      "https://127.0.0.1:" + port + path,
			"caBundle": base64.StdEncoding.EncodeToString(m.CA()),
		}
	}
	must(t, m.Client.Update(context.Background(), item), "lead "+item.GetName()+" to its webhook")
}

func pathOf(t testing.TB, c map[string]any) string {
	t.Helper()
	text, _, _ := unstructured.NestedString(c, "clientConfig", "url")
	led, err := url.Parse(text)
	must(t, err, "read the URL of a webhook")
	return led.Path
}

// unwire gives the CRDs of a provider their Service back: clusterctl merges its
// manifests into them, and there may not be both.
func (m *Management) unwire(t testing.TB, provider string) {
	t.Helper()
	var list unstructured.UnstructuredList
	list.SetGroupVersionKind(wired[0].gvk)
	must(t, m.Client.List(context.Background(), &list, client.MatchingLabels{providerLabel: provider}), "list CRDs")
	for _, item := range list.Items {
		for _, c := range conversion(item.Object) {
			c["clientConfig"] = map[string]any{"service": m.services[item.GetName()]}
			must(t, m.Client.Update(context.Background(), &item), "give "+item.GetName()+" its Service back")
		}
	}
}

// Upgrade ends the manager of our provider and installs another version with
// clusterctl. The manager is then to be run again.
func (m *Management) Upgrade(t testing.TB, version string) {
	t.Helper()
	m.managers[Label].Kill()
	m.unwire(t, Label)
	m.Clusterctl(t, "upgrade", "apply", "--infrastructure", Name+":"+version)
}
