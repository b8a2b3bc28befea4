// SPDX-License-Identifier: Apache-2.0

// Package certs keeps the webhook's serving certificate and what the API
// server trusts of it, without a certificate manager: all replicas share one
// Secret, and the certificate authority's certificate is written into the
// MutatingWebhookConfiguration.
//
// A certificate is renewed in two steps, so that no call fails: first the next
// authority is published beside the current one; only when the API server has
// it does the next certificate take the place of the current. An authority's
// key is dropped once it has signed its one certificate.
package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Keeper reconciles the certificate and the registration.
type Keeper struct {
	// Client must not read from a cache.
	Client client.Client
	// Config is the name of the MutatingWebhookConfiguration.
	Config string
	// Secret holds the certificates. If its name is empty somebody else manages the
	// certificate, and the keeper only sets the registration's match condition.
	Secret client.ObjectKey
	// RuntimeClass selects the pods that the API server sends to the webhook.
	RuntimeClass string
	// Elected is closed when this replica may renew; nil means never.
	Elected <-chan struct{}
	// Period is the time between two reconciliations; 0 means 30 s.
	Period time.Duration
	Now    func() time.Time
	Log    *slog.Logger

	cert   atomic.Pointer[tls.Certificate]
	synced atomic.Bool
}

// retry is the pause after a first failure.
const retry = time.Second

// Start reconciles certificate and registration until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	period := cmp.Or(k.Period, 30*time.Second)
	pause := min(retry, period)
	for {
		next := period
		if err := k.Sync(ctx); err != nil && ctx.Err() == nil {
			k.Log.Warn("the webhook's certificate or registration is not up to date; retrying", "err", err, "after", pause)
			next, pause = pause, min(2*pause, period)
		} else {
			pause = min(retry, period)
		}
		if poll.Sleep(ctx, next) != nil {
			return nil
		}
	}
}

// NeedLeaderElection returns false: each replica has to read the certificate.
func (k *Keeper) NeedLeaderElection() bool { return false }

// Sync reconciles once.
func (k *Keeper) Sync(ctx context.Context) error {
	reg, err := readRegistration(ctx, k.Client, k.Config)
	if err != nil {
		return err
	}
	var bundle []byte
	if k.Secret.Name != "" {
		if bundle, err = k.syncSecret(ctx, reg); err != nil {
			return err
		}
	}
	changed, err := reg.register(ctx, k.Client, bundle, k.RuntimeClass)
	if err != nil {
		return err
	}
	if changed {
		k.Log.Info("registered the webhook", "configuration", k.Config, "runtime_class", k.RuntimeClass)
	}
	k.synced.Store(true)
	return nil
}

// attempts bounds how many conflicts with other replicas are tolerated.
const attempts = 5

// syncSecret updates the Secret and returns the CA bundle that the API server must
// trust.
func (k *Keeper) syncSecret(ctx context.Context, reg registration) ([]byte, error) {
	hosts, err := reg.hosts()
	if err != nil {
		return nil, err
	}
	in := inputs{now: k.Now(), hosts: hosts, published: reg.webhook().ClientConfig.CABundle, leader: k.leads()}
	for range attempts {
		var bundle []byte
		bundle, err = k.stepSecret(ctx, in)
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			return bundle, err
		}
	}
	return nil, err
}

func (k *Keeper) leads() bool {
	select {
	case <-k.Elected:
		return true
	default:
		return false
	}
}

// stepSecret reads the Secret, makes or renews what it must hold, and serves
// it. A conflict means that another replica was first.
func (k *Keeper) stepSecret(ctx context.Context, in inputs) ([]byte, error) {
	secret := &corev1.Secret{}
	err := k.Client.Get(ctx, k.Secret, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read the Secret %s: %w", k.Secret, err)
	}
	absent := err != nil
	before := readState(secret.Data)
	after, cert, err := before.step(in)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", in.hosts[0], err)
	}
	if !reflect.DeepEqual(before, after) {
		if err := k.write(ctx, secret, absent, after); err != nil {
			return nil, err
		}
		k.Log.Info("wrote the webhook's certificate", "secret", k.Secret, "hosts", in.hosts, "expires", cert.Leaf.NotAfter, "renewal_staged", after.next.cert != nil)
	}
	k.cert.Store(cert)
	return after.bundle(), nil
}

func (k *Keeper) write(ctx context.Context, secret *corev1.Secret, absent bool, s state) error {
	secret.Data = s.data()
	doing, err := "update", error(nil)
	if absent {
		doing = "create"
		secret.ObjectMeta = metav1.ObjectMeta{Namespace: k.Secret.Namespace, Name: k.Secret.Name}
		secret.Type = corev1.SecretTypeTLS
		err = k.Client.Create(ctx, secret)
	} else {
		err = k.Client.Update(ctx, secret)
	}
	if err != nil {
		return fmt.Errorf("%s the Secret %s: %w", doing, k.Secret, err)
	}
	return nil
}

// GetCertificate implements the callback of tls.Config.
func (k *Keeper) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := k.cert.Load(); cert != nil {
		return cert, nil
	}
	return nil, errors.New("the webhook has no certificate yet; its log says why")
}

// Ready is a health check: it fails until the webhook is registered at the API
// server.
func (k *Keeper) Ready(*http.Request) error {
	if !k.synced.Load() {
		return errors.New("the webhook is not registered yet; its log says why")
	}
	return nil
}
