// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
)

func ccmOf(name string, age time.Duration, deletions int32, change ...func(*ccmv1alpha1.CloudControllerManager)) *ccmv1alpha1.CloudControllerManager {
	c := &ccmv1alpha1.CloudControllerManager{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))}}
	c.Spec.Provider, c.Spec.NodeDeletions = name, &ccmv1alpha1.NodeDeletions{Max: &deletions}
	for _, f := range change {
		f(c)
	}
	return c
}

func unguarded(c *ccmv1alpha1.CloudControllerManager) {
	c.Spec.NodeDeletions.Mode = ccmv1alpha1.Unguarded
}

func going(c *ccmv1alpha1.CloudControllerManager) {
	at := metav1.NewTime(time.Unix(1e9, 0))
	c.DeletionTimestamp, c.Finalizers = &at, []string{finalizer}
}

// TestLimits: what counts is what runs. One that waits for its turn neither loosens nor
// tightens anything, and one that is being removed counts until it is gone.
func TestLimits(t *testing.T) {
	aws := &configv1.Infrastructure{ObjectMeta: metav1.ObjectMeta{Name: "cluster"}}
	aws.Status.PlatformStatus = &configv1.PlatformStatus{Type: "AWS"}
	for name, c := range map[string]struct {
		objects            []client.Object
		openShift          bool
		guarded            bool
		deletions          int
		prefix, watchdogOf string
	}{
		"none":                         {},
		"one":                          {objects: []client.Object{ccmOf("libvirt", 0, 7)}, guarded: true, deletions: 7, prefix: "libvirt://", watchdogOf: "libvirt"},
		"a younger one":                {objects: []client.Object{ccmOf("docker", 0, 1), ccmOf("libvirt", time.Hour, 7)}, guarded: true, deletions: 7, prefix: "libvirt://", watchdogOf: "libvirt"},
		"a younger one, unguarded":     {objects: []client.Object{ccmOf("docker", 0, 1, unguarded), ccmOf("libvirt", time.Hour, 7)}, guarded: true, deletions: 7, prefix: "libvirt://", watchdogOf: "libvirt"},
		"unguarded, a younger one":     {objects: []client.Object{ccmOf("docker", 0, 1), ccmOf("libvirt", time.Hour, 7, unguarded)}, watchdogOf: "libvirt"},
		"being removed, a younger one": {objects: []client.Object{ccmOf("docker", 0, 1), ccmOf("libvirt", time.Hour, 7, going)}, guarded: true, deletions: 7, prefix: "libvirt://"},
		"a platform, unguarded":        {objects: []client.Object{aws, ccmOf("libvirt", 0, 7)}, openShift: true, watchdogOf: "aws"},
	} {
		scheme := runtime.NewScheme()
		if err := configv1.Install(scheme); err != nil {
			t.Fatal(err)
		}
		if err := ccmv1alpha1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		set, err := bundles.Set()
		if err != nil {
			t.Fatal(err)
		}
		n := &operator{
			client: fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(c.objects...).Build(),
			o:      &Options{Bundles: set}, apis: apis{ccm: true, openShift: c.openShift},
		}
		l, guarded, err := n.guarded(t.Context())
		if err != nil || guarded != c.guarded || guarded && (l.Deletions != c.deletions || l.Prefixes[0] != c.prefix || len(l.Prefixes) != 2) {
			t.Errorf("%s: guarded %t, %+v, %v", name, guarded, l, err)
		}
		if o, expected, err := n.owner(t.Context()); err != nil || o.Provider != c.watchdogOf || expected != (c.watchdogOf != "") {
			t.Errorf("%s: Nodes are of %q, %t, %v", name, o.Provider, expected, err)
		}
		n.notes.removed.Store(types.UID("libvirt"), true)
		if l, guarded, err := n.guarded(t.Context()); err != nil || guarded && l.Prefixes[0] != "docker://" {
			t.Errorf("%s, with nothing left of libvirt: guarded %t, %+v, %v", name, guarded, l, err)
		}
	}
}
