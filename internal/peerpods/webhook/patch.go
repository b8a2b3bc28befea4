// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// patch returns the operations that make before, which was sent, after. It
// compares only what sizing changes.
func patch(sent *sentPod, before, after *corev1.Pod) []jsonpatch.Operation {
	p := &patcher{}
	p.strings("/metadata/annotations", before.Annotations == nil, before.Annotations, after.Annotations)
	p.containers("/spec/initContainers", sent.Spec.InitContainers, before.Spec.InitContainers, after.Spec.InitContainers)
	p.containers("/spec/containers", sent.Spec.Containers, before.Spec.Containers, after.Spec.Containers)
	p.podResources(sent.Spec.Resources, before.Spec.Resources, after.Spec.Resources)
	p.strings("/spec/nodeSelector", false, before.Spec.NodeSelector, after.Spec.NodeSelector)
	p.affinity(before.Spec.Affinity, after.Spec.Affinity)
	return p.ops
}

type patcher struct{ ops []jsonpatch.Operation }

func (p *patcher) add(path string, value any) {
	p.ops = append(p.ops, jsonpatch.NewOperation("add", path, value))
}

func (p *patcher) remove(path string) {
	p.ops = append(p.ops, jsonpatch.NewOperation("remove", path, nil))
}

// strings makes the map at path, which may be absent, after.
func (p *patcher) strings(path string, absent bool, before, after map[string]string) {
	if absent && len(after) > 0 {
		p.add(path, after)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if _, kept := after[key]; !kept {
			p.remove(path + "/" + escape(key))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if was, found := before[key]; !found || was != after[key] {
			p.add(path+"/"+escape(key), after[key])
		}
	}
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// escape writes a key as a part of a JSON pointer (RFC 6901).
func escape(key string) string { return pointer.Replace(key) }

func (p *patcher) containers(path string, sent []sentContainer, before, after []corev1.Container) {
	for i := range after {
		if equality.Semantic.DeepEqual(before[i].Resources, after[i].Resources) {
			continue
		}
		p.add(fmt.Sprintf("%s/%d/resources", path, i), sent[i].Resources.with(after[i].Resources))
	}
}

func (p *patcher) podResources(sent sentResources, before, after *corev1.ResourceRequirements) {
	const path = "/spec/resources"
	switch {
	case equality.Semantic.DeepEqual(before, after):
	case after == nil:
		p.remove(path)
	default:
		p.add(path, sent.with(*after))
	}
}

func (p *patcher) affinity(before, after *corev1.Affinity) {
	const path = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution"
	if equality.Semantic.DeepEqual(before, after) {
		return
	}
	// Only this field changes, so both have a node affinity.
	if required := after.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		p.add(path, required)
	} else {
		p.remove(path)
	}
}
