// SPDX-License-Identifier: Apache-2.0

//go:build integration

package apply

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func configHash(p *place) {
	uses := func() []client.Object {
		return []client.Object{p.deployment("d", func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.InitContainers = []corev1.Container{{Name: "i", Image: "example.test/image", Env: []corev1.EnvVar{{
				Name: "V", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k", LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
			}}}}
			d.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "used"}},
			}}}
		})}
	}
	used, unrelated := p.configMap("used", "k", "1"), p.configMap("unrelated", "k", "1")
	secret := &corev1.Secret{ObjectMeta: p.meta("secret"), StringData: map[string]string{"k": "1"}}
	for _, o := range []client.Object{used, unrelated, secret} {
		p.must(p.Client.Create(p.Context(), o))
	}
	p.sync(uses(), "Deployment config-hash/d")
	unrelated.Data["k"] = "2"
	p.must(p.Client.Update(p.Context(), unrelated))
	p.sync(uses())
	last := ""
	for _, change := range []func(){
		func() { used.Data["k"] = "2"; p.must(p.Client.Update(p.Context(), used)) },
		func() { secret.StringData = map[string]string{"k": "2"}; p.must(p.Client.Update(p.Context(), secret)) },
	} {
		change()
		p.sync(uses(), "Deployment config-hash/d")
		// One that conflicts with the Deployment's controller is repeated; none is tried before.
		if want := []string{"update d"}; !slices.Equal(slices.Compact(p.writes), want) {
			p.Errorf("the writes, trials included, are %q, want %q", p.writes, want)
		}
		p.sync(uses()) // it is what was expected
		var d appsv1.Deployment
		p.get(&d, "d")
		if hash := d.Spec.Template.Annotations[ConfigHashAnnotation]; hash == last || len(hash) != 64 {
			p.Errorf("hash %q after %q", hash, last)
		} else {
			last = hash
		}
	}
}

func missingConfig(p *place) {
	optional := true
	objects := []client.Object{p.deployment("d", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "absent"}}},
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "may-be"}, Optional: &optional}},
		}
	})}
	r := p.sync(objects, "Deployment missing-config/d")
	if want := []string{"Secret missing-config/absent, wanted by Deployment d"}; !slices.Equal(r.Missing, want) {
		p.Errorf("missing %q, want %q", r.Missing, want)
	}
	p.sync(objects)
	if told := slices.DeleteFunc(p.events.reasons, func(r string) bool { return r != ReasonConfigMissing }); len(told) != 1 {
		p.Errorf("two passes told %q", told)
	}
	var d appsv1.Deployment
	p.get(&d, "d")
	if hash, has := d.Spec.Template.Annotations[ConfigHashAnnotation]; has {
		p.Errorf("it has the hash %q", hash)
	}
	// Removed, and made again: the pods that run do not end meanwhile.
	secret := func() *corev1.Secret {
		return &corev1.Secret{ObjectMeta: p.meta("absent"), StringData: map[string]string{"k": "1"}}
	}
	p.must(p.Client.Create(p.Context(), secret()))
	p.sync(objects, "Deployment missing-config/d")
	p.must(p.Client.Delete(p.Context(), secret()))
	if r := p.sync(objects); len(r.Missing) != 1 {
		p.Errorf("missing %q", r.Missing)
	}
	p.must(p.Client.Create(p.Context(), secret()))
	p.sync(objects)
}
