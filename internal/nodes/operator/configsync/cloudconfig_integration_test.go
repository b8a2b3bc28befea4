// SPDX-License-Identifier: Apache-2.0

//go:build integration

package configsync

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

const (
	awsMade = "[Global]\nDisableSecurityGroupIngress = false\nClusterServiceLoadBalancerHealthProbeMode = Shared\nClusterServiceSharedLoadBalancerHealthProbePort = 0\n"
	gcpText = "[Global]\nproject-id = p\n"
)

func TestConfigSync(t *testing.T) {
	w := newWorld(t)
	for _, s := range []struct {
		name string
		run  func(*testing.T, *world)
	}{
		{"G1 first sync, changes followed, own copy restored, no needless write", g1},
		{"G2 managed before user, all keys, key renamed", g2},
		{"G3 AWS without reference gets the default", g3},
		{"G4 what is bad degrades at once and keeps the last good", g4},
		{"G5 nothing to do is available", g5},
		{"G6 vSphere's managed copy, only with its gate", g6},
		{"T1 merged in order, restored, followed", t1}, {"T1 taken over", takenOver},
		{"T2 what is bad is reported, the system's is used", t2},
		{"T3 the cloud's authorities", t3},
		{"T4 without Proxy it is available", t4},
		{"T5 without the system's bundle it fails for the time being", t5},
		{"F1 a passing failure degrades after the threshold, F2 success clears", f1},
		{"F3 a lasting failure degrades at once, without a storm", f3},
		{"F4 an unrelated ConfigMap changes nothing", f4},
		{"L1 one works at a time", leaders},
		{"regression: versions are not written", noVersions},
		{"regression: a failure domain of an unknown server", failureDomain},
		{"regression: every state has its conditions", alwaysConditions},
		{"regression: gates that cannot be read", gates},
	} {
		t.Run(s.name, func(t *testing.T) {
			w.reset(t)
			s.run(t, w)
		})
	}
}

func g1(t *testing.T, w *world) {
	w.onPlatform(t, "GCP", "name: cloud-provider-config, key: config")
	w.configMap(t, userNamespace, "cloud-provider-config", map[string]string{"config": gcpText, "other": "x"})
	p := w.start(t, often)
	w.wantKey(t, namespace, targetName, configKey, gcpText)
	w.wantConfigWorks(t)
	if d := cmp.Diff(map[string]string{configKey: gcpText, "other": "x"}, w.get(t, namespace, targetName).Data); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	p.wantIdle(t)
	w.configMap(t, userNamespace, "cloud-provider-config", map[string]string{"config": gcpText + "multizone = true\n"})
	w.wantKey(t, namespace, targetName, configKey, gcpText+"multizone = true\n")
	w.configMap(t, namespace, targetName, map[string]string{configKey: "changed", "added": "x"})
	w.wantKey(t, namespace, targetName, configKey, gcpText+"multizone = true\n")
	w.wantKey(t, namespace, targetName, "added", "")
	must(t, w.client.Delete(t.Context(), w.get(t, namespace, targetName)))
	w.wantKey(t, namespace, targetName, configKey, gcpText+"multizone = true\n")

	// Labels of others stay.
	own := w.get(t, namespace, targetName)
	own.Labels = map[string]string{"mine": "x"}
	own.Data = nil
	must(t, w.client.Update(t.Context(), own))
	w.wantKey(t, namespace, targetName, configKey, gcpText+"multizone = true\n")
	if own = w.get(t, namespace, targetName); own.Labels["mine"] != "x" {
		t.Error("somebody's label went")
	}
	p.wantIdle(t)
}

