// SPDX-License-Identifier: Apache-2.0

//go:build integration

package configsync

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/trustbundle"
)

func (w *world) wantBundle(t *testing.T, parts ...string) {
	t.Helper()
	texts := make([]string, len(parts))
	for i, p := range parts {
		texts[i] = w.cas[p]
	}
	w.wantKey(t, namespace, caName, caKey, strings.Join(texts, "\n"))
}

func (w *world) wantCAWorks(t *testing.T, warning string) {
	t.Helper()
	w.wantCondition(t, caAvailable, "True/"+caWorks)
	w.wantCondition(t, caDegraded, "False/"+caWorks)
	w.wantCondition(t, caWarning, warning)
}

const nothingLeft = "False/AsExpected/"

func t1(t *testing.T, w *world) {
	w.apply(t, proxy("user-ca"))
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: w.cas["b"]})
	w.configMap(t, namespace, targetName, map[string]string{caConfigKey: w.cas["a"]})
	p := w.start(t, often)
	w.wantBundle(t, "a", "b", "system")
	w.wantCAWorks(t, nothingLeft)
	if d := cmp.Diff(caAnnotations, w.get(t, namespace, caName).Annotations); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	p.wantIdle(t)
	p.stop()
	w.start(t) // which has to see each change itself
	w.wantCAWorks(t, nothingLeft)
	w.configMap(t, namespace, caName, map[string]string{caKey: "x", "y": "z"})
	w.wantBundle(t, "a", "b", "system")
	must(t, w.client.Delete(t.Context(), w.get(t, namespace, caName)))
	w.wantBundle(t, "a", "b", "system")
	w.configMap(t, namespace, targetName, map[string]string{})
	w.wantBundle(t, "b", "system")
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: w.cas["a"]})
	w.wantBundle(t, "a", "system")
	// A blank line, a comment and lines ended as on Windows are not faults.
	odd := strings.ReplaceAll(w.cas["b"], "\n", "\r\n") + "\n# a comment\n\n"
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: odd})
	w.wantKey(t, namespace, caName, caKey, odd+"\n"+w.cas["system"])
	w.wantCAWorks(t, nothingLeft)
	w.apply(t, proxy(""))
	w.wantBundle(t, "system")
}

func t2(t *testing.T, w *world) {
	w.apply(t, proxy("user-ca"))
	w.start(t)
	w.wantBundle(t, "system")
	w.wantCAWorks(t, "True/InputIncomplete/ConfigMap openshift-config/user-ca, which spec.trustedCA of Proxy cluster names, does not exist")
	w.configMap(t, userNamespace, "user-ca", map[string]string{"foo": "bar"})
	w.wantCAWorks(t, "True/InputIncomplete/ConfigMap openshift-config/user-ca, which spec.trustedCA of Proxy cluster names, has no key ca-bundle.crt")
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: "rubbish"})
	w.wantCAWorks(t, "True/InputIncomplete/ConfigMap openshift-config/user-ca, key ca-bundle.crt: there is no certificate in it")
	w.wantBundle(t, "system")
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: w.cas["a"] + strings.Replace(w.cas["b"], "MI", "!!", 1)})
	w.wantBundle(t, "a", "system")
	w.wantCAWorks(t, "True/InputIncomplete/ConfigMap openshift-config/user-ca, key ca-bundle.crt: certificate 2 in line ")
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: w.cas["b"]})
	w.wantBundle(t, "b", "system")
	w.wantCAWorks(t, nothingLeft)
}

