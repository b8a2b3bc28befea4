// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller/cloud"
)

// settingsRetry is when settings that do not work are tried again though they
// did not change: the cause may be outside of them.
const settingsRetry = time.Minute

// Settings configures the providers from the ConfigMap and the Secret.
type Settings struct{ *Reconciler }

// Reconcile implements reconcile.Reconciler; there is one request only.
func (s *Settings) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	config, settings, err := ReadSettings(ctx, s.cached, s.options.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	changed, err := s.clouds.Configure(settings)
	s.retry(ctx, changed)
	if err != nil {
		s.metrics.settings.Set(0)
		s.log.Error("a provider does not work with these settings; it keeps the former ones if those worked", "error", err)
		about := &corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: config.Namespace, Name: config.Name, UID: config.UID}
		s.events.Emit(about, nil, corev1.EventTypeWarning, claims.ReasonProviderMissing, "Configure", err.Error())
		return reconcile.Result{RequeueAfter: settingsRetry}, nil
	}
	s.metrics.settings.Set(1)
	if len(changed) > 0 {
		s.log.Info("providers have new settings", "providers", strings.Join(changed, ","), "source", settings.Source)
	}
	return reconcile.Result{}, nil
}

// ReadSettings reads both objects; one that is missing has no keys.
func ReadSettings(ctx context.Context, reader client.Reader, namespace string) (*corev1.ConfigMap, cloud.Settings, error) {
	config, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	missing := ""
	for _, one := range []struct {
		object client.Object
		kind   string
		name   string
	}{{config, "ConfigMap", ConfigMapName}, {secret, "Secret", SecretName}} {
		err := reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: one.name}, one.object)
		if errors.IsNotFound(err) {
			missing += fmt.Sprintf(" (there is no %s %s)", one.kind, one.name)
		} else if err != nil {
			return nil, cloud.Settings{}, fmt.Errorf("read %s %s/%s: %w", one.kind, namespace, one.name, err)
		}
	}
	config.Namespace, config.Name = namespace, ConfigMapName
	secrets := make(map[string]string, len(secret.Data))
	for key, value := range secret.Data {
		secrets[key] = string(value)
	}
	source := fmt.Sprintf("ConfigMap %s and Secret %s in namespace %s%s", ConfigMapName, SecretName, namespace, missing)
	return config, cloud.NewSettings(source, config.Data, secrets), nil
}

// retry enqueues the PeerPods in deletion of providers that work again.
func (s *Settings) retry(ctx context.Context, changed []string) {
	if len(changed) == 0 {
		return
	}
	var all v1alpha1.PeerPodList
	if err := s.cached.List(ctx, &all, client.UnsafeDisableDeepCopy); err != nil {
		return // they are requeued later anyway
	}
	for i := range all.Items {
		if all.Items[i].DeletionTimestamp != nil {
			s.waiters.enqueue(client.ObjectKeyFromObject(&all.Items[i]))
		}
	}
}