func g2(t *testing.T, w *world) {
	w.onPlatform(t, "AWS", "name: user, key: config")
	user := &corev1.ConfigMap{Data: map[string]string{"config": "[Global]\nZone = u\n", "ca-bundle.pem": w.cas["a"]}, BinaryData: map[string][]byte{"bin": {0, 1}}}
	user.Namespace, user.Name = userNamespace, "user"
	must(t, w.client.Create(t.Context(), user))
	w.configMap(t, managedNamespace, managedName, map[string]string{configKey: "[Global]\nZone = m\n", "endpoints": "e"})
	w.start(t)
	w.wantKey(t, namespace, targetName, configKey, strings.Replace(awsMade, "\n", "\nZone = m\n", 1))
	w.wantKey(t, namespace, targetName, "endpoints", "e")
	w.wantKey(t, namespace, targetName, "ca-bundle.pem", "")
	must(t, w.client.Delete(t.Context(), w.get(t, managedNamespace, managedName)))
	made := strings.Replace(awsMade, "\n", "\nZone = u\n", 1)
	w.wantKey(t, namespace, targetName, configKey, made)
	m := w.get(t, namespace, targetName)
	if d := cmp.Diff(map[string]string{configKey: made, "ca-bundle.pem": w.cas["a"]}, m.Data); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	if d := cmp.Diff(user.BinaryData, m.BinaryData); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	// cloud.conf wins over the key that is named.
	w.configMap(t, userNamespace, "user", map[string]string{configKey: "[Global]\nZone = c\n", "config": "[Global]\nZone = u\n"})
	w.wantKey(t, namespace, targetName, configKey, strings.Replace(awsMade, "\n", "\nZone = c\n", 1))
	w.wantKey(t, namespace, targetName, "config", "[Global]\nZone = u\n")
	// Another reference is followed.
	w.configMap(t, userNamespace, "user2", map[string]string{"k2": "[Global]\nZone = d\n"})
	w.onPlatform(t, "AWS", "name: user2, key: k2")
	w.wantKey(t, namespace, targetName, configKey, strings.Replace(awsMade, "\n", "\nZone = d\n", 1))
	w.wantConfigWorks(t)
}

func g3(t *testing.T, w *world) {
	w.onPlatform(t, "AWS", `name: ""`)
	w.start(t)
	w.wantKey(t, namespace, targetName, configKey, awsMade)
	w.wantConfigWorks(t)
	// Gates are followed.
	w.apply(t, featureGates("AWSServiceLBNetworkSecurityGroup"))
	w.wantKey(t, namespace, targetName, configKey, awsMade+"NLBSecurityGroupMode = Managed\n")
}

func g4(t *testing.T, w *world) {
	w.onPlatform(t, "AWS", "name: user, key: config")
	w.configMap(t, userNamespace, "user", map[string]string{"config": ""})
	p := w.start(t)
	w.wantKey(t, namespace, targetName, configKey, awsMade)
	w.wantConfigWorks(t)

	bad := func(text, why string) {
		t.Helper()
		w.configMap(t, userNamespace, "user", map[string]string{"config": text})
		w.wantConfigFails(t, why)
		if got := w.get(t, namespace, targetName).Data[configKey]; got != awsMade {
			t.Errorf("%q replaced the last good one by %q", text, got)
		}
	}
	bad("[Global\n", "terminal error: failed to transform cloud config: ConfigMap openshift-config/user: failed to read the cloud.conf: line 1: [Global: expected right bracket")
	bad("[Global]\nDisableSecurityGroupIngress = maybe\n", "terminal error: cloud config is not valid: ConfigMap openshift-config/user: line 2: [Global] DisableSecurityGroupIngress: true or false is expected")

	// The last good one is restored though there is none to make it from.
	must(t, w.client.Delete(t.Context(), w.get(t, namespace, targetName)))
	w.wantKey(t, namespace, targetName, configKey, awsMade)

	// So it is by one that was started afterwards, and finds it changed or gone.
	p.stop()
	w.configMap(t, namespace, targetName, map[string]string{configKey: "by hand"})
	p = w.start(t)
	w.wantKey(t, namespace, targetName, configKey, awsMade)
	p.stop()
	must(t, w.client.Delete(t.Context(), w.get(t, namespace, targetName)))
	p = w.start(t)
	w.wantKey(t, namespace, targetName, configKey, awsMade)
	p.stop()

	// Not so if the copy is not what was written, or is for another platform.
	for _, change := range []func(*corev1.ConfigMap){
		func(m *corev1.ConfigMap) { m.Data[configKey] = "[Global]\nZone = forged\n" },
		func(m *corev1.ConfigMap) { m.Annotations[platformAnnotation] = "gcp" },
	} {
		good := w.get(t, namespace, goodName)
		was := good.DeepCopy()
		change(good)
		must(t, w.client.Update(t.Context(), good))
		w.configMap(t, namespace, targetName, map[string]string{configKey: "by hand"})
		must(t, w.client.DeleteAllOf(t.Context(), &configv1.ClusterOperator{}))
		p = w.start(t)
		w.wantConfigFails(t, "terminal error: cloud config is not valid")
		if is := w.get(t, namespace, targetName).Data[configKey]; is != "by hand" {
			t.Errorf("restored: %q", is)
		}
		p.stop()
		was.ResourceVersion = ""
		must(t, w.client.Update(t.Context(), was))
	}
	w.start(t)
	w.wantKey(t, namespace, targetName, configKey, awsMade)

	w.configMap(t, userNamespace, "user", map[string]string{"wrong": ""})
	w.wantConfigFails(t, "terminal error: failed to prepare source cloud config: key config specified in infra resource does not exist in source configmap openshift-config/user")
	w.configMap(t, userNamespace, "user", map[string]string{"config": "[Global]\nZone = z\n"})
	w.wantConfigWorks(t)
	must(t, w.client.Delete(t.Context(), w.get(t, userNamespace, "user")))
	w.wantConfigFails(t, "terminal error: failed to prepare source cloud config: key config specified")

	w.apply(t, strings.Replace(strings.TrimSuffix(infrastructure("AWS", "name: user, key: config"), "---\n"), "  platformStatus: {type: AWS}\n", "", 1))
	w.wantConfigFails(t, "terminal error: failed to check cloud config sync requirements: platformStatus is required")
	if got := w.get(t, namespace, targetName).Data[configKey]; !strings.Contains(got, "Zone = z") {
		t.Errorf("the last good one was replaced by %q", got)
	}
}