func t3(t *testing.T, w *world) {
	w.apply(t, proxy("user-ca"))
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: w.cas["a"]})
	w.configMap(t, namespace, targetName, map[string]string{caConfigKey: w.cas["b"]})
	w.start(t)
	w.wantBundle(t, "b", "a", "system")
	w.configMap(t, namespace, targetName, map[string]string{caConfigKey: w.cas["a"]})
	w.wantBundle(t, "a", "system")
	w.configMap(t, namespace, targetName, map[string]string{caConfigKey: "rubbish"})
	w.wantCAWorks(t, "True/InputIncomplete/ConfigMap clouds/cloud-conf, key ca-bundle.pem: there is no certificate in it")
	w.wantBundle(t, "a", "system")
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: "rubbish"})
	w.configMap(t, namespace, targetName, map[string]string{caConfigKey: w.cas["b"]})
	w.wantBundle(t, "b", "system")
	w.wantCAWorks(t, "True/InputIncomplete/ConfigMap openshift-config/user-ca, key ca-bundle.crt: there is no certificate in it")
}

func t4(t *testing.T, w *world) {
	w.start(t)
	w.wantCAWorks(t, nothingLeft)
	if m := w.get(t, namespace, caName); m != nil {
		t.Errorf("there is a bundle: %v", m.Data)
	}
	w.apply(t, proxy(""))
	w.wantBundle(t, "system")
}

func t5(t *testing.T, w *world) {
	w.apply(t, proxy(""))
	must(t, os.Remove(w.system))
	p := w.start(t)
	w.wantCondition(t, caWarning, "True/SyncingFailed/failed to get system trust bundle: open "+w.system)
	w.writeSystem(t, "rubbish")
	w.wantCondition(t, caWarning, "True/SyncingFailed/failed to get system trust bundle: "+w.system+": there is no certificate in it")
	if c := w.conditions(t); c[caAvailable] != "" || c[caDegraded] != "" {
		t.Errorf("before the threshold: %v", c)
	}
	w.writeSystem(t, w.cas["b"])
	w.wantBundle(t, "b")
	w.wantCAWorks(t, nothingLeft)
	p.stop()
	// From Debian's place, if that is where this system has it.
	if _, err := os.Stat(trustbundle.DebianFile); err != nil {
		t.Skipf("%v; to run it: apt-get install ca-certificates, then sudo make test", err)
	}
	w.start(t, func(o *Options) { o.SystemBundle = "" })
	eventually(t, "the bundle of this system", func() (string, bool) {
		text := w.get(t, namespace, caName).Data[caKey]
		return text, strings.Count(text, "BEGIN CERTIFICATE") > 10
	})
}

func f1(t *testing.T, w *world) {
	w.apply(t, proxy("")+"---\n"+infrastructure("AWS", `name: ""`)+featureGates()) // no Network
	must(t, os.Remove(w.system))
	short := func(o *Options) { o.CloudConfigDegradedAfter, o.TrustedCADegradedAfter = time.Second, time.Second }
	p := w.start(t, short)
	w.wantConfigFails(t, `failed to get cluster Network: `)
	w.wantCondition(t, caAvailable, "False/"+caFails)
	w.wantCondition(t, caDegraded, "True/"+caFails)
	w.wantCondition(t, caWarning, "True/SyncingFailed/failed to get system trust bundle: ")
	w.apply(t, strings.TrimSuffix(network, "---\n"))
	w.writeSystem(t, w.cas["system"])
	w.wantConfigWorks(t)
	w.wantCAWorks(t, nothingLeft)
	w.wantKey(t, namespace, targetName, configKey, awsMade)
	w.wantBundle(t, "system")
	p.stop()

	// With a long threshold the same failures leave what was said before.
	must(t, w.client.DeleteAllOf(t.Context(), &configv1.Network{}))
	must(t, os.Remove(w.system))
	w.start(t)
	w.wantCondition(t, configWarning, "True/SyncingFailed/failed to get cluster Network: ")
	w.wantCondition(t, caWarning, "True/SyncingFailed/failed to get system trust bundle: ")
	w.wantCondition(t, configAvailable, "True/"+configWorks)
	w.wantCondition(t, configDegraded, "False/"+configWorks)
	w.wantCondition(t, caDegraded, "False/"+caWorks)
}

