// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/test/capi"
)

// storedInTheOtherVersion: objects were stored when v1beta1 was the version for
// that, and nobody has migrated them. They lose nothing, are reconciled, changed
// and deleted, and the API server does not let go of that version.
func (k kinds) storedInTheOtherVersion(t *testing.T) {
	const crd, object = "outriggermachines" + group, "outriggermachines.v1beta2" + group + "/unmigrated"
	k.store(t, crd, "v1beta1")
	k.m.Apply(t, `{"apiVersion":"infrastructure.cluster.x-k8s.io/v1beta2","kind":"OutriggerMachine",
		"metadata":{"name":"unmigrated","namespace":"default","finalizers":["outriggermachine.infrastructure.cluster.x-k8s.io"]},"spec":{"vcpus":2,"tags":{"a":"b"}}}`)
	k.m.Kubectl(t, "patch", object, "--subresource=status", "--type=merge", "-p", `{"status":{"step":"CreateInstance","failureDomain":"a"}}`)
	k.store(t, crd, "v1beta2")
	if stored := k.m.Kubectl(t, "get", "crd", crd, "-o", "jsonpath={.status.storedVersions}"); !strings.Contains(stored, "v1beta1") {
		t.Fatalf("the versions stored are %s: there is nothing to see", stored)
	}
	read := func(want string) {
		t.Helper()
		if got := k.m.Kubectl(t, "get", object, "-o", "jsonpath={.spec.vcpus} {.spec.tags.a} {.status.step} {.status.failureDomain} {.spec.image}"); got != want {
			t.Errorf("it is read as %q, want %q", got, want)
		}
	}
	read("2 b CreateInstance a ")
	k.m.Kubectl(t, "patch", object, "--type=merge", "-p", `{"spec":{"image":"other"}}`)
	read("2 b CreateInstance a other")
	if _, err := k.m.TryKubectl("patch", "crd", crd, "--type=json", "-p", `[{"op":"remove","path":"/spec/versions/0"}]`); err == nil {
		t.Error("a version in which objects are stored can be taken away")
	}
	k.m.Kubectl(t, "delete", object, "--timeout=4m") // the manager takes its finalizer away
}

// store has an API server store the objects of a kind in a version from now on.
func (k kinds) store(t *testing.T, name, version string) {
	t.Helper()
	capi.Eventually(t, name+" to be stored as "+version, func(ctx context.Context) error {
		crd := &unstructured.Unstructured{}
		crd.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
		if err := k.m.Client.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		if err != nil {
			return err
		}
		for _, v := range versions {
			v := v.(map[string]any)
			v["storage"] = v["name"] == version
		}
		if err := unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		if err := k.m.Client.Update(ctx, crd); err != nil {
			return err
		}
		stored, _, err := unstructured.NestedStringSlice(crd.Object, "status", "storedVersions")
		if err == nil && !slices.Contains(stored, version) {
			err = errors.New("stored so far are " + strings.Join(stored, ", "))
		}
		return err
	})
}
