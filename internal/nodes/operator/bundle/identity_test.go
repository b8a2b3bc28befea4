// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

func identity() *bundle.Identity {
	return &bundle.Identity{
		Annotations: map[string]string{"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/nodes"}, PodLabels: map[string]string{"azure.workload.identity/use": "true"},
		Audience: "sts.amazonaws.com", Environment: map[string]string{"AWS_ROLE_ARN": "arn:aws:iam::1:role/nodes", "AWS_WEB_IDENTITY_TOKEN_FILE": bundle.IdentityToken},
	}
}

// TestIdentity is the accounts' and the managers', and of nothing else.
func TestIdentity(t *testing.T) {
	b := load(t, "assets/deployment.yaml", onBase+"spec: {template: {spec: {containers: [{name: cloud-controller-manager, env: [{name: AWS_ROLE_ARN, value: old}]}, {name: other, image: other}]}}}\n")
	objects := render(t, b, bundle.Values{Flavor: bundle.Kubernetes, Images: images(), Identity: identity()}).Resources
	for _, o := range objects {
		if a, is := o.(*corev1.ServiceAccount); is && a.Annotations["eks.amazonaws.com/role-arn"] == "" {
			t.Errorf("account %s: %v", a.Name, a.Annotations)
		}
	}
	d := find[*appsv1.Deployment](t, objects)
	if d.Spec.Template.Labels["azure.workload.identity/use"] != "true" || d.Labels["azure.workload.identity/use"] != "" || d.Spec.Selector.MatchLabels["azure.workload.identity/use"] != "" {
		t.Errorf("labels %v, of pods %v", d.Labels, d.Spec.Template.Labels)
	}
	pod := d.Spec.Template.Spec
	i := slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Projected != nil })
	if token := pod.Volumes[i].Projected.Sources[0].ServiceAccountToken; token.Audience != "sts.amazonaws.com" || *token.ExpirationSeconds != 3600 || token.Path != "token" {
		t.Errorf("token %+v", token)
	}
	for _, c := range pod.Containers {
		role := slices.IndexFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == "AWS_ROLE_ARN" && strings.HasPrefix(e.Value, "arn:") })
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == pod.Volumes[i].Name && m.ReadOnly && bundle.IdentityToken == m.MountPath+"/token"
		})
		if is := c.Name == bundle.Manager; is != (role >= 0) || is != mounted {
			t.Errorf("container %s: %v %v", c.Name, c.Env, c.VolumeMounts)
		}
		if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Value == "old" }) {
			t.Errorf("container %s has the variable twice: %v", c.Name, c.Env)
		}
	}
}

// TestIdentityWithoutAudience has no token: a webhook brings one.
func TestIdentityWithoutAudience(t *testing.T) {
	i := identity()
	i.Audience = ""
	d := find[*appsv1.Deployment](t, render(t, load(t), bundle.Values{Flavor: bundle.Kubernetes, Images: images(), Identity: i}).Resources)
	if slices.ContainsFunc(d.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Projected != nil }) {
		t.Error("there is a token")
	}
}

func TestBadIdentities(t *testing.T) {
	for want, change := range map[string]func(i *bundle.Identity){
		"identity: annotations: Invalid value":                  func(i *bundle.Identity) { i.Annotations = map[string]string{"a b": ""} },
		"podLabels: Invalid value":                              func(i *bundle.Identity) { i.PodLabels = map[string]string{"use": "not so"} },
		"podLabels: k8s-app is how pods are found":              func(i *bundle.Identity) { i.PodLabels = map[string]string{"k8s-app": "mine"} },
		`environment: "A=B"`:                                    func(i *bundle.Identity) { i.Environment = map[string]string{"A=B": ""} },
		"expirationSeconds 5: want at least 600":                func(i *bundle.Identity) { i.Seconds = 5 },
		"expirationSeconds: without audience there is no token": func(i *bundle.Identity) { i.Audience, i.Seconds = "", 900 },
	} {
		i := identity()
		change(i)
		_, err := load(t).Render(bundle.Values{Flavor: bundle.Kubernetes, Images: images(), Identity: i})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
