// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/cli/doctor"
)

// authority returns a certificate authority that ends at that time.
func authority(t *testing.T, until time.Time) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: until.Add(-time.Hour), NotAfter: until, IsCA: true}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (f *fakeAPI) registration(bundle []byte) {
	service := o{"namespace": SystemNamespace, "name": webhookName}
	f.put(core(SystemNamespace, "services", webhookName), o{"metadata": o{}})
	f.put(api(admission, "", "mutatingwebhookconfigurations", webhookName), o{"metadata": o{"name": webhookName},
		"webhooks": []any{o{"name": "mwebhook.peerpods.io", "failurePolicy": "Fail", "clientConfig": o{"caBundle": bundle, "service": service}}}})
}

func (f *fakeAPI) definition(fields ...any) {
	f.put(api(definitions, "", "customresourcedefinitions", crdName), o{
		"spec":   o{"versions": []any{o{"name": "v1alpha1", "served": true, "storage": true, "selectableFields": fields, "subresources": o{"status": o{}}}}},
		"status": o{"conditions": []any{conditionObject("Established", "True", "", "")}}})
}

// healthy is a cluster where all is well.
func healthy(t *testing.T) *fakeAPI {
	f := newFakeAPI(t)
	f.configured()
	f.node("node1", "10")
	f.definition(o{"jsonPath": ".spec.nodeName"}, o{"jsonPath": ".spec.podUID"})
	for _, name := range []string{adaptorName, relayName} {
		f.put(api(apps, SystemNamespace, "daemonsets", name), o{"status": o{"desiredNumberScheduled": 1, "numberReady": 1}})
	}
	for _, name := range []string{controllerName, webhookName} {
		f.put(api(apps, SystemNamespace, "deployments", name), o{"spec": o{"replicas": 1}, "status": o{"readyReplicas": 1}})
	}
	f.put(api(nodeGroup, "", "runtimeclasses", RuntimeClass), o{"handler": RuntimeClass, "scheduling": o{"nodeSelector": o{workerLabel: ""}}})
	f.registration(authority(t, now.AddDate(1, 0, 0)))
	f.pod("web", o{})
	f.peerPod("web", o{"conditions": []any{conditionObject("Ready", "True", "Ready", "")}})
	return f
}

func TestCheckOfAHealthyCluster(t *testing.T) {
	out := healthy(t).succeeds("check")
	wants(t, out, "This cluster can run pods in VMs.", "provider paper, all keys are valid", "10 pod VMs on 1 nodes")
	wantsNot(t, out, "FAIL", "warn")
}

