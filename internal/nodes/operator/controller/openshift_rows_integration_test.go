// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
	crds "github.com/outrigger/outrigger/test/openshift"
)

// brittle makes each failure count at once.
func brittle(o *Options) { o.DegradedAfter = 0 }

// notYet wants the operator to look and to find that it is not done, without
// anything being wrong.
func (w *world) notYet(t *testing.T, p *running, what string) {
	t.Helper()
	p.looks(t)
	is := w.conditions(t)
	if is["Available"] != "" || !strings.HasPrefix(is["Progressing"], "True/") || len(w.operator(t).Status.Versions) > 0 {
		t.Errorf("%s: %v, versions %v", what, is, w.operator(t).Status.Versions)
	}
	eventually(t, what+" and nothing wrong", func() (string, bool) {
		is := w.conditions(t)["CloudControllerManagerWarning"]
		return is, !strings.HasPrefix(is, "True/"+status.ReasonFailed)
	})
}

func deployments(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	p := w.start(t, onClusterOperator, often)
	w.deployment(t, awsDeployment)
	w.want(t, map[string]string{"Progressing": "True/SyncingResources/Progressing towards operator: " + release})
	w.notYet(t, p, "no conditions")
	for _, c := range []struct {
		behind int64
		status corev1.ConditionStatus
		reason string
		// pods, and those of them that are of the rollout before
		all, old int32
	}{
		{1, corev1.ConditionTrue, "NewReplicaSetAvailable", 1, 0}, {0, corev1.ConditionTrue, "ReplicaSetUpdated", 1, 0}, {0, corev1.ConditionTrue, "FoundNewReplicaSet", 1, 0},
		{1, corev1.ConditionFalse, "ProgressDeadlineExceeded", 1, 0},                                                         // C2: of an older generation
		{0, corev1.ConditionTrue, "NewReplicaSetAvailable", 2, 2}, {0, corev1.ConditionTrue, "NewReplicaSetAvailable", 0, 0}, // Recreate removes
	} {
		d := w.deployment(t, awsDeployment)
		was := d.DeepCopy()
		d.Status.ObservedGeneration, d.Status.Replicas, d.Status.UpdatedReplicas = d.Generation-c.behind, c.all, c.all-c.old
		d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: c.status, Reason: c.reason}}
		must(t, w.client.Status().Patch(t.Context(), d, client.MergeFrom(was)))
		w.notYet(t, p, c.reason)
	}
	w.rolledOut(t, awsDeployment)
	w.want(t, settled)
}

func daemonSets(t *testing.T, w *world) {
	w.platform(t, "Azure")
	w.synced(t)
	w.configured(t)
	p := w.start(t, onClusterOperator, often)
	w.want(t, map[string]string{"Progressing": "True/SyncingResources/Progressing towards operator: " + release})
	w.rolledOut(t, "azure-cloud-controller-manager")
	var d appsv1.DaemonSet
	for _, c := range []struct {
		what                          string
		current, updated, unavailable int32
	}{{"none scheduled", 0, 0, 0}, {"one is old", 2, 1, 0}} {
		must(t, w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: "azure-cloud-node-manager"}, &d))
		w.scheduled(t, &d, c.current, c.updated, c.unavailable)
		w.notYet(t, p, c.what)
	}
	// Unavailable, misscheduled and still to come on a new node: done.
	must(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(&d), &d))
	w.scheduled(t, &d, 2, 2, 2)
	w.want(t, settled)
}

