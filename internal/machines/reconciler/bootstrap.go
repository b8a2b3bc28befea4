// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

// Keys of a bootstrap Secret.
const (
	bootstrapValue  = "value"
	bootstrapFormat = "format"
)

type waiting struct {
	reason, message string
	// poll is set if no event will end the wait.
	poll bool
	// ofBootstrap is set where it is the bootstrap data that is missing.
	ofBootstrap bool
}

// bootstrapData reads the Secret by its name: the manager neither lists nor
// caches Secrets.
func (r *MachineReconciler) bootstrapData(ctx context.Context, machine *clusterv1.Machine) (data []byte, format string, wait *waiting, err error) {
	name := machine.Spec.Bootstrap.DataSecretName
	if name == nil || *name == "" {
		return nil, "", &waiting{ofBootstrap: true, reason: clusterv1.WaitingForBootstrapDataReason,
			message: "the Machine's spec.bootstrap.dataSecretName is not set yet"}, nil
	}
	wrong := func(reason, format string, args ...any) *waiting {
		return &waiting{reason: reason, poll: true, ofBootstrap: true, message: fmt.Sprintf(format, args...)}
	}
	secret := &corev1.Secret{}
	err = r.Live.Get(ctx, types.NamespacedName{Namespace: machine.Namespace, Name: *name}, secret)
	data = secret.Data[bootstrapValue]
	format = cmp.Or(string(secret.Data[bootstrapFormat]), FormatCloudConfig)
	switch {
	case apierrors.IsNotFound(err):
		wait = wrong(ReasonBootstrapSecretMissing, "there is no Secret %s, which the Machine's spec.bootstrap.dataSecretName names", *name)
	case apierrors.IsForbidden(err):
		wait = wrong(ReasonBootstrapSecretForbidden, "the manager may not read Secret %s, which the Machine's spec.bootstrap.dataSecretName names: %v", *name, err)
	case err != nil:
		return nil, "", nil, fmt.Errorf("read Secret %s/%s: %w", machine.Namespace, *name, err)
	case len(data) == 0:
		wait = wrong(ReasonBootstrapDataInvalid, "Secret %s has nothing under the key %q", *name, bootstrapValue)
	case len(data) > r.MaxBootstrap:
		wait = wrong(ReasonBootstrapDataTooLarge, "Secret %s has %d bytes of bootstrap data; at most %d are taken", *name, len(data), r.MaxBootstrap)
	case format != FormatCloudConfig && format != FormatIgnition:
		wait = wrong(ReasonBootstrapFormatUnknown, "Secret %s says that its data is %q; known are %s and %s", *name, format, FormatCloudConfig, FormatIgnition)
	}
	return data, format, wait, nil
}