func g5(t *testing.T, w *world) {
	w.start(t)
	w.wantConfigWorks(t) // no Infrastructure
	w.onPlatform(t, "BareMetal", `name: ""`)
	must(t, w.client.DeleteAllOf(t.Context(), &configv1.ClusterOperator{}))
	w.wantConfigWorks(t)
	if m := w.get(t, namespace, targetName); m != nil {
		t.Errorf("there is a configuration: %v", m.Data)
	}
}

const vcenter = "global:\n  server: test\n"

func g6(t *testing.T, w *world) {
	w.onPlatform(t, "VSphere", "name: user, key: config", "VSphereMultiVCenterDay2")
	w.configMap(t, userNamespace, "user", map[string]string{"config": vcenter})
	p := w.start(t, often)
	w.wantKey(t, managedNamespace, managedName, configKey, vcenter)
	w.wantKey(t, namespace, targetName, configKey, vcenter)
	w.wantConfigWorks(t)
	p.wantIdle(t)
	w.configMap(t, managedNamespace, managedName, map[string]string{configKey: "x"})
	w.wantKey(t, managedNamespace, managedName, configKey, vcenter)

	// Named but absent: the cluster's objects say all.
	must(t, w.client.Delete(t.Context(), w.get(t, userNamespace, "user")))
	w.apply(t, strings.Replace(strings.TrimSuffix(infrastructure("VSphere", "name: user, key: config"), "---\n"),
		"platformSpec: {type: VSphere}", "platformSpec: {type: VSphere, vsphere: {vcenters: [{server: vc1.example, datacenters: [DC1]}]}}", 1))
	made := "global: {}\nvcenter:\n  vc1.example:\n    server: vc1.example\n    datacenters:\n      - DC1\n"
	w.wantKey(t, namespace, targetName, configKey, made)
	w.wantKey(t, managedNamespace, managedName, configKey, made)
	p.stop()

	// Without the gate the managed one is nobody's.
	w.reset(t)
	w.onPlatform(t, "VSphere", "name: user, key: config")
	w.configMap(t, userNamespace, "user", map[string]string{"config": vcenter})
	w.start(t)
	w.wantKey(t, namespace, targetName, configKey, vcenter)
	w.wantConfigWorks(t)
	if m := w.get(t, managedNamespace, managedName); m != nil {
		t.Errorf("without its gate there is %v", m.Data)
	}
}

// noVersions: the sync controllers wrote the version, even degraded, before
// anything was deployed.
func noVersions(t *testing.T, w *world) {
	w.onPlatform(t, "AWS", "name: user, key: config")
	w.start(t)
	w.wantConfigFails(t, "terminal error: ")
	w.configMap(t, userNamespace, "user", map[string]string{"config": ""})
	w.wantConfigWorks(t)
	var o configv1.ClusterOperator
	must(t, w.client.Get(t.Context(), client.ObjectKey{Name: status.Name}, &o))
	if len(o.Status.Versions) > 0 {
		t.Errorf("versions are %v before anything is deployed", o.Status.Versions)
	}
}