// statusKept: an operator that was told no release has a version anyway; what
// was there stays; what installers once said goes; times say when a status
// became what it is.
func statusKept(t *testing.T, w *world) {
	w.platform(t, "BareMetal")
	long := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	for _, owner := range []configv1.ClusterOperatorStatusCondition{{Type: status.OwnerCondition, Status: "True"}, {Type: status.OwnerCondition, Status: "False"}} {
		must(t, w.client.DeleteAllOf(t.Context(), &configv1.ClusterOperator{}))
		o := &configv1.ClusterOperator{ObjectMeta: metav1.ObjectMeta{Name: status.Name}}
		must(t, w.client.Create(t.Context(), o))
		owner.LastTransitionTime = long
		o.Status.Conditions = []configv1.ClusterOperatorStatusCondition{
			owner, {Type: "Foreign", Status: "True", LastTransitionTime: long}, {Type: configv1.OperatorAvailable, Status: "True", LastTransitionTime: long},
		}
		must(t, w.client.Status().Update(t.Context(), o))
		w.synced(t)
		p := w.start(t, onClusterOperator, func(o *Options) { o.Release = openshift.UnknownVersion })
		w.want(t, map[string]string{"Available": "True/AsExpected/Cluster Cloud Controller Manager Operator is available at unknown", "CloudControllerOwner": "", "Foreign": "True//"})
		is := w.operator(t)
		if is.UID != o.UID || is.Status.Versions[0].Version != "unknown" {
			t.Errorf("%+v", is)
		}
		at := slices.IndexFunc(is.Status.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == configv1.OperatorAvailable })
		if since := is.Status.Conditions[at].LastTransitionTime; !since.Equal(&long) {
			t.Errorf("available since %s, and it was since %s", since, long)
		}
		p.stop()
	}
}

// notBefore: a failure that passes is told, and counts when it has lasted; success
// ends it.
func notBefore(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.configured(t)
	broken := func() {
		for _, s := range []status.Sync{status.CloudConfig, status.TrustedCA} {
			must(t, status.NewSync(s, w.client, w.client).Degraded(t.Context(), errors.New("x")))
		}
	}
	const why = "failed to check if provisioning is allowed: " +
		"failed to apply resources because CloudConfigControllerDegraded condition is set to True: Cloud Config Controller failed to sync cloud config; " +
		"failed to apply resources because TrustedCABundleControllerControllerDegraded condition is set to True: Trusted CA Bundle Controller failed to sync cloud config"
	broken()
	p := w.start(t, onClusterOperator)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "True/SyncingFailed/" + why, "Degraded": ""})
	w.synced(t)
	w.settles(t)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "False/AsExpected/"})
	p.stop()
	broken()
	w.start(t, onClusterOperator, brittle)
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed to resync for operator: " + release + " because " + why, "Upgradeable": "False/AsExpected/"})
	w.want(t, map[string]string{"Available": settled["Available"]})
	w.synced(t)
	w.want(t, settled)
}

// noStorm: what only a change can end is not tried again before one. Others would be
// ten times a second, so that there is no moment of rest.
func noStorm(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	w.writeImages(t, map[string]string{})
	p := w.start(t, onClusterOperator, brittle)
	w.want(t, map[string]string{
		"Degraded":                      "True/SyncingFailed/Failed when progressing towards operator: " + release + " because terminal error: ...",
		"CloudControllerManagerWarning": "True/SyncingFailed/terminal error: ...",
	})
	p.still(t, func() {})
}

// proxies: what a Proxy does not have is not set.
func proxies(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	w.start(t, onClusterOperator)
	all := []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
	for _, c := range []struct {
		status string
		want   []string
	}{
		{"", nil}, {"httpProxy: http://a", all[:1]}, {"httpsProxy: http://b, noProxy: c", all[1:]}, {"httpProxy: http://a, httpsProxy: http://b, noProxy: c", all}, {"", nil},
	} {
		if c.status != "" {
			w.proxy(t, c.status)
		} else {
			must(t, w.client.DeleteAllOf(t.Context(), &configv1.Proxy{}))
		}
		eventually(t, "proxy "+c.status, func() (string, bool) {
			var is []string
			for _, e := range w.deployment(t, awsDeployment).Spec.Template.Spec.Containers[0].Env {
				if slices.Contains(all, e.Name) {
					is = append(is, e.Name)
				}
			}
			return strings.Join(is, " "), slices.Equal(is, c.want)
		})
	}
}

