// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/ccmoperator/openshift"
	"github.com/outrigger/outrigger/internal/ccmoperator/trustbundle"
)

// Where authorities are.
const (
	caName      = "ccm-trusted-ca"
	caKey       = "ca-bundle.crt"
	caConfigKey = "ca-bundle.pem"
)

// madeByAnnotation tells a bundle of ours from one of OpenShift's own operator.
const madeByAnnotation = "ccm.outrigger.dev/made-by"

// caAnnotations are what OpenShift wants to know of a ConfigMap with
// certificates, and whose it is.
var caAnnotations = map[string]string{"openshift.io/owning-component": "Cloud Compute / Cloud Controller Manager", madeByAnnotation: "config-sync"}

// trustedCA makes the bundle of authorities that the cloud controller manager
// mounts.
type trustedCA struct {
	client client.Client
	config types.NamespacedName
	target target
	// system answers the file with the system's authorities.
	system func() string
	now    func() time.Time
}

// sync writes the bundle. What it could not use of it, it answers.
func (r *trustedCA) sync(ctx context.Context) (string, error) {
	var proxy openshift.Proxy
	if err := r.client.Get(ctx, cluster, &proxy); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("failed to get Proxy: %w", err)
	}
	path := r.system()
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
	r.target.asGood = func(is *corev1.ConfigMap, _ content) bool {
		return anothers(is, strings.TrimSuffix(merged, string(system)))
	}
	if err != nil {
		return "", fmt.Errorf("failed to get system trust bundle: %s: %w", path, err)
	}
	for _, d := range dropped {
		left = append(left, d.String())
	}
	if err := r.target.write(ctx, content{data: map[string]string{caKey: merged}}); err != nil {
		return "", fmt.Errorf("can not update target trust bundle configmap: %w", err)
	}
	return strings.Join(left, "; "), nil
}

// anothers tells whether a ConfigMap is one of the operator whose place this one took,
// and has the authorities that are asked for. The system's are those of that operator's
// image then: others would restart all that reads them. Who wants ours deletes it.
func anothers(is *corev1.ConfigMap, asked string) bool {
	for key, value := range caAnnotations {
		if key != madeByAnnotation && is.Annotations[key] != value {
			return false
		}
	}
	return is.Annotations[madeByAnnotation] == "" && trustbundle.Begins(is.Data[caKey], asked)
}

// sources answers the texts with certificates, those of the cloud first, and
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
	switch {
	case user == nil:
		left = append(left, fmt.Sprintf("ConfigMap %s, which spec.trustedCA of Proxy %s names, does not exist", name, cluster.Name))
	case !ok:
		left = append(left, fmt.Sprintf("ConfigMap %s, which spec.trustedCA of Proxy %s names, has no key %s", name, cluster.Name, caKey))
	default:
		sources = append(sources, trustbundle.Source{Name: sourceName(name, caKey), Text: text})
	}
	return sources, left, nil
}

func sourceName(name types.NamespacedName, key string) string {
	return fmt.Sprintf("ConfigMap %s, key %s", name, key)
}
