// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/outrigger/outrigger/internal/nodes/operator/trustbundle"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Where authorities are.
const (
	caName      = "ccm-trusted-ca"
	caKey       = "ca-bundle.crt"
	caConfigKey = "ca-bundle.pem"
)

// OpenShift requires this annotation on ConfigMaps with certificates.
const (
	componentAnnotation = "openshift.io/owning-component"
	component           = "Cloud Compute / Cloud Controller Manager"
)

// madeByAnnotation is on bundles of ours and not on those of OpenShift's own operator;
// askedAnnotation is on one of the latter, with the sum of what it had when it was taken
// over and of what was asked for then.
const (
	madeByAnnotation = "ccm.outrigger.dev/made-by"
	askedAnnotation  = "ccm.outrigger.dev/taken-over"
)

// caAnnotations are those of a bundle of ours.
var caAnnotations = map[string]string{componentAnnotation: component, madeByAnnotation: "config-sync"}

// trustedCA makes the bundle of authorities that the cloud controller manager
// mounts.
type trustedCA struct {
	client client.Client
	// own is what is mounted, config has the cloud's own authorities.
	own, config types.NamespacedName
	// systemBundle is the file with the system's authorities; empty is the usual one.
	systemBundle string
	now          func() time.Time
}

// sync writes the bundle. It returns what it could not use of it.
func (r *trustedCA) sync(ctx context.Context) (string, error) {
	var proxy configv1.Proxy
	if err := r.client.Get(ctx, cluster, &proxy); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("failed to get Proxy: %w", err)
	}
	path := trustbundle.SystemFile(r.systemBundle)
	system, err := os.ReadFile(path)
	if err != nil {
		// It is replaced now and then.
		return "", fmt.Errorf("failed to get system trust bundle: %w", err)
	}
	sources, left, err := r.sources(ctx, proxy.Spec.TrustedCA.Name)
	if err != nil {
		return "", err
	}
	merged, dropped, err := trustbundle.Merge(sources, string(system), r.now())
	if err != nil {
		return "", fmt.Errorf("failed to get system trust bundle: %s: %w", path, err)
	}
	left = append(left, dropped...)
	adopted, err := r.adopt(ctx, strings.TrimSuffix(merged, string(system)))
	if adopted || err != nil {
		return strings.Join(left, "; "), err
	}
	if err := write(ctx, r.client, r.own, content{data: map[string]string{caKey: merged}}, caAnnotations); err != nil {
		return "", fmt.Errorf("can not update target trust bundle configmap: %w", err)
	}
	return strings.Join(left, "; "), nil
}

// adopt leaves a bundle of the operator whose place this one took as it is, while it has
// what is asked for: the system's authorities in it are those of that operator's image,
// and ours would restart all that reads them. Whoever wants ours deletes it. What was
// asked for at first is noted, since nobody can tell in the bundle where the system's begin.
func (r *trustedCA) adopt(ctx context.Context, asked string) (adopted bool, err error) {
	is, err := readConfigMap(ctx, r.client, r.own)
	if is == nil || err != nil || is.Annotations[madeByAnnotation] != "" || is.Annotations[componentAnnotation] != component {
		return false, err
	}
	if !trustbundle.Begins(is.Data[caKey], asked) || len(is.Data) != 1 || len(is.BinaryData) > 0 {
		return false, nil
	}
	switch hash := fmt.Sprintf("%x", sha256.Sum256([]byte(asked+is.Data[caKey]))); is.Annotations[askedAnnotation] {
	case hash:
		return true, nil
	case "":
		m := is.DeepCopy()
		m.Annotations[askedAnnotation] = hash
		return true, r.client.Update(ctx, m)
	}
	return false, nil
}

// sources returns the texts with certificates, those of the cloud first, and
// what is missing of them.
func (r *trustedCA) sources(ctx context.Context, proxyCA string) (sources []trustbundle.Source, left []string, err error) {
	config, err := readConfigMap(ctx, r.client, r.config)
	if err != nil {
		return nil, nil, err
	}
	if text, ok := contentOf(config).data[caConfigKey]; ok {
		sources = append(sources, trustbundle.Source{Name: sourceName(r.config, caConfigKey), Text: text})
	}
	if proxyCA == "" {
		return sources, nil, nil
	}
	name := types.NamespacedName{Namespace: userNamespace, Name: proxyCA}
	user, err := readConfigMap(ctx, r.client, name)
	if err != nil {
		return nil, nil, err
	}
	text, ok := contentOf(user).data[caKey]
	if ok {
		return append(sources, trustbundle.Source{Name: sourceName(name, caKey), Text: text}), nil, nil
	}
	why := "does not exist"
	if user != nil {
		why = "has no key " + caKey
	}
	return sources, []string{fmt.Sprintf("ConfigMap %s, which spec.trustedCA of Proxy %s names, %s", name, cluster.Name, why)}, nil
}

func sourceName(name types.NamespacedName, key string) string {
	return fmt.Sprintf("ConfigMap %s, key %s", name, key)
}