func imageFiles(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	must(t, os.Remove(w.images))
	w.start(t, onClusterOperator, often)
	const failed = "True/SyncingFailed/Failed when progressing towards operator: " + release + " because terminal error: failed to build operator config: "
	w.want(t, map[string]string{"Degraded": failed + "unable to read --images-json: ..."})
	for _, c := range []struct{ text, degraded string }{
		{`[]`, "unable to decode images content from --images-json ..."},
		{`{"cloudControllerManagerGCP": "x"}`, "aws: missed images in config: cloudControllerManagerAWS"},
		{`{"cloudControllerManagerAWS": ""}`, "aws: missed images in config: cloudControllerManagerAWS"},
	} {
		must(t, os.WriteFile(w.images, []byte(c.text), 0o600))
		w.want(t, map[string]string{"Degraded": failed + c.degraded})
	}
	must(t, os.WriteFile(w.images, []byte(`{"unknown": "x", "cloudControllerManagerAWS": "example.test/first", "cloudControllerManagerAWS": "example.test/last"}`), 0o600))
	if is := imageOf(w.deployment(t, awsDeployment)); is != "example.test/last" {
		t.Errorf("image %q", is)
	}
	w.settles(t)
}

// halfInfrastructure: what an Infrastructure lacks is named, and nothing panics.
func halfInfrastructure(t *testing.T, w *world) {
	w.gates(t, release)
	w.synced(t)
	w.configured(t)
	const failed = "True/SyncingFailed/Failed when progressing towards operator: " + release + " because terminal error: failed to build operator config: "
	w.infrastructure(t, "HighlyAvailable", "")
	w.start(t, onClusterOperator)
	w.want(t, map[string]string{"Degraded": failed + "platform status is not populated on infrastructure"})
	w.infrastructure(t, "HighlyAvailable", `type: ""`)
	w.want(t, map[string]string{"Degraded": failed + "no platform provider found on infrastructure"})
	// Azure's own part may be missing: then it is the public cloud.
	w.infrastructure(t, "HighlyAvailable", "type: Azure")
	w.settles(t)
	w.has(t, append([]string{"Service clouds/azure-cloud-controller-manager", "PodDisruptionBudget clouds/azure-cloud-controller-manager"}, platforms[1].has...))
	nameless := strings.Replace(crds.Infrastructure("", "HighlyAvailable", "type: Azure"), "infrastructureName: x", `infrastructureName: ""`, 1)
	w.apply(t, nameless)
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed to resync for operator: " + release + " because terminal error: failed to build operator config: bundle azure: openshift/deployment.yaml.tmpl: ..."})
}

func tlsSettings(t *testing.T, w *world) {
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	w.start(t, onClusterOperator)
	const modern = ", tlsSecurityProfile: {type: Modern, modern: {}}"
	v12, v13 := []string{"--tls-min-version=VersionTLS12", "--tls-cipher-suites=TLS_AES_128_GCM_SHA256,"}, []string{"--tls-min-version=VersionTLS13", "!--tls-cipher-suites"}
	w.containerHas(t, awsDeployment, v12...)
	for _, c := range []struct {
		spec string
		want []string
	}{
		{"tlsAdherence: StrictAllComponents" + modern, v13},
		{"tlsAdherence: LegacyAdheringComponentsOnly" + modern, v12},
		{"tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: VersionTLS11, ciphers: [ECDHE-RSA-AES128-SHA, DHE-RSA-AES128-GCM-SHA256]}}",
			[]string{"--tls-min-version=VersionTLS11", `--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA \\\n`}},
		{"tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Old, old: {}}", []string{"--tls-min-version=VersionTLS10"}},
		{"tlsAdherence: StrictAllComponents", v12},
	} {
		w.tlsProfile(t, c.spec)
		w.containerHas(t, awsDeployment, c.want...)
	}
	w.settles(t)
	w.tlsProfile(t, "tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Custom, custom: {minTLSVersion: VersionTLS12, ciphers: [NONE]}}")
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed to resync for operator: " + release + " because terminal error: failed to build operator config: apiserver cluster: spec.tlsSecurityProfile.custom.ciphers: none of ..."})
	must(t, w.client.DeleteAllOf(t.Context(), &configv1.APIServer{}))
	w.settles(t)
	w.containerHas(t, awsDeployment, v12...)
}

