// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const host = "peerpods-webhook.ns.svc"

// stand is a cluster in memory with a clock.
type stand struct {
	t      *testing.T
	client client.WithWatch
	now    time.Time
}

func newStand(t *testing.T, objects ...client.Object) *stand {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), admissionregistration.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return &stand{t: t, now: start, client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()}
}

func registered() *admissionregistration.MutatingWebhookConfiguration {
	return &admissionregistration.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "peerpods-webhook"},
		Webhooks: []admissionregistration.MutatingWebhook{
			{Name: "other.example"},
			{Name: WebhookName, ClientConfig: admissionregistration.WebhookClientConfig{
				Service: &admissionregistration.ServiceReference{Name: "peerpods-webhook", Namespace: "ns"},
			}},
		},
	}
}

// replica is one webhook; leader reports whether it renews.
func (s *stand) replica(leader bool) *Keeper {
	elected := make(chan struct{})
	if leader {
		close(elected)
	}
	return &Keeper{
		Client: s.client, Config: "peerpods-webhook", Secret: client.ObjectKey{Namespace: "ns", Name: "tls"},
		RuntimeClass: "kata-remote", Elected: elected, Now: func() time.Time { return s.now }, Log: slog.New(slog.DiscardHandler),
	}
}

func (s *stand) sync(keepers ...*Keeper) {
	s.t.Helper()
	for _, k := range keepers {
		if err := k.Sync(s.t.Context()); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *stand) entry() admissionregistration.MutatingWebhook {
	s.t.Helper()
	reg, err := readRegistration(s.t.Context(), s.client, "peerpods-webhook")
	if err != nil {
		s.t.Fatal(err)
	}
	return *reg.webhook()
}

// call is what the API server does: it trusts the bundle it was given.
func (s *stand) call(k *Keeper) error {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{GetCertificate: k.GetCertificate}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	// GetCertificate wins over the certificate of httptest for a client that names its server.
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.entry().ClientConfig.CABundle)
	conn, err := tls.Dial("tcp", server.Listener.Addr().String(), &tls.Config{
		ServerName: host, RootCAs: roots, Time: func() time.Time { return s.now },
	})
	if err == nil {
		conn.Close()
	}
	return err
}

func serial(t *testing.T, k *Keeper) string {
	t.Helper()
	cert, err := k.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	return cert.Leaf.SerialNumber.String()
}

func TestFirstStart(t *testing.T) {
	s := newStand(t, registered())
	k := s.replica(false)
	if _, err := k.GetCertificate(nil); err == nil {
		t.Error("a certificate before the first look")
	}
	if k.Ready(nil) == nil {
		t.Error("ready before the first look")
	}
	s.sync(k)
	if err := s.call(k); err != nil {
		t.Errorf("call: %v", err)
	}
	if err := k.Ready(nil); err != nil {
		t.Error(err)
	}
	want := []admissionregistration.MatchCondition{{Name: "runtime-class", Expression: `has(object.spec.runtimeClassName) && object.spec.runtimeClassName == "kata-remote"`}}
	if diff := cmp.Diff(want, s.entry().MatchConditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestReplicasShareOneCertificate(t *testing.T) {
	s := newStand(t, registered())
	a, b := s.replica(true), s.replica(false)
	s.sync(a, b, a)
	if serial(t, a) != serial(t, b) {
		t.Error("two certificates")
	}
}

func TestReplicasThatStartAtOnce(t *testing.T) {
	s := newStand(t, registered())
	replicas := []*Keeper{s.replica(true), s.replica(true), s.replica(true), s.replica(true)}
	var all sync.WaitGroup
	for _, k := range replicas {
		all.Go(func() { _ = k.Sync(t.Context()) }) // one may lose the race for the registration; the next look is below
	}
	all.Wait()
	s.sync(replicas...)
	for _, k := range replicas {
		if serial(t, k) != serial(t, replicas[0]) {
			t.Error("two certificates")
		}
		if err := s.call(k); err != nil {
			t.Errorf("call: %v", err)
		}
	}
}

// TestRenewalFailsNoCall goes through a renewal look by look, and calls every
// replica after each, also the one that looks late.
func TestRenewalFailsNoCall(t *testing.T) {
	s := newStand(t, registered())
	leader, late := s.replica(true), s.replica(false)
	s.sync(leader, late)
	first := serial(t, leader)
	calls := func() {
		t.Helper()
		for _, k := range []*Keeper{leader, late} {
			if err := s.call(k); err != nil {
				t.Fatalf("call: %v", err)
			}
		}
	}
	s.now = start.Add(lifetime*2/3 - time.Hour)
	s.sync(leader)
	if secret := s.secret(); len(secret.Data[keyNextCert]) > 0 {
		t.Error("renewal is staged too early")
	}
	s.now = start.Add(lifetime*2/3 + time.Hour)
	s.sync(late)
	if secret := s.secret(); len(secret.Data[keyNextCert]) > 0 {
		t.Error("a replica that does not lead has staged a renewal")
	}
	s.sync(leader)
	calls()
	if serial(t, leader) != first {
		t.Error("the next certificate is served before the API server can trust it")
	}
	s.sync(leader)
	calls()
	if serial(t, leader) == first || serial(t, late) != first {
		t.Error("want the next certificate in the leader, the first in the other")
	}
	s.sync(late, leader, late)
	calls()
	if serial(t, late) != serial(t, leader) {
		t.Error("two certificates in the end")
	}
	s.now = s.now.Add(lifetime * 3 / 4)
	s.sync(leader, leader, late)
	calls()
	if n := strings.Count(string(s.entry().ClientConfig.CABundle), "BEGIN"); n != 2 {
		t.Errorf("%d authorities are trusted, want the current and the one before", n)
	}
}

// TestUnpublishedIsNotServed has a registration that cannot be written when a
// renewal is staged.
func TestUnpublishedIsNotServed(t *testing.T) {
	s := newStand(t, registered())
	k := s.replica(true)
	s.sync(k)
	first := serial(t, k)
	s.now = start.Add(lifetime * 3 / 4)
	k.Client = interceptor.NewClient(s.client, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("not now")
		},
	})
	for range 3 {
		if err := k.Sync(t.Context()); err == nil {
			t.Fatal("want the error of the patch")
		}
		if err := s.call(k); err != nil || serial(t, k) != first {
			t.Fatalf("call: %v; want the first certificate", err)
		}
	}
	if len(s.secret().Data[keyNextCert]) == 0 {
		t.Error("the renewal was not staged: this test proves nothing")
	}
}

