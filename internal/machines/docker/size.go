// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"context"
	"fmt"

	"github.com/moby/moby/client"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

var _ reconciler.Sizer = (*Backend)(nil)

// architectures are those of nodes by what kernels call them.
var architectures = map[string]string{"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x", "ppc64le": "ppc64le"}

// MachineSize returns the size of the engine's host, or the part of it that
// spec.resources takes.
func (b *Backend) MachineSize(ctx context.Context, template reconciler.InfraTemplate, _ reconciler.InfraCluster) (s infrav1.MachineTemplateStatus, err error) {
	t, ok := template.(*infrav1.DockerMachineTemplate)
	if !ok {
		return s, fmt.Errorf("%w: %T is not a DockerMachineTemplate", provider.ErrInvalidArgument, template)
	}
	host, err := b.engine.Info(ctx, client.InfoOptions{})
	if err != nil {
		return s, classify(fmt.Errorf("ask the engine what its host has: %w", err))
	}
	limits := t.Spec.Template.Spec.Resources
	s.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    least(resource.NewQuantity(int64(host.Info.NCPU), resource.DecimalSI), limits.CPU),
		corev1.ResourceMemory: least(resource.NewQuantity(host.Info.MemTotal, resource.BinarySI), limits.Memory),
	}
	if arch := architectures[host.Info.Architecture]; arch != "" && host.Info.OSType != "" {
		s.NodeInfo = infrav1.NodeInfo{Architecture: arch, OperatingSystem: host.Info.OSType}
	}
	return s, nil
}

func least(has, limit *resource.Quantity) resource.Quantity {
	if limit != nil && limit.Cmp(*has) < 0 {
		return *limit
	}
	return *has
}