// tlsFlags win over the profile.
func tlsFlags(t *testing.T, w *world) {
	flags, err := settings.TLSFromFlags("VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
	must(t, err)
	w.platform(t, "AWS")
	w.tlsProfile(t, "tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern, modern: {}}")
	w.synced(t)
	w.start(t, onClusterOperator, func(o *Options) { o.TLS = flags })
	w.containerHas(t, awsDeployment, "--tls-min-version=VersionTLS12", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384")
}

// gatesLate: nothing is deployed before a new release's gates are there, and it is
// said what is waited for; those that nobody knows are left out.
func gatesLate(t *testing.T, w *world) {
	w.infrastructure(t, "HighlyAvailable", "type: OpenStack")
	w.gates(t, "4.98.0", "CloudControllerManagerWebhook")
	w.synced(t)
	w.configured(t)
	w.start(t, onClusterOperator)
	const waits = "True/SyncingFailed/the cluster's feature gates are not there yet: "
	w.want(t, map[string]string{"CloudControllerManagerWarning": waits + `FeatureGate cluster has none for version "` + release + `" (yet)`})
	must(t, w.client.DeleteAllOf(t.Context(), &configv1.FeatureGate{}))
	w.want(t, map[string]string{"CloudControllerManagerWarning": waits + `...`, "Degraded": ""})
	w.has(t, nil)
	w.gates(t, release, "CloudControllerManagerWebhook", "NobodyKnows")
	w.containerHas(t, openstackDeployment, "--feature-gates=CloudControllerManagerWebhook=true", "!NobodyKnows")
	w.secret(t, "openstack-cloud-credentials", "x")
	w.settles(t)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "False/AsExpected/"})
}

// withoutGates: who has waited long enough goes on, and says what is missing.
func withoutGates(t *testing.T, w *world) {
	w.infrastructure(t, "HighlyAvailable", "type: OpenStack")
	w.synced(t)
	w.configured(t)
	w.secret(t, "openstack-cloud-credentials", "x")
	w.start(t, onClusterOperator, func(o *Options) { o.GatesAfter = 0 })
	w.settles(t)
	w.containerHas(t, openstackDeployment, "--feature-gates= ")
	w.want(t, map[string]string{"CloudControllerManagerWarning": "True/InputIncomplete/deployed without the cluster's feature gates: ..."})
	w.gates(t, release, "CloudControllerManagerWebhook")
	w.containerHas(t, openstackDeployment, "--feature-gates=CloudControllerManagerWebhook=true")
	w.settles(t)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "False/AsExpected/"})
}

// lateCredentials: an installer that waits for the operator, and makes the Secret
// afterwards, is not waited for: all is applied, and the Secret is named at once.
// Pods that gave up meanwhile start when it comes.
func lateCredentials(t *testing.T, w *world) {
	w.platform(t, "OpenStack")
	w.synced(t)
	w.configured(t)
	w.start(t, onClusterOperator)
	w.deployment(t, openstackDeployment)
	w.want(t, map[string]string{
		"CloudControllerManagerWarning": "True/InputIncomplete/pods cannot start: not there: Secret clouds/openstack-cloud-credentials, wanted by Deployment " + openstackDeployment,
		"Progressing":                   "True/SyncingResources/Progressing towards operator: " + release, "Degraded": "",
	})
	w.progress(t, openstackDeployment, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	w.want(t, map[string]string{
		"CloudControllerManagerWarning": "True/SyncingFailed/deployment " + openstackDeployment + " rollout stalled: ProgressDeadlineExceeded; pods cannot start: not there: Secret clouds/openstack-cloud-credentials...",
	})
	w.secret(t, "openstack-cloud-credentials", "late")
	w.hash(t, "")
	w.settles(t)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "False/AsExpected/"})
}
