// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

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
