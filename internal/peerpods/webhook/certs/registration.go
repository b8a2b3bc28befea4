// SPDX-License-Identifier: Apache-2.0

package certs

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"

	admissionregistration "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/kubeapi"
)

// WebhookName is the entry of the MutatingWebhookConfiguration that is ours.
const WebhookName = "mwebhook.peerpods.io"

// matchCondition is the entry's condition that spares all other pods the call,
// so that they can be created while the webhook is away.
const matchCondition = "runtime-class"

// registration is our entry as the API server has it.
type registration struct {
	config *admissionregistration.MutatingWebhookConfiguration
	index  int
}

func readRegistration(ctx context.Context, c client.Reader, name string) (registration, error) {
	config := &admissionregistration.MutatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: name}, config); err != nil {
		return registration{}, fmt.Errorf("read the MutatingWebhookConfiguration %s: %w", name, err)
	}
	for i := range config.Webhooks {
		if config.Webhooks[i].Name == WebhookName {
			return registration{config, i}, nil
		}
	}
	return registration{}, fmt.Errorf("the MutatingWebhookConfiguration %s has no webhook %s: apply the manifest again", name, WebhookName)
}

func (r registration) webhook() *admissionregistration.MutatingWebhook {
	return &r.config.Webhooks[r.index]
}

// hosts returns the names by which the API server calls the webhook.
func (r registration) hosts() ([]string, error) {
	c := r.webhook().ClientConfig
	switch {
	case c.Service != nil:
		name := c.Service.Name + "." + c.Service.Namespace + ".svc"
		return []string{name, name + ".cluster.local"}, nil
	case c.URL != nil:
		u, err := url.Parse(*c.URL)
		if err == nil && u.Hostname() != "" {
			return []string{u.Hostname()}, nil
		}
	}
	return nil, fmt.Errorf("the webhook %s of %s has neither a service nor a url with a host", WebhookName, r.config.Name)
}

// register makes the API server trust bundle, unless it is nil, and send only
// pods of the runtime class. It reports whether there was something to change.
func (r registration) register(ctx context.Context, c client.Writer, bundle []byte, runtimeClass string) (bool, error) {
	at := fmt.Sprintf("/webhooks/%d", r.index)
	ops := r.conditionChange(at, runtimeClass)
	if bundle != nil && !bytes.Equal(bundle, r.webhook().ClientConfig.CABundle) {
		ops = append(ops, kubeapi.Operation{Op: "add", Path: at + "/clientConfig/caBundle", Value: bundle})
	}
	if len(ops) == 0 {
		return false, nil
	}
	// Entries may have moved since they were read.
	ops = append([]kubeapi.Operation{{Op: "test", Path: at + "/name", Value: WebhookName}}, ops...)
	text, err := json.Marshal(ops)
	if err != nil {
		return false, err
	}
	if err := c.Patch(ctx, r.config, client.RawPatch(types.JSONPatchType, text)); err != nil {
		return false, fmt.Errorf("patch the MutatingWebhookConfiguration %s: %w", r.config.Name, err)
	}
	return true, nil
}

func (r registration) conditionChange(at, runtimeClass string) []kubeapi.Operation {
	want := admissionregistration.MatchCondition{
		Name:       matchCondition,
		Expression: fmt.Sprintf("has(object.spec.runtimeClassName) && object.spec.runtimeClassName == %q", runtimeClass),
	}
	at += "/matchConditions"
	for i, have := range r.webhook().MatchConditions {
		switch {
		case have == want:
			return nil
		case have.Name == want.Name:
			return []kubeapi.Operation{{Op: "replace", Path: fmt.Sprintf("%s/%d", at, i), Value: want}}
		}
	}
	if len(r.webhook().MatchConditions) == 0 {
		return []kubeapi.Operation{{Op: "add", Path: at, Value: []admissionregistration.MatchCondition{want}}}
	}
	return []kubeapi.Operation{{Op: "add", Path: at + "/-", Value: want}}
}
