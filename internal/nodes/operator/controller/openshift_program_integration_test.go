// SPDX-License-Identifier: Apache-2.0

//go:build integration

package controller

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/guard"
)

const leaseName = "cluster-cloud-controller-manager-leader"

func elected(lease, renew, retry time.Duration) func(*Options) {
	return func(o *Options) {
		o.Leader = daemon.Election{Elect: true, Lock: "leases", Name: leaseName, Namespace: home, Lease: lease, Renew: renew, Retry: retry}
	}
}

func (w *world) lease(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	var l coordinationv1.Lease
	eventually(t, "the lease", func() (string, bool) {
		err := w.client.Get(t.Context(), types.NamespacedName{Namespace: home, Name: leaseName}, &l)
		return fmt.Sprint(err), err == nil && l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != ""
	})
	return &l
}

func (w *world) noLease(t *testing.T) {
	t.Helper()
	must(t, w.client.DeleteAllOf(t.Context(), &coordinationv1.Lease{}, client.InNamespace(home)))
}

// leaders: one of two works, and gives the lease back when it ends: it would be
// good for an hour.
func leaders(t *testing.T, w *world) {
	w.noLease(t)
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	take := elected(time.Hour, 59*time.Minute, 3*time.Second)
	first := w.start(t, onClusterOperator, take)
	w.settles(t)
	holder := *w.lease(t).Spec.HolderIdentity
	second := w.start(t, onClusterOperator, take)
	eventually(t, "a second one that asks for the lease", func() (string, bool) { return "", second.leases.Load() > 0 })
	must(t, w.client.Delete(t.Context(), w.deployment(t, awsDeployment)))
	w.settles(t)
	if n := second.passes.Load(); n > 0 {
		t.Errorf("the second one worked %d times", n)
	}
	// Not while the lease is renewed: a request that is given up may be served
	// after the lease was given back.
	renewed := w.lease(t).ResourceVersion
	eventually(t, "a renewal", func() (string, bool) { return renewed, w.lease(t).ResourceVersion != renewed })
	first.stop()
	eventually(t, "the second one at work", func() (string, bool) { return "", second.passes.Load() > 0 })
	if is := *w.lease(t).Spec.HolderIdentity; is == holder {
		t.Errorf("%s holds the lease, which has ended", is)
	}
	must(t, w.client.Delete(t.Context(), w.deployment(t, awsDeployment)))
	w.settles(t)
}

// leaseDurations are longer where the API server has no other to take its place.
func leaseDurations(t *testing.T, w *world) {
	w.synced(t)
	for topology, want := range map[string]int32{"HighlyAvailable": 137, "SingleReplica": 270} {
		w.noLease(t)
		w.infrastructure(t, topology, "type: BareMetal")
		p := w.start(t, onClusterOperator, elected(0, 0, 0))
		if is := *w.lease(t).Spec.LeaseDurationSeconds; is != want {
			t.Errorf("%s: %d s, want %d", topology, is, want)
		}
		p.stop()
	}
}

// metricsServed: to whom the cluster lets, over TLS as the cluster's profile says,
// from the moment on at which it says so.
func metricsServed(t *testing.T, w *world) {
	w.synced(t)
	w.infrastructure(t, "HighlyAvailable", "type: BareMetal")
	address := freeAddress(t)
	w.start(t, onClusterOperator, func(o *Options) { o.MetricsAddress = address })
	w.want(t, settled)
	w.Apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: metrics}
rules: [{nonResourceURLs: [/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: metrics}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: metrics}
subjects: [{kind: ServiceAccount, name: default, namespace: `+home+`}]
`)
	token := w.token(t, home)
	wantMetrics(t, address, "", tls.VersionTLS13, http.StatusUnauthorized)
	wantMetrics(t, address, w.token(t, operands), tls.VersionTLS13, http.StatusForbidden)
	wantMetrics(t, address, token, tls.VersionTLS12, http.StatusOK)
	wantMetrics(t, address, token, tls.VersionTLS11, 0)
	w.tlsProfile(t, "tlsAdherence: StrictAllComponents, tlsSecurityProfile: {type: Modern, modern: {}}")
	wantMetrics(t, address, token, tls.VersionTLS12, 0)
	wantMetrics(t, address, token, tls.VersionTLS13, http.StatusOK)
	must(t, w.client.DeleteAllOf(t.Context(), &configv1.APIServer{}))
	wantMetrics(t, address, token, tls.VersionTLS12, http.StatusOK)
}

// token is that of a namespace's default account.
func (w *world) token(t *testing.T, namespace string) (token string) {
	t.Helper()
	eventually(t, "a token", func() (string, bool) {
		out, err := w.TryKubectl("create", "token", "default", "--namespace="+namespace)
		token = strings.TrimSpace(out)
		return fmt.Sprint(err), err == nil
	})
	return token
}

// wantMetrics waits until a client that knows TLS up to this version is answered
// so; 0 is that the server does not speak with it.
func wantMetrics(t *testing.T, address, token string, version uint16, want int) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: version},
	}}
	eventually(t, fmt.Sprintf("an answer to %s", tls.VersionName(version)), func() (string, bool) {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+"/metrics", nil)
		must(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := c.Do(request)
		if err != nil {
			return err.Error(), want == 0 && strings.Contains(err.Error(), "tls: protocol version not supported")
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		must(t, err)
		if want == http.StatusOK && !strings.Contains(string(text), `controller_runtime_reconcile_total{controller="cluster-operator"`) {
			return string(text), false
		}
		return response.Status, response.StatusCode == want
	})
}

// freeAddress is one on which nobody listens at the moment, and which is not where
// other tests look for one.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.77.77.77:0")
	must(t, err)
	defer l.Close()
	return l.Addr().String()
}

// guarded: with --guard-node-deletions the manager of OpenShift's platform deletes
// no Node without a ticket, and where there is no manager nothing is guarded.
func guarded(t *testing.T, w *world) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "guarded"}}
	n.Spec.ProviderID = "aws:///zone/i-1"
	must(t, w.client.Create(t.Context(), n))
	t.Cleanup(func() { must(t, client.IgnoreNotFound(w.client.Delete(w.background(), n))) })
	w.Apply(t, `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: deletes-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, name: "`+guard.NodeController+`"}]
