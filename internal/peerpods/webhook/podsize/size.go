// SPDX-License-Identifier: Apache-2.0

// Package podsize says how large the VM of a pod must be, writes that into the
// pod's annotations, and takes from the pod what its node must not be asked
// for. See docs/sizing.md.
package podsize

import (
	"fmt"
	"iter"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	resourcehelper "k8s.io/component-helpers/resource"
)

// GPU is the resource that counts GPUs of the VM.
const GPU corev1.ResourceName = "nvidia.com/gpu"

// taken are the resources that the VM provides and the node does not.
var taken = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, GPU}

// Size is what a pod needs. A zero field means the provider's default.
type Size struct {
	VCPUs, MemoryMiB, GPUs int64
	GPUModel               string
}

const mib = 1 << 20

// Of returns the size of a pod's VM: its effective request as the scheduler
// computes it, or its limit where that is no smaller, plus its overhead. A
// resource that no container asks for stays zero, whatever the overhead.
func Of(pod *corev1.Pod) (Size, error) {
	opts := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
	requests, limits := resourcehelper.PodRequests(pod, opts), resourcehelper.PodLimits(pod, opts)
	size := Size{GPUModel: gpuModel(&pod.Spec)}
	for _, field := range []struct {
		name corev1.ResourceName
		unit int64
		to   *int64
	}{
		{corev1.ResourceCPU, 1, &size.VCPUs},
		{corev1.ResourceMemory, mib, &size.MemoryMiB},
		{GPU, 1, &size.GPUs},
	} {
		n, err := units(choose(requests[field.name], limits[field.name], pod.Spec.Overhead[field.name]), field.unit)
		if err != nil {
			return Size{}, fmt.Errorf("the pod's %s: %w", field.name, err)
		}
		*field.to = n
	}
	return size, nil
}

// choose computes the size for one resource.
func choose(request, limit, overhead resource.Quantity) resource.Quantity {
	if request.Sign() <= 0 {
		return resource.Quantity{}
	}
	chosen := request.DeepCopy()
	if limit.Cmp(request) > 0 {
		chosen = limit.DeepCopy()
	}
	chosen.Add(overhead)
	return chosen
}

// units rounds up to whole units. The adaptor takes no number beyond 32 bits.
func units(q resource.Quantity, unit int64) (int64, error) {
	if q.CmpInt64(math.MaxInt32*unit) > 0 {
		return 0, fmt.Errorf("%s is more than any VM has", q.String())
	}
	n := q.Value() // rounds up
	return (n + unit - 1) / unit, nil
}

// defaultRequests sets requests left out to the limits, as the API server does
// before it calls a webhook.
func defaultRequests(pod *corev1.Pod) {
	for c := range containers(&pod.Spec) {
		c.Resources.Requests = orElse(c.Resources.Requests, c.Resources.Limits)
	}
	if pod.Spec.Resources == nil {
		return
	}
	pod.Spec.Resources.Requests = orElse(pod.Spec.Resources.Requests,
		resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{}))
	pod.Spec.Resources.Requests = orElse(pod.Spec.Resources.Requests, pod.Spec.Resources.Limits)
}

func orElse(list, other corev1.ResourceList) corev1.ResourceList {
	for _, name := range taken {
		q, found := other[name]
		if _, set := list[name]; set || !found {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = q.DeepCopy()
	}
	return list
}

// containers iterates over the init containers and the containers.
func containers(spec *corev1.PodSpec) iter.Seq[*corev1.Container] {
	return func(yield func(*corev1.Container) bool) {
		for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
			for i := range list {
				if !yield(&list[i]) {
					return
				}
			}
		}
	}
}

// LabelGPUProduct is the label by which NVIDIA's device plugin names the model
// of a node's GPUs.
const LabelGPUProduct = "nvidia.com/gpu.product"

// gpuModel returns the first model that the pod's node selector or required
// node affinity accepts, or nothing.
func gpuModel(spec *corev1.PodSpec) string {
	if model := spec.NodeSelector[LabelGPUProduct]; model != "" {
		return model
	}
	required := requiredNodes(spec)
	if required == nil {
		return ""
	}
	for _, term := range required.NodeSelectorTerms {
		for _, e := range term.MatchExpressions {
			if namesModel(e) {
				return e.Values[0]
			}
		}
	}
	return ""
}

func namesModel(e corev1.NodeSelectorRequirement) bool {
	return e.Key == LabelGPUProduct && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) > 0
}

func requiredNodes(spec *corev1.PodSpec) *corev1.NodeSelector {
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil {
		return nil
	}
	return spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
}

// dropGPUModel removes the model from what the pod's node must have: the GPU is
// in the VM, and a node that only starts VMs has none.
func dropGPUModel(spec *corev1.PodSpec) {
	delete(spec.NodeSelector, LabelGPUProduct)
	required := requiredNodes(spec)
	if required == nil {
		return
	}
	for i := range required.NodeSelectorTerms {
		term := &required.NodeSelectorTerms[i]
		if !slices.ContainsFunc(term.MatchExpressions, namesModel) {
			continue
		}
		term.MatchExpressions = slices.DeleteFunc(term.MatchExpressions, namesModel)
		if len(term.MatchExpressions)+len(term.MatchFields) == 0 {
			// Terms are alternatives. This one now accepts every node, while an
			// empty term would accept none.
			spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
			return
		}
	}
}
