// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
)

// TestR2EmbeddedBundlesKeepTheRules looks at each bundle in each rendering.
func TestR2EmbeddedBundlesKeepTheRules(t *testing.T) {
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range set {
		findings, err := Bundle(b)
		if err != nil {
			t.Error(err)
		}
		for _, f := range findings {
			t.Errorf("%s, %s, single replica %t: %s: rule %d %s: %s", b.Name, f.Flavor, f.SingleReplica, f.Object, f.Rule.Number, f.Rule.Name, f.Problem)
		}
	}
}

// broken are what each rule objects to, and no other rule does.
var broken = []struct {
	rule    int
	what    string
	violate func(d *appsv1.Deployment, c *corev1.Container, f bundle.Flavor)
}{
	{1, "no toleration of uninitialized", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		without(d, "node.cloudprovider.kubernetes.io/uninitialized")
	}},
	{1, "no toleration of not-ready", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		without(d, "node.kubernetes.io/not-ready")
	}},
	{1, "toleration of another effect", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		all := d.Spec.Template.Spec.Tolerations
		all[tolerating(all, "node.cloudprovider.kubernetes.io/uninitialized")].Effect = corev1.TaintEffectNoExecute
	}},
	{2, "the pods' network", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		d.Spec.Template.Spec.HostNetwork = false
	}},
	{3, "another port", func(_ *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) { c.Ports[0].ContainerPort = 10263 }},
	{3, "no port", func(_ *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) { c.Ports = nil }},
	{4, "the node's folder is missing, or is there", func(d *appsv1.Deployment, _ *corev1.Container, f bundle.Flavor) {
		v := &d.Spec.Template.Spec.Volumes
		if f == bundle.OpenShift {
			*v = slices.DeleteFunc(*v, func(v corev1.Volume) bool { return v.Name == "host-etc-kube" })
			return
		}
		*v = append(*v, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/kubernetes/"}}})
	}},
	{5, "a shell where none belongs, or none", func(_ *appsv1.Deployment, c *corev1.Container, f bundle.Flavor) {
		if f == bundle.OpenShift {
			c.Command = append([]string{"/bin/cloud"}, flagWords(c)...)
			return
		}
		c.Command, c.Args = []string{"/bin/sh", "-c", strings.Join(append(c.Command, c.Args...), " ")}, nil
	}},
	{6, "no message", func(_ *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) { c.TerminationMessagePolicy = "" }},
	{7, "another duration", func(_ *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) { replace(c, "=137s", "=15s") }},
	{7, "another namespace", func(_ *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) {
		replace(c, "="+namespace, "=kube-system")
	}},
	{8, "routes", func(_ *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) {
		replace(c, "configure-cloud-routes=false", "configure-cloud-routes=true")
	}},
	{9, "no authorities", func(d *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == "trusted-ca" })
	}},
	{9, "other authorities", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		for i := range d.Spec.Template.Spec.Volumes {
			if v := &d.Spec.Template.Spec.Volumes[i]; v.Name == "trusted-ca" {
				v.ConfigMap.Name = "other"
			}
		}
	}},
	{10, "one account for all", func(_ *appsv1.Deployment, c *corev1.Container, _ bundle.Flavor) {
		replace(c, "use-service-account-credentials=true", "use-service-account-credentials=false")
	}},
	{11, "no anti-affinity", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) { d.Spec.Template.Spec.Affinity = nil }},
	{11, "another topology", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		d.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = corev1.LabelTopologyZone
	}},
	{11, "other labels", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		d.Spec.Template.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels = map[string]string{"a": "b"}
	}},
	{12, "a rolling update", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		d.Spec.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}},
	{13, "pods of another platform", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		d.Spec.Template.Labels["infrastructure.openshift.io/cloud-controller-manager"] = "GCP"
	}},
	{13, "a selector without the app", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) {
		delete(d.Spec.Selector.MatchLabels, "k8s-app")
	}},
	{14, "three replicas", func(d *appsv1.Deployment, _ *corev1.Container, _ bundle.Flavor) { d.Spec.Replicas = ptr.To[int32](3) }},
}

// tolerating is where a taint is tolerated that keeps pods away.
func tolerating(all []corev1.Toleration, taint string) int {
	return slices.IndexFunc(all, func(t corev1.Toleration) bool { return t.Key == taint && t.Effect == corev1.TaintEffectNoSchedule })
}

func without(d *appsv1.Deployment, taint string) {
	all := &d.Spec.Template.Spec.Tolerations
	at := tolerating(*all, taint)
	*all = slices.Delete(*all, at, at+1)
}

// replace changes the text of a flag, wherever it is.
func replace(c *corev1.Container, from, to string) {
	for _, list := range [][]string{c.Command, c.Args} {
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], from, to)
		}
	}
}

func flagWords(c *corev1.Container) []string {
	var words []string
	for name, value := range flags(c) {
		words = append(words, "--"+name+"="+value)
	}
	return words
}