`)
	api := w.RESTConfig()
	api.Impersonate = rest.ImpersonationConfig{UserName: guard.NodeController}
	controller, err := client.New(api, client.Options{Scheme: w.client.Scheme()})
	must(t, err)
	w.platform(t, "AWS")
	w.synced(t)
	w.configured(t)
	w.start(t, onClusterOperator, func(o *Options) { o.Guard = true })
	eventually(t, "a guard", func() (string, bool) {
		err := controller.Delete(t.Context(), n.DeepCopy(), client.DryRunAll)
		return fmt.Sprint(err), apierrors.IsForbidden(err) && strings.Contains(err.Error(), "the deletion of Node guarded is guarded")
	})
	must(t, w.client.Delete(t.Context(), n.DeepCopy(), client.DryRunAll))
	w.platform(t, "BareMetal")
	eventually(t, "the end of the guard", func() (string, bool) {
		var v admissionv1.ValidatingAdmissionPolicy
		err := w.client.Get(t.Context(), types.NamespacedName{Name: guard.Name}, &v)
		return fmt.Sprint(err), apierrors.IsNotFound(err)
	})
	eventually(t, "the end of its inventory", func() (string, bool) {
		err := w.client.Get(t.Context(), types.NamespacedName{Namespace: operands, Name: guardInventory}, &corev1.ConfigMap{})
		return fmt.Sprint(err), apierrors.IsNotFound(err)
	})
	eventually(t, "a deletion", func() (string, bool) {
		err := controller.Delete(t.Context(), n.DeepCopy(), client.DryRunAll)
		return fmt.Sprint(err), err == nil
	})
}

// mirrored: where OpenShift's platform has no manager, the ClusterOperator says how
// the CloudControllerManager is.
func mirrored(t *testing.T, w *world) {
	w.withPlain(t)
	w.infrastructure(t, "HighlyAvailable", "type: KubeVirt")
	w.synced(t)
	w.start(t, onClusterOperator)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "True/NoCloudControllerManager/..."})
	c := &ccmv1alpha1.CloudControllerManager{ObjectMeta: metav1.ObjectMeta{Name: ccmName}}
	c.Spec.Provider, c.Spec.Images = "openstack", images
	must(t, w.client.Create(t.Context(), c))
	w.want(t, map[string]string{
		"Progressing": "True/AsExpected/", "CloudControllerManagerWarning": "True/InputIncomplete/pods cannot start: not there: Secret clouds/openstack-cloud-credentials...",
	})
	w.secret(t, "openstack-cloud-credentials", "x")
	w.settles(t)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "False/AsExpected/"})
	c = w.ccm(t)
	c.Spec.Images = map[string]string{"other": "x"}
	must(t, w.client.Update(t.Context(), c))
	w.want(t, map[string]string{"Degraded": "True/SyncingFailed/Failed to resync for operator: " + release + " because terminal error: openstack: missed images in config: ..."})
	must(t, w.client.Delete(t.Context(), c))
	w.want(t, settled)
	w.want(t, map[string]string{"CloudControllerManagerWarning": "True/NoCloudControllerManager/..."})
	w.ended(t, c)
	// Where the platform has one, that one is it.
	w.platform(t, "AWS")
	w.configured(t)
	must(t, w.client.Create(t.Context(), libvirt()))
	w.is(t, ccmv1alpha1.WarningCondition, metav1.ConditionTrue, "the cluster's Infrastructure says what runs, for platform AWS")
	w.settles(t)
	c = w.ccm(t)
	must(t, w.client.Delete(t.Context(), c))
	w.ended(t, c)
}

func (w *world) ended(t *testing.T, c *ccmv1alpha1.CloudControllerManager) {
	t.Helper()
	eventually(t, "the end of the CloudControllerManager", func() (string, bool) {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(c), c)
		return fmt.Sprint(err), apierrors.IsNotFound(err)
	})
}