// TestCheckFinds: every defect is found by the check of its name, which says
// how to mend it.
func TestCheckFinds(t *testing.T) {
	gone := func(path string) func(*testing.T, *fakeAPI) {
		return func(_ *testing.T, f *fakeAPI) { delete(f.objects, path) }
	}
	set := func(path string, object any) func(*testing.T, *fakeAPI) {
		return func(_ *testing.T, f *fakeAPI) { f.put(path, object) }
	}
	settings := func(keys o) func(*testing.T, *fakeAPI) {
		return set(core(SystemNamespace, "configmaps", configMapName), o{"data": keys})
	}
	for name, c := range map[string]struct {
		breaks func(*testing.T, *fakeAPI)
		check  string
		status doctor.Status
		detail string
	}{
		"old Kubernetes": {set("/version", o{"major": "1", "minor": "29+", "gitVersion": "v1.29.0"}), "api-server", doctor.Error, "v1.29.0"},
		"no CRD":         {gone(api(definitions, "", "customresourcedefinitions", crdName)), "crd", doctor.Error, "is not there"},
		"old CRD":        {func(_ *testing.T, f *fakeAPI) { f.definition() }, "crd", doctor.Error, ".spec.nodeName"},
		"few rights":     {func(_ *testing.T, f *fakeAPI) { f.denied[" list peerpods"] = true }, "rights", doctor.Warning, "list peerpods"},
		"adaptor's rights": {func(_ *testing.T, f *fakeAPI) {
			f.denied["system:serviceaccount:"+SystemNamespace+":cloud-api-adaptor create peerpods"] = true
		}, "rbac", doctor.Error, "cloud-api-adaptor may not create peerpods"},
		"no ConfigMap":     {gone(core(SystemNamespace, "configmaps", configMapName)), "settings", doctor.Error, "is not there"},
		"no provider":      {settings(o{}), "settings", doctor.Error, "CLOUD_PROVIDER is not set"},
		"missing key":      {settings(o{"CLOUD_PROVIDER": testCloud}), "settings", doctor.Error, "PAPER_ZONE is required"},
		"missing secret":   {gone(core(SystemNamespace, "secrets", secretName)), "settings", doctor.Error, "PAPER_TOKEN is required"},
		"bad value":        {settings(o{"CLOUD_PROVIDER": testCloud, "PAPER_ZONE": "n", "PAPER_SIZE": "10"}), "settings", doctor.Error, "10: want from 1 to 9"},
		"misspelt key":     {settings(o{"CLOUD_PROVIDER": testCloud, "PAPER_ZONE": "n", "PAPER_SISE": "1"}), "settings", doctor.Warning, "PAPER_SISE is not a setting"},
		"open secret":      {settings(o{"CLOUD_PROVIDER": testCloud, "PAPER_ZONE": "n", "PAPER_TOKEN": "x"}), "settings", doctor.Warning, "move it to Secret"},
		"unknown provider": {settings(o{"CLOUD_PROVIDER": "nimbus"}), "settings", doctor.Warning, "not known here"},
		"no workers":       {gone(core("", "nodes", "node1")), "nodes", doctor.Error, "no node has the label"},
		"adaptor missing":  {gone(api(apps, SystemNamespace, "daemonsets", adaptorName)), "adaptor", doctor.Warning, "nodes offer VMs nevertheless"},
		"nothing offers VMs": {func(_ *testing.T, f *fakeAPI) {
			delete(f.objects, api(apps, SystemNamespace, "daemonsets", relayName))
			f.node("node1", "")
		}, "relay", doctor.Error, "is not there"},
		"adaptor nowhere":    {set(api(apps, SystemNamespace, "daemonsets", adaptorName), o{}), "adaptor", doctor.Error, "runs on no node"},
		"adaptor half":       {set(api(apps, SystemNamespace, "daemonsets", adaptorName), o{"status": o{"desiredNumberScheduled": 2, "numberReady": 1}}), "adaptor", doctor.Warning, "1 of 2 of"},
		"relay dead":         {set(api(apps, SystemNamespace, "daemonsets", relayName), o{"status": o{"desiredNumberScheduled": 2}}), "relay", doctor.Error, "0 of 2"},
		"controller dead":    {set(api(apps, SystemNamespace, "deployments", controllerName), o{"status": o{"conditions": []any{conditionObject("ReplicaFailure", "True", "", "quota")}}}), "controller", doctor.Error, "are ready: quota"},
		"webhook scaled off": {set(api(apps, SystemNamespace, "deployments", webhookName), o{"spec": o{"replicas": 0}}), "webhook", doctor.Error, "scaled to nothing"},
		"no CA":              {func(_ *testing.T, f *fakeAPI) { f.registration(nil) }, "webhook-ca", doctor.Error, "no caBundle"},
		"broken CA":          {func(_ *testing.T, f *fakeAPI) { f.registration([]byte("x")) }, "webhook-ca", doctor.Error, "no certificate"},
		"expired CA":         {func(t *testing.T, f *fakeAPI) { f.registration(authority(t, now.Add(-time.Hour))) }, "webhook-ca", doctor.Error, "are refused"},
		"expiring CA":        {func(t *testing.T, f *fakeAPI) { f.registration(authority(t, now.Add(time.Hour))) }, "webhook-ca", doctor.Warning, "expires at"},
		"no RuntimeClass":    {gone(api(nodeGroup, "", "runtimeclasses", RuntimeClass)), "runtimeclass", doctor.Error, "is not there"},
		"class everywhere":   {set(api(nodeGroup, "", "runtimeclasses", RuntimeClass), o{"handler": RuntimeClass}), "runtimeclass", doctor.Warning, "no node selector"},
		"no handler": {func(_ *testing.T, f *fakeAPI) {
			f.objects[core("", "nodes", "node1")].(o)["status"].(o)["runtimeHandlers"] = []any{o{"name": "runc"}}
		}, "handler", doctor.Error, "node1"},
		"no capacity": {func(_ *testing.T, f *fakeAPI) { f.node("node1", "") }, "capacity", doctor.Error, "no node advertises"},
		"stuck PeerPod": {func(_ *testing.T, f *fakeAPI) {
			f.peerPod("web", o{})["metadata"].(o)["deletionTimestamp"] = ago(time.Hour)
		}, "peerpods", doctor.Warning, "shop/web"},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			c.breaks(t, f)
			code, out, errs := f.run("check", "-o", "json")
			var report doctor.Report
			if err := json.Unmarshal([]byte(out), &report); err != nil {
				t.Fatalf("%v: %s%s", err, out, errs)
			}
			if code != report.ExitCode() || code == 0 {
				t.Errorf("exit code %d, status %s", code, report.Status)
			}
			for _, r := range report.Results {
				if r.Name == c.check {
					if r.Status != c.status || r.Fix == "" {
						t.Errorf("%+v", r)
					}
					wants(t, r.Detail, c.detail)
					return
				}
			}
			t.Errorf("no result %s in %s", c.check, out)
		})
	}
}