// f3: what only a change of an object ends is tried once.
func f3(t *testing.T, w *world) {
	w.onPlatform(t, "OpenStack", "name: user, key: config")
	w.configMap(t, userNamespace, "user", map[string]string{"config": "[Global]\nsecret-name = other\n"})
	// Were it tried again, that would be every tenth of a second.
	p := w.start(t, func(o *Options) { o.CloudConfigDegradedAfter = 0 })
	w.wantConfigFails(t, "terminal error: failed to transform cloud config: ConfigMap openshift-config/user: '[Global] secret-name' is set to a non-default value")
	w.wantCAWorks(t, nothingLeft)
	quiet(t, p)
	w.configMap(t, userNamespace, "user", map[string]string{"config": ""})
	w.wantConfigWorks(t)
}

// quiet waits until nothing has happened for a while.
func quiet(t *testing.T, p *running) {
	t.Helper()
	passes := int64(-1)
	since := time.Now()
	eventually(t, "quiet", func() (string, bool) {
		if now := p.passes.Load(); now != passes {
			passes, since = now, time.Now()
		}
		return "busy", time.Since(since) > 2*time.Second
	})
}

// f4: an unrelated ConfigMap made it say Available though there was no bundle.
func f4(t *testing.T, w *world) {
	w.apply(t, proxy("user-ca"))
	must(t, os.Remove(w.system))
	p := w.start(t, func(o *Options) { o.TrustedCADegradedAfter = time.Second })
	w.wantCondition(t, caDegraded, "True/"+caFails)
	w.configMap(t, userNamespace, "unrelated", map[string]string{caKey: w.cas["a"]})
	before := p.passes.Load()
	eventually(t, "attempts", func() (string, bool) { return "", p.passes.Load() > before+2 })
	if c := w.conditions(t); !strings.HasPrefix(c[caAvailable], "False/") || !strings.HasPrefix(c[caDegraded], "True/") {
		t.Errorf("an unrelated ConfigMap made it %v", c)
	}
	if m := w.get(t, namespace, caName); m != nil {
		t.Errorf("there is a bundle: %v", m.Data)
	}
	w.writeSystem(t, w.cas["system"])
	w.wantCAWorks(t, "True/InputIncomplete/")
}

// leaders: one works; when it ends, it gives the lease to the other at once.
func leaders(t *testing.T, w *world) {
	w.apply(t, proxy(""))
	elect := func(o *Options) {
		o.Leader = daemon.Election{Elect: true, Lock: "leases", Name: "test", Namespace: operatorNamespace, Lease: time.Minute, Renew: 50 * time.Second, Retry: time.Second}
	}
	first := w.start(t, elect)
	w.wantCAWorks(t, nothingLeft)
	second := w.start(t, elect)
	eventually(t, "attempts of the second", func() (string, bool) { return "", second.asked.Load() > 0 })
	if second.passes.Load() > 0 {
		t.Error("two work")
	}
	first.stop()
	w.configMap(t, namespace, caName, map[string]string{caKey: "x"})
	w.wantBundle(t, "system")
	eventually(t, "work of the second", func() (string, bool) { return "", second.passes.Load() > 0 })
}

// takenOver: the bundle of OpenShift's own operator stays as it is, with the system's
// authorities of its image, until something else is asked for; what was taken back is not
// trusted because it stood there once.
func takenOver(t *testing.T, w *world) {
	theirs := w.cas["b"] + "\n" + w.cas["a"]
	w.apply(t, proxy("user-ca"))
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: w.cas["b"]})
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: caName, Annotations: map[string]string{componentAnnotation: component}}, Data: map[string]string{caKey: theirs}}
	must(t, w.client.Create(t.Context(), m))
	p := w.start(t, often)
	w.wantCAWorks(t, nothingLeft)
	p.wantIdle(t)
	w.wantKey(t, namespace, caName, caKey, theirs)
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: "none"})
	w.wantBundle(t, "system")
	w.configMap(t, userNamespace, "user-ca", map[string]string{caKey: w.cas["b"]})
	w.wantBundle(t, "b", "system")
}
