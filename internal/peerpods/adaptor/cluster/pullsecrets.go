// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/redact"
)

// reader is an identity that may read Secrets.
type reader struct {
	name string
	api  *kubeapi.Client
}

// PullSecrets implements [adaptor.Cluster]. As the kubelet does, it goes by the
// pod's own list, into which the API server copied that of the service account,
// and a missing Secret does not keep a pod from starting.
func (c *Cluster) PullSecrets(ctx context.Context, rec adaptor.Record, room int) []adaptor.RegistryAuth {
	p, err := c.pod(ctx, rec.PodNamespace, rec.PodName)
	if err != nil {
		if !noSuchPod(err) {
			c.opts.Log.Warn("the pod's list of image pull secrets cannot be read; its VM gets none", append(logAttrs(&rec), "error", err)...)
			c.events.warn(&rec, reasonSecretMissing, "the pod's VM was started without image pull secrets, since the API server did not answer: "+err.Error()+"; delete the pod if it cannot pull its images")
		}
		return nil
	}
	var all []adaptor.RegistryAuth
	for _, ref := range p.Spec.ImagePullSecrets {
		var auths []adaptor.RegistryAuth
		s, err := c.readSecret(ctx, rec.PodNamespace, ref.Name)
		if err == nil {
			auths, err = parsePullSecret(s)
		}
		if err != nil {
			c.secretProblem(&rec, ref.Name, err)
			continue
		}
		all = append(all, auths...)
	}
	return c.limitSize(&rec, all, room)
}

// readSecret asks as each identity until one may.
func (c *Cluster) readSecret(ctx context.Context, namespace, name string) (*secret, error) {
	var refused error
	for _, reader := range c.secrets {
		s := new(secret)
		limited, cancel := c.withClaimTimeout(ctx)
		err := reader.api.Get(limited, kubeapi.Path(kubeapi.Core, namespace, "secrets", name), s)
		cancel()
		if err == nil {
			return s, nil
		}
		if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
			return nil, err
		}
		refused = errors.Join(refused, fmt.Errorf("as %s: %w", reader.name, err))
	}
	return nil, errDenied{refused}
}

// errDenied means that no identity of this node may read a Secret.
type errDenied struct{ error }

// errFormat means that a Secret is not an image pull secret.
var errFormat = errors.New("not an image pull secret")

func (c *Cluster) secretProblem(rec *adaptor.Record, name string, err error) {
	name = redact.Line(name) // any text of the pod's author
	reason, text := reasonSecretMissing, fmt.Sprintf("image pull secret %s cannot be read: %v", name, err)
	switch {
	case errors.As(err, new(errDenied)):
		reason = reasonSecretDenied
		text = fmt.Sprintf("nobody on this node may read image pull secret %s; let the adaptor: kubectl create role pull-secrets -n %s --verb=get --resource=secrets --resource-name=%s, bind it to the adaptor's service account, and delete the pod (%v)", name, rec.PodNamespace, name, err)
	case apierrors.IsNotFound(err):
		text = fmt.Sprintf("there is no image pull secret %s in namespace %s; make it and delete the pod", name, rec.PodNamespace)
	case errors.Is(err, errFormat):
		reason, text = reasonSecretInvalid, fmt.Sprintf("image pull secret %s: %v", name, err)
	}
	c.opts.Log.Warn("the pod's VM is started without an image pull secret", append(logAttrs(rec), "secret", name, "error", err)...)
	c.events.warn(rec, reason, text)
}

// limitSize keeps what fits into room bytes, in the pod's order, and warns about the
// rest.
func (c *Cluster) limitSize(rec *adaptor.Record, all []adaptor.RegistryAuth, room int) []adaptor.RegistryAuth {
	const frame, each = len(`{"auths":{}}`), len(`"":{"auth":""},`)
	room -= frame
	var kept []adaptor.RegistryAuth
	var left []string
	for _, one := range all {
		size := each + len(one.Registry) + len(one.Auth)
		if slices.ContainsFunc(kept, func(k adaptor.RegistryAuth) bool { return k.Registry == one.Registry }) {
			continue // the first secret for a registry counts
		}
		if size > room {
			left = append(left, one.Registry)
			continue
		}
		room -= size
		kept = append(kept, one)
	}
	if len(left) > 0 {
		c.opts.Log.Warn("image pull secrets do not fit into the VM's user-data", append(logAttrs(rec), "left-out", left)...)
		c.events.warn(rec, reasonSecretTooBig, fmt.Sprintf("image pull secrets of a pod may have %d bytes together; those for %v were left out: keep only the registries that the pod needs", adaptor.MaxAuthFile, left))
	}
	return kept
}

// dockerEntry is one registry in Docker's configuration.
type dockerEntry struct {
	Auth     string `json:"auth"`
	Username string `json:"username"`
	Password string `json:"password"`
}

// parsePullSecret reads both forms that Kubernetes knows.
func parsePullSecret(s *secret) ([]adaptor.RegistryAuth, error) {
	var entries map[string]dockerEntry
	switch {
	case s.Data[".dockerconfigjson"] != nil:
		var file struct {
			Auths map[string]dockerEntry `json:"auths"`
		}
		if json.Unmarshal(s.Data[".dockerconfigjson"], &file) != nil || file.Auths == nil {
			return nil, fmt.Errorf(`%w: its key .dockerconfigjson is not JSON of the form {"auths":{"<registry>":{...}}}`, errFormat)
		}
		entries = file.Auths
	case s.Data[".dockercfg"] != nil:
		if json.Unmarshal(s.Data[".dockercfg"], &entries) != nil {
			return nil, fmt.Errorf(`%w: its key .dockercfg is not JSON of the form {"<registry>":{...}}`, errFormat)
		}
	default:
		return nil, fmt.Errorf("%w: it is of type %q and has neither the key .dockerconfigjson nor .dockercfg", errFormat, s.Type)
	}
	var auths []adaptor.RegistryAuth
	for _, registry := range slices.Sorted(maps.Keys(entries)) {
		entry := entries[registry]
		auth := entry.Auth
		if auth == "" && entry.Username != "" {
			auth = base64.StdEncoding.EncodeToString([]byte(entry.Username + ":" + entry.Password))
		}
		if auth == "" {
			return nil, fmt.Errorf("%w: registry %s has neither auth nor username", errFormat, registry)
		}
		auths = append(auths, adaptor.RegistryAuth{Registry: registry, Auth: auth})
	}
	return auths, nil
}