// failureDomain: a failure domain whose server is none of the vCenters was a
// loop of panics behind Available.
func failureDomain(t *testing.T, w *world) {
	w.onPlatform(t, "VSphere", "name: user, key: config")
	w.configMap(t, userNamespace, "user", map[string]string{"config": vcenter})
	w.apply(t, strings.Replace(strings.TrimSuffix(infrastructure("VSphere", "name: user, key: config"), "---\n"), "platformSpec: {type: VSphere}",
		"platformSpec: {type: VSphere, vsphere: {vcenters: [{server: vc1.example, datacenters: [DC1]}], failureDomains: [{name: a, region: r, zone: z, server: elsewhere.example, "+
			"topology: {datacenter: DC9, computeCluster: /DC9/host/c, datastore: /DC9/datastore/d, networks: [net1]}}]}}", 1))
	w.start(t)
	w.wantKey(t, namespace, targetName, configKey, "global:\n  server: test\nvcenter:\n  vc1.example:\n    server: vc1.example\n    datacenters:\n      - DC1\n"+
		"  elsewhere.example:\n    server: elsewhere.example\n    datacenters:\n      - DC9\n")
	w.wantConfigWorks(t)
}

// alwaysConditions: a ClusterOperator without any condition told nobody that
// config-sync is down; now it is there from the first pass on, comes back, and
// what is missing has a name.
func alwaysConditions(t *testing.T, w *world) {
	w.apply(t, "apiVersion: config.openshift.io/v1\nkind: ClusterOperator\nmetadata: {name: cloud-controller-manager}\nspec: {}\n")
	var o configv1.ClusterOperator
	must(t, w.client.Get(t.Context(), client.ObjectKey{Name: status.Name}, &o))
	if waiting, err := status.Provisioning(&o); err != nil || !strings.Contains(waiting, "condition CloudConfigControllerAvailable is missing; condition TrustedCABundleControllerControllerAvailable is missing") {
		t.Errorf("waiting %q, %v", waiting, err)
	}
	w.start(t)
	for range 2 {
		w.wantConfigWorks(t)
		w.wantCondition(t, caAvailable, "True/"+caWorks)
		w.wantCondition(t, caDegraded, "False/"+caWorks)
		must(t, w.client.Get(t.Context(), client.ObjectKey{Name: status.Name}, &o))
		if waiting, err := status.Provisioning(&o); err != nil || waiting != "" {
			t.Errorf("waiting %q, %v", waiting, err)
		}
		must(t, w.client.Delete(t.Context(), &o))
		eventually(t, "the ClusterOperator", func() (string, bool) { return "missing", len(w.conditions(t)) == 6 })
	}
}

// gates: errors were ignored and the gates then called, nil.
func gates(t *testing.T, w *world) {
	w.onPlatform(t, "AWS", `name: ""`)
	w.apply(t, strings.Replace(featureGates(), release, "other", 1))
	p := w.start(t)
	w.wantCondition(t, configWarning, `True/SyncingFailed/failed to get feature gates: FeatureGate cluster has none for version "4.99.0" (yet)`)
	if _, degraded := w.conditions(t)[configDegraded]; degraded {
		t.Error("degraded before the threshold")
	}
	w.apply(t, featureGates())
	w.wantConfigWorks(t)
	p.stop()

	// Apart from a release, those of the release that the cluster is to run.
	for _, version := range []string{openshift.SnapshotVersion, openshift.UnknownVersion, ""} {
		w.reset(t)
		w.onPlatform(t, "AWS", `name: ""`, "AWSServiceLBNetworkSecurityGroup")
		p = w.start(t, func(o *Options) { o.Version = version })
		w.wantCondition(t, configWarning, "True/SyncingFailed/failed to get feature gates: which version is it? RELEASE_VERSION names none: ")
		w.apply(t, "apiVersion: config.openshift.io/v1\nkind: ClusterVersion\nmetadata: {name: version}\nspec: {clusterID: x}\n"+
			"status: {desired: {version: "+release+", image: x}, observedGeneration: 1, versionHash: x, availableUpdates: []}\n")
		w.wantKey(t, namespace, targetName, configKey, awsMade+"NLBSecurityGroupMode = Managed\n")
		p.stop()
	}
}