func TestCheckBeforeInstalling(t *testing.T) {
	f := newFakeAPI(t)
	f.node("node1", "")
	wants(t, f.succeeds("check", "--pre"), "Outrigger can be installed.")
	f.denied[" create customresourcedefinitions"] = true
	f.put(api(nodeGroup, "", "runtimeclasses", RuntimeClass), o{"handler": "kata"})
	f.put(api(admission, "", "mutatingwebhookconfigurations", "mutating-peer-pods"), o{"metadata": o{"name": "mutating-peer-pods"}})
	code, out, _ := f.run("check", "--pre")
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	wants(t, out, "you may not create customresourcedefinitions", "with handler kata", "mutating-peer-pods may size the same pods", "fix what FAIL says")
}

// TestCheckThatCannotRun: 1 would be read as "warnings".
func TestCheckThatCannotRun(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	for _, args := range [][]string{{"check", "--kubeconfig", nowhere}, {"check", "--pre", "--kubeconfig", nowhere}, {"check", "-o", "xml"}, {"check", "--bogus"}, {"check", "now"}} {
		var out, errs bytes.Buffer
		if code := (&App{Stdout: &out, Stderr: &errs}).Run(args); code != 2 || errs.Len() == 0 {
			t.Errorf("%v: exit code %d, %s%s", args, code, &out, &errs)
		}
	}
	var errs bytes.Buffer
	if code := (&App{Stdout: io.Discard, Stderr: &errs}).Run([]string{"top", "--kubeconfig", nowhere}); code != 1 {
		t.Errorf("top: exit code %d, %s", code, &errs)
	}
}

// TestNoKubeconfig: the file that was named is.
func TestNoKubeconfig(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "kubeconfig")
	t.Setenv("KUBECONFIG", nowhere)
	var errs bytes.Buffer
	if code := (&App{Stdout: io.Discard, Stderr: &errs}).Run([]string{"top"}); code != 1 {
		t.Errorf("exit code %d", code)
	}
	wants(t, errs.String(), nowhere+" is missing")
}

func TestCheckWithoutACluster(t *testing.T) {
	f := newFakeAPI(t)
	f.forbidden["/version"] = true
	code, out, _ := f.run("check")
	if code != 2 {
		t.Errorf("exit code %d", code)
	}
	wants(t, out, "the API server does not answer")
	wantsNot(t, out, "crd")
}