// TestEachBrokenRuleIsRed breaks one thing at a time: its rule objects, and no
// other.
func TestEachBrokenRuleIsRed(t *testing.T) {
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	aws, err := set.Named("aws")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[int]bool{15: true} // by TestRenderingsThatDiffer
	for _, b := range broken {
		shown[b.rule] = true
		for _, flavor := range bundle.Flavors {
			t.Run(fmt.Sprintf("%d %s %s", b.rule, b.what, flavor), func(t *testing.T) {
				c := Context{Platform: "AWS", Namespace: namespace, Flavor: flavor}
				objects := render(t, aws, c)
				d := deployment(t, objects)
				b.violate(d, &d.Spec.Template.Spec.Containers[0], flavor)
				if got := numbers(Check(objects, c)); !slices.Equal(got, []int{b.rule}) {
					t.Errorf("rules %v object, want %d alone", got, b.rule)
				}
			})
		}
	}
	if len(shown) != len(Rules()) {
		t.Errorf("%d of %d rules are shown to object", len(shown), len(Rules()))
	}
}

func render(t *testing.T, b *bundle.Bundle, c Context) []client.Object {
	t.Helper()
	objects, err := b.Resources(values(b, c, true))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func deployment(t *testing.T, objects []client.Object) *appsv1.Deployment {
	t.Helper()
	for _, o := range objects {
		if d, is := o.(*appsv1.Deployment); is {
			return d
		}
	}
	t.Fatal("there is no Deployment")
	return nil
}

func numbers(findings []Finding) []int {
	found := map[int]bool{}
	for _, f := range findings {
		found[f.Rule.Number] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// TestRulesOfDaemonSets breaks what only a DaemonSet, or an init container, has.
func TestRulesOfDaemonSets(t *testing.T) {
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	azure, err := set.Named("azure")
	if err != nil {
		t.Fatal(err)
	}
	for rule, violate := range map[int]func(d *appsv1.DaemonSet, p *corev1.PodSpec){
		1: func(_ *appsv1.DaemonSet, p *corev1.PodSpec) { p.Tolerations = p.Tolerations[1:] },
		3: func(_ *appsv1.DaemonSet, p *corev1.PodSpec) { p.Containers[0].Ports[0].ContainerPort = 10258 },
		4: func(_ *appsv1.DaemonSet, p *corev1.PodSpec) { p.Containers[0].VolumeMounts[0].ReadOnly = false },
		6: func(_ *appsv1.DaemonSet, p *corev1.PodSpec) { p.InitContainers[0].TerminationMessagePolicy = "" },
		13: func(d *appsv1.DaemonSet, _ *corev1.PodSpec) {
			d.Labels["infrastructure.openshift.io/cloud-node-manager"] = "AWS"
		},
	} {
		c := Context{Platform: "Azure", Namespace: namespace, Flavor: bundle.OpenShift}
		objects := render(t, azure, c)
		i := slices.IndexFunc(objects, func(o client.Object) bool { _, is := o.(*appsv1.DaemonSet); return is })
		d := objects[i].(*appsv1.DaemonSet)
		violate(d, &d.Spec.Template.Spec)
		if got := numbers(Check(objects, c)); !slices.Equal(got, []int{rule}) {
			t.Errorf("rules %v object, want %d alone", got, rule)
		}
	}
}

// TestRenderingsThatDiffer is rule 15.
func TestRenderingsThatDiffer(t *testing.T) {
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	c := Context{Namespace: namespace, Flavor: bundle.OpenShift}
	aws, _ := set.Named("aws")
	render := func(all bool) bundle.Rendered {
		r, err := aws.Render(values(aws, c, all))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if got := numbers(independent(render(true), render(false), c)); !slices.Equal(got, []int{15}) {
		t.Errorf("rules %v object, want 15", got)
	}
	if got := independent(render(true), render(true), c); len(got) > 0 {
		t.Errorf("a rendering differs from the same again: %v", got)
	}
	shared := render(true)
	if got := numbers(independent(shared, shared, c)); !slices.Equal(got, []int{15}) {
		t.Errorf("rules %v object to renderings that share objects, want 15", got)
	}
}

func TestABundleWithoutOperandsIsNoGoodBundle(t *testing.T) {
	b, err := bundle.Load("empty", fstest.MapFS{
		"bundle.yaml":        {Data: []byte("apiVersion: ccm.outrigger.dev/v1alpha1\nkind: Bundle\nplatform: X\nprovider: x\ncontainers: {cloud-controller-manager: {image: x}}\n")},
		"assets/config.yaml": {Data: []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Bundle(b); err == nil || !strings.Contains(err.Error(), "nothing to look at") {
		t.Errorf("the error is %v", err)
	}
}

func TestRulesSayWhatAndHow(t *testing.T) {
	names := map[string]bool{}
	for i, r := range Rules() {
		if r.Number != i+1 || r.Name == "" || names[r.Name] || !strings.HasSuffix(r.Sentence, ".") || r.Fix == "" {
			t.Errorf("rule %d: %+v", i+1, r)
		}
		names[r.Name] = true
	}
}
