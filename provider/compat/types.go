// SPDX-License-Identifier: Apache-2.0

package compat

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/provider"
)

// SortInstanceTypesOnResources sorts by GPUs, memory and virtual CPUs, in place.
func SortInstanceTypesOnResources(list []InstanceTypeSpec) []InstanceTypeSpec {
	slices.SortStableFunc(list, bySize)
	return list
}

func bySize(a, b InstanceTypeSpec) int {
	return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Memory, b.Memory), cmp.Compare(a.VCPUs, b.VCPUs))
}

// SelectInstanceTypeToUse returns the type that a pod asks for, else the smallest of the
// list that is big enough, else the default. The answer is one of valid, or the default.
func SelectInstanceTypeToUse(spec InstanceTypeSpec, list []InstanceTypeSpec, valid []string, def string) (string, error) {
	name := spec.InstanceType
	var err error
	switch {
	case name != "":
	case spec.GPUs > 0:
		name, err = GetBestFitInstanceTypeWithGPU(list, spec.GPUs, spec.VCPUs, spec.Memory)
	case spec.VCPUs > 0 || spec.Memory > 0:
		name, err = GetBestFitInstanceType(list, spec.VCPUs, spec.Memory)
	}
	if err != nil {
		return "", err
	}
	return VerifyCloudInstanceType(name, valid, def)
}

// VerifyCloudInstanceType returns the type if it is the default or one of valid; an empty
// one is the default.
func VerifyCloudInstanceType(name string, valid []string, def string) (string, error) {
	if name == "" || name == def {
		return def, nil
	}
	if !slices.Contains(valid, name) {
		return "", fmt.Errorf("%w: instance type %q is neither the default %q nor one of %q", provider.ErrInvalidArgument, name, def, valid)
	}
	return name, nil
}

// GetBestFitInstanceType returns the smallest type without GPUs that is big enough.
func GetBestFitInstanceType(list []InstanceTypeSpec, vcpus, memory int64) (string, error) {
	return bestFit(FilterOutGPUInstances(list), 0, vcpus, memory)
}

// GetBestFitInstanceTypeWithGPU returns the smallest type that is big enough.
func GetBestFitInstanceTypeWithGPU(list []InstanceTypeSpec, gpus, vcpus, memory int64) (string, error) {
	return bestFit(list, gpus, vcpus, memory)
}

// bestFit looks at all: those that fit are not one end of a sorted list.
func bestFit(list []InstanceTypeSpec, gpus, vcpus, memory int64) (string, error) {
	var fit []InstanceTypeSpec
	for _, s := range list {
		if s.GPUs >= gpus && s.VCPUs >= vcpus && s.Memory >= memory {
			fit = append(fit, s)
		}
	}
	if len(fit) == 0 {
		return "", fmt.Errorf("%w: no instance type has %d GPUs, %d virtual CPUs and %d MiB", provider.ErrInvalidArgument, gpus, vcpus, memory)
	}
	return slices.MinFunc(fit, bySize).InstanceType, nil
}

// FilterOutGPUInstances returns the types without GPUs.
func FilterOutGPUInstances(list []InstanceTypeSpec) []InstanceTypeSpec {
	return slices.DeleteFunc(slices.Clone(list), func(s InstanceTypeSpec) bool { return s.GPUs > 0 })
}
