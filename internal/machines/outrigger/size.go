// SPDX-License-Identifier: Apache-2.0

package outrigger

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

var _ reconciler.Sizer = (*Backend)(nil)

// MachineSize returns the size of the type that a template names, and of another
// template the size that it asks for: the instance has that at least. GPUs are
// left out, since what a node calls them depends on its device plugin.
func (b *Backend) MachineSize(ctx context.Context, template reconciler.InfraTemplate, _ reconciler.InfraCluster) (infrav1.MachineTemplateStatus, error) {
	t, ok := template.(*infrav1.OutriggerMachineTemplate)
	if !ok {
		return infrav1.MachineTemplateStatus{}, fmt.Errorf("%w: %T is not an OutriggerMachineTemplate", provider.ErrInvalidArgument, template)
	}
	spec := t.Spec.Template.Spec
	if spec.InstanceType == "" {
		return requestedSize(&spec), nil
	}
	kind, known, err := b.instanceType(ctx, spec.InstanceType)
	if err != nil || !known {
		return infrav1.MachineTemplateStatus{}, err
	}
	return size(kind.VCPUs, kind.Memory<<20, kind.Arch), nil
}

func requestedSize(spec *infrav1.OutriggerMachineSpec) infrav1.MachineTemplateStatus {
	var memory int64
	if spec.Memory != nil {
		memory = spec.Memory.Value()
	}
	return size(spec.VCPUs, memory, spec.Arch)
}

func size(cpus, memory int64, arch string) (s infrav1.MachineTemplateStatus) {
	s.Capacity = corev1.ResourceList{}
	if cpus > 0 {
		s.Capacity[corev1.ResourceCPU] = *resource.NewQuantity(cpus, resource.DecimalSI)
	}
	if memory > 0 {
		s.Capacity[corev1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	if slices.Contains([]string{"amd64", "arm64", "s390x", "ppc64le"}, arch) {
		s.NodeInfo = infrav1.NodeInfo{Architecture: arch, OperatingSystem: "linux"}
	}
	return s
}

const catalogueAge = time.Hour

// catalogue has the types of all failure domains.
type catalogue struct {
	at    time.Time
	types []provider.InstanceType
}

// instanceType looks a type up; it is not known where no provider has a catalogue.
func (b *Backend) instanceType(ctx context.Context, name string) (t provider.InstanceType, known bool, err error) {
	b.sizes.Lock()
	defer b.sizes.Unlock()
	if b.catalogue == nil || b.options.Now().Sub(b.catalogue.at) >= catalogueAge {
		types, err := b.fleet.types(ctx)
		if err != nil {
			return t, false, err
		}
		b.catalogue = &catalogue{b.options.Now(), types}
	}
	i := slices.IndexFunc(b.catalogue.types, func(t provider.InstanceType) bool { return t.Name == name })
	switch {
	case i >= 0:
		return b.catalogue.types[i], true, nil
	case len(b.catalogue.types) == 0:
		return t, false, nil
	}
	return t, false, fmt.Errorf("%w: spec.template.spec.instanceType: provider %s has no type %q", provider.ErrInvalidArgument, b.options.Name, name)
}

// types returns those of all providers that have a catalogue.
func (f fleet) types(ctx context.Context) (all []provider.InstanceType, err error) {
	for _, p := range f.all {
		lister, ok := provider.As[provider.InstanceTypeLister](p)
		if !ok {
			continue
		}
		err := f.call(ctx, "instance-types", f.options.CallTimeout, func(ctx context.Context) error {
			some, err := lister.InstanceTypes(ctx)
			all = append(all, some...)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