func (s *stand) secret() *corev1.Secret {
	s.t.Helper()
	secret := &corev1.Secret{}
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: "ns", Name: "tls"}, secret); err != nil {
		s.t.Fatal(err)
	}
	return secret
}

func TestWhatServesNoMoreIsReplacedAtOnce(t *testing.T) {
	for name, spoil := range map[string]func(*stand){
		"expired":        func(s *stand) { s.now = start.Add(lifetime + time.Hour) },
		"not yet valid":  func(s *stand) { s.now = start.Add(-2 * skew) },
		"secret deleted": func(s *stand) { _ = s.client.Delete(s.t.Context(), s.secret()) },
		"key damaged": func(s *stand) {
			secret := s.secret()
			secret.Data[keyKey] = []byte("x")
			_ = s.client.Update(s.t.Context(), secret)
		},
		"authority gone": func(s *stand) {
			secret := s.secret()
			delete(secret.Data, keyCA)
			_ = s.client.Update(s.t.Context(), secret)
		},
		"bundle overwritten": func(s *stand) {
			reg, _ := readRegistration(s.t.Context(), s.client, "peerpods-webhook")
			reg.webhook().ClientConfig.CABundle = []byte("x")
			_ = s.client.Update(s.t.Context(), reg.config)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t, registered())
			k := s.replica(false)
			s.sync(k)
			spoil(s)
			s.sync(k)
			if err := s.call(k); err != nil {
				t.Errorf("call: %v", err)
			}
		})
	}
}

func TestAnotherHostMakesAnotherCertificate(t *testing.T) {
	s := newStand(t, registered())
	k := s.replica(false)
	s.sync(k)
	reg, err := readRegistration(t.Context(), s.client, "peerpods-webhook")
	if err != nil {
		t.Fatal(err)
	}
	url := "https://192.0.2.1:9443" + "/mutate-v1-pod"
	reg.webhook().ClientConfig = admissionregistration.WebhookClientConfig{URL: &url, CABundle: reg.webhook().ClientConfig.CABundle}
	if err := s.client.Update(t.Context(), reg.config); err != nil {
		t.Fatal(err)
	}
	s.sync(k)
	cert, err := k.GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cert.Leaf.VerifyHostname("192.0.2.1"); err != nil {
		t.Error(err)
	}
}

func TestOthersCertificatesAreLeftAlone(t *testing.T) {
	config := registered()
	config.Webhooks[1].ClientConfig.CABundle = []byte("cert-manager's")
	s := newStand(t, config)
	k := s.replica(true)
	k.Secret.Name = ""
	s.sync(k)
	if got := s.entry(); string(got.ClientConfig.CABundle) != "cert-manager's" || len(got.MatchConditions) != 1 {
		t.Errorf("entry %+v", got)
	}
	if err := s.client.Get(t.Context(), client.ObjectKey{Namespace: "ns", Name: "tls"}, &corev1.Secret{}); err == nil {
		t.Error("a Secret was made")
	}
}

func TestConditionsOfOthersStay(t *testing.T) {
	config := registered()
	config.Webhooks[1].MatchConditions = []admissionregistration.MatchCondition{
		{Name: "mine", Expression: "true"}, {Name: matchCondition, Expression: "false"},
	}
	s := newStand(t, config)
	s.sync(s.replica(false))
	got := s.entry().MatchConditions
	if len(got) != 2 || got[0].Name != "mine" || !strings.Contains(got[1].Expression, `"kata-remote"`) {
		t.Errorf("conditions %+v", got)
	}
}

func TestNoWriteWithoutNeed(t *testing.T) {
	s := newStand(t, registered())
	k := s.replica(true)
	s.sync(k)
	k.Client = interceptor.NewClient(s.client, interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
			return errors.New("update")
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("patch")
		},
	})
	s.sync(k)
}

func TestErrorsNameTheObject(t *testing.T) {
	noURL := registered()
	noURL.Webhooks[1].ClientConfig = admissionregistration.WebhookClientConfig{}
	noEntry := registered()
	noEntry.Webhooks = noEntry.Webhooks[:1]
	for want, s := range map[string]*stand{
		"read the MutatingWebhookConfiguration peerpods-webhook": newStand(t),
		"has no webhook mwebhook.peerpods.io":                    newStand(t, noEntry),
		"neither a service nor a url":                            newStand(t, noURL),
	} {
		k := s.replica(true)
		if err := k.Sync(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
		if k.Ready(nil) == nil {
			t.Error("ready")
		}
	}
}

func TestStartTriesUntilThereIsARegistration(t *testing.T) {
	s := newStand(t)
	k := s.replica(true)
	k.Period = time.Millisecond
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error)
	go func() { ended <- k.Start(ctx) }()
	if err := s.client.Create(ctx, registered()); err != nil {
		t.Fatal(err)
	}
	for k.Ready(nil) != nil && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := k.Ready(nil); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
