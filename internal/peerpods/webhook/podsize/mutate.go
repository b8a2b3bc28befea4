// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The annotations that size a VM, as the Kata runtimes define them.
const (
	AnnotationVCPUs    = "io.katacontainers.config.hypervisor.default_vcpus"
	AnnotationMemory   = "io.katacontainers.config.hypervisor.default_memory"
	AnnotationGPUs     = "io.katacontainers.config.hypervisor.default_gpus"
	AnnotationGPUModel = "io.katacontainers.config.hypervisor.default_gpu_model"
)

// Mutate sizes a pod and makes it take one unit of slot from its node in place
// of cpu, memory and GPUs. Doing so again changes nothing. An error means that
// the pod is wrong and says why; the pod is then in no defined state.
func Mutate(pod *corev1.Pod, slot corev1.ResourceName) (Size, error) {
	before, err := ReadRecord(pod.Annotations)
	if err != nil {
		return Size{}, err
	}
	if err := checkAnnotations(pod.Annotations); err != nil {
		return Size{}, err
	}
	whole := pod.DeepCopy()
	before.restore(whole)
	defaultRequests(whole)
	if err := check(whole); err != nil {
		return Size{}, err
	}
	size, err := Of(whole)
	if err != nil {
		return Size{}, err
	}
	record := recordOf(whole)
	record.Sized = annotate(pod, size, before.Sized)
	strip(&pod.Spec)
	takeSlot(&pod.Spec, slot)
	return size, writeRecord(pod, record)
}

// annotate sets the size annotations that are not the user's and returns them.
func annotate(pod *corev1.Pod, size Size, before map[string]string) map[string]string {
	sized := map[string]string{}
	for _, a := range []struct {
		key string
		n   int64
	}{{AnnotationVCPUs, size.VCPUs}, {AnnotationMemory, size.MemoryMiB}, {AnnotationGPUs, size.GPUs}} {
		if a.n > 0 {
			setOwn(pod, sized, before, a.key, strconv.FormatInt(a.n, 10))
		} else if isOurs(pod, before, a.key) {
			delete(pod.Annotations, a.key)
		}
	}
	annotateModel(pod, sized, size.GPUModel, before)
	return sized
}

// annotateModel moves the model from node selection to its annotation, if the
// pod has a GPU at all. What an earlier call moved is kept.
func annotateModel(pod *corev1.Pod, sized map[string]string, model string, before map[string]string) {
	if model == "" {
		model = before[AnnotationGPUModel]
	}
	if n := strings.Trim(pod.Annotations[AnnotationGPUs], " 0."); n == "" || model == "" {
		return
	}
	setOwn(pod, sized, before, AnnotationGPUModel, model)
	dropGPUModel(&pod.Spec)
}

// isOurs reports whether an annotation is absent or was set by an earlier call.
func isOurs(pod *corev1.Pod, before map[string]string, key string) bool {
	now, found := pod.Annotations[key]
	was, ours := before[key]
	return !found || ours && now == was
}

func setOwn(pod *corev1.Pod, sized, before map[string]string, key, value string) {
	if !isOurs(pod, before, key) {
		return
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[key] = value
	sized[key] = value
}

func writeRecord(pod *corev1.Pod, r Record) error {
	text, err := r.text()
	switch {
	case err != nil:
		return err
	case text == "":
		delete(pod.Annotations, AnnotationRecord)
		return nil
	case pod.Annotations == nil:
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationRecord] = text
	return checkLength(text)
}

// strip takes cpu, memory and GPUs from the pod. Everything else stays.
func strip(spec *corev1.PodSpec) {
	for c := range containers(spec) {
		stripOne(&c.Resources, 1)
	}
	if spec.Resources == nil {
		return
	}
	stripOne(spec.Resources, int64(len(spec.InitContainers)+len(spec.Containers)))
	if len(spec.Resources.Requests)+len(spec.Resources.Limits)+len(spec.Resources.Claims) == 0 {
		spec.Resources = nil
	}
}

// stripOne leaves a trace of cpu or memory beside huge pages: the API server
// refuses them alone. Of a pod's own resources the trace must cover those of
// its containers.
func stripOne(r *corev1.ResourceRequirements, containers int64) {
	trace := corev1.ResourceList{}
	if q, found := r.Requests[corev1.ResourceCPU]; found && !q.IsZero() {
		trace[corev1.ResourceCPU] = *resource.NewMilliQuantity(containers, resource.DecimalSI)
	} else if q, found := r.Requests[corev1.ResourceMemory]; found && !q.IsZero() {
		trace[corev1.ResourceMemory] = *resource.NewQuantity(containers, resource.BinarySI)
	}
	r.Requests, r.Limits = without(r.Requests), without(r.Limits)
	if !hasHugePages(r.Requests) && !hasHugePages(r.Limits) {
		return
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	maps.Copy(r.Requests, trace)
}

func without(list corev1.ResourceList) corev1.ResourceList {
	for _, name := range taken {
		delete(list, name)
	}
	if len(list) == 0 {
		return nil
	}
	return list
}

func hasHugePages(list corev1.ResourceList) bool {
	for name := range list {
		if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
			return true
		}
	}
	return false
}

// takeSlot makes the pod take exactly one unit, on its first container.
func takeSlot(spec *corev1.PodSpec, slot corev1.ResourceName) {
	for c := range containers(spec) {
		delete(c.Resources.Requests, slot)
		delete(c.Resources.Limits, slot)
	}
	if len(spec.Containers) == 0 {
		return
	}
	r, one := &spec.Containers[0].Resources, resource.MustParse("1")
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	r.Requests[slot], r.Limits[slot] = one, one
}
