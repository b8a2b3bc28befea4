// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
	"github.com/outrigger/outrigger/internal/nodes/operator/controller"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/test/cluster"
)

// TestDiff asks a real API server: before an installation, after it, and after
// somebody changed something. It never writes.
func TestDiff(t *testing.T) {
	plane := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	t.Setenv("KUBECONFIG", plane.Kubeconfig)
	c, err := client.New(plane.RESTConfig(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ccm"}}); err != nil {
		t.Fatal(err)
	}
	args := []string{"diff", "--platform", "libvirt", "--flavor", "kubernetes", "--namespace", "ccm", "--image", "cloudControllerManagerOutrigger=r/i:1"}
	if code, _, stderr := call(t, append(args, "--namespace=nowhere")...); code != program.ExitUsage || !strings.Contains(stderr, "--namespace: there is no namespace nowhere at https://") {
		t.Errorf("no namespace: exit code %d, %s", code, stderr)
	}
	code, out, stderr := call(t, args...)
	if code != program.ExitError || stderr != "" || strings.Count(out, "+kind: ") != 11 || strings.Contains(out, "\n-  ") {
		t.Fatalf("before: exit code %d, %s\n%s", code, stderr, out)
	}
	var d appsv1.Deployment
	key := client.ObjectKey{Namespace: "ccm", Name: "libvirt-cloud-controller-manager"}
	if err := c.Get(t.Context(), key, &d); err == nil {
		t.Fatal("it wrote the Deployment")
	}
	install(t, c)
	if code, out, stderr := call(t, args...); code != program.ExitOK || out != "" {
		t.Fatalf("after: exit code %d, %s\n%s", code, stderr, out)
	}
	// Its controller writes status meanwhile.
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		if err := c.Get(t.Context(), key, &d); err != nil {
			return err
		}
		d.Labels["mine"], d.Spec.Template.Spec.Containers[0].Image = "stays", "r/other:1"
		return c.Update(t.Context(), &d)
	})
	if err != nil {
		t.Fatal(err)
	}
	code, out, _ = call(t, args...)
	if code != program.ExitError || !strings.Contains(out, "-        image: r/other:1\n+        image: r/i:1\n") || strings.Contains(out, "mine: stays\n-") || strings.Count(out, "+++ ") != 1 {
		t.Errorf("changed: exit code %d\n%s", code, out)
	}
	left(t, c, "main", "former", bundle.CloudConfig)
	code, out, stderr = call(t, args...)
	if code != program.ExitError || strings.Count(out, "+++ ") != 2 || !strings.Contains(out, "--- ConfigMap ccm/former of the cluster\n+++ ConfigMap ccm/former of the bundle\n") || !strings.Contains(out, "-data:\n-  key: former\n") {
		t.Errorf("something is to be removed: exit code %d, %s\n%s", code, stderr, out)
	}
	left(t, c, "second", "other")
	if code, _, stderr := call(t, args...); code != program.ExitUsage || !strings.Contains(stderr, "there are inventories of the CloudControllerManagers main, second: give --ccm") {
		t.Errorf("two inventories: exit code %d, %s", code, stderr)
	}
	if _, out, _ := call(t, append(args, "--ccm", "second")...); !strings.Contains(out, "+++ ConfigMap ccm/other of the bundle\n") || strings.Contains(out, "ccm/former") {
		t.Errorf("of the second:\n%s", out)
	}
}

// left makes ConfigMaps that a CloudControllerManager has deployed once.
func left(t *testing.T, c client.Client, manager string, names ...string) {
	t.Helper()
	a := &apply.Applier{Client: c, Manager: name, Inventory: client.ObjectKey{Namespace: "ccm", Name: controller.Inventory(manager)}}
	var objects []client.Object
	for _, n := range names {
		objects = append(objects, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ccm", Name: n}, Data: map[string]string{"key": n}})
	}
	if _, err := a.Sync(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
}

func install(t *testing.T, c client.Client) {
	t.Helper()
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.Named("libvirt")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := b.Resources(bundle.Values{Flavor: bundle.Kubernetes, Namespace: "ccm", Images: bundle.Images{"cloudControllerManagerOutrigger": "r/i:1"}})
	if err != nil {
		t.Fatal(err)
	}
	a := &apply.Applier{Client: c, Manager: name, Inventory: client.ObjectKey{Namespace: "ccm", Name: "inventory"}}
	if _, err := a.Sync(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
}
