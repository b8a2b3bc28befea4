// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"errors"
	"fmt"
	"regexp"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
)

// check refuses what the API server would refuse if it still saw the resources
// that are taken from the pod. It expects requests to be defaulted.
func check(pod *corev1.Pod) error {
	for c := range containers(&pod.Spec) {
		if c.Name == "" {
			return errors.New("a container has no name")
		}
		if err := checkResources(fmt.Sprintf("container %q", c.Name), c.Resources); err != nil {
			return err
		}
	}
	if pod.Spec.Resources == nil {
		return nil
	}
	if err := checkResources("the pod", *pod.Spec.Resources); err != nil {
		return err
	}
	return checkPodLevel(pod)
}

func checkResources(where string, r corev1.ResourceRequirements) error {
	for _, name := range taken {
		request, limit := r.Requests[name], r.Limits[name]
		_, limited := r.Limits[name]
		switch {
		case request.Sign() < 0:
			return fmt.Errorf("%s: request of %s: %s is negative", where, name, request.String())
		case limit.Sign() < 0:
			return fmt.Errorf("%s: limit of %s: %s is negative", where, name, limit.String())
		case limited && request.Cmp(limit) > 0:
			return fmt.Errorf("%s: request of %s: %s is more than the limit of %s", where, name, request.String(), limit.String())
		case name == GPU && request.Cmp(limit) != 0:
			return fmt.Errorf("%s: request and limit of %s must be equal: %s is not %s", where, name, request.String(), limit.String())
		case name == GPU && request.MilliValue()%1000 != 0:
			return fmt.Errorf("%s: %s of %s is not a whole number", where, request.String(), name)
		}
	}
	return nil
}

// checkPodLevel compares the pod's own resources with those of its containers.
func checkPodLevel(pod *corev1.Pod) error {
	own := pod.Spec.Resources
	sum := resourcehelper.AggregateContainerRequests(pod, resourcehelper.PodResourcesOptions{})
	for _, name := range taken {
		q, set := own.Requests[name]
		if asked := sum[name]; set && asked.Cmp(q) > 0 {
			return fmt.Errorf("the pod: request of %s: %s is less than what its containers ask for together, %s", name, q.String(), asked.String())
		}
	}
	for c := range containers(&pod.Spec) {
		for _, name := range taken {
			q, set := own.Limits[name]
			if limit := c.Resources.Limits[name]; set && limit.Cmp(q) > 0 {
				return fmt.Errorf("container %q: limit of %s: %s is more than the limit of the pod, %s", c.Name, name, limit.String(), q.String())
			}
		}
	}
	return nil
}

// number is what the adaptor reads from a size annotation.
var number = regexp.MustCompile(`^\s*([0-9]{1,12}(\.[0-9]{1,12})?)?\s*$`)

// checkAnnotations refuses sizes that the adaptor would refuse later, when
// nobody watches any more.
func checkAnnotations(annotations map[string]string) error {
	for _, one := range []struct{ key, want string }{
		{AnnotationVCPUs, "a number of vCPUs such as 2"},
		{AnnotationMemory, "a number of MiB such as 4096, without a unit"},
		{AnnotationGPUs, "a number of GPUs such as 1"},
	} {
		if text := annotations[one.key]; !number.MatchString(text) {
			return fmt.Errorf("annotation %s: %.80q is not %s", one.key, text, one.want)
		}
	}
	return nil
}

// CheckUpdate refuses a change of the record, which nobody but the webhook
// writes, and sizes that the adaptor would refuse.
func CheckUpdate(before, after map[string]string) error {
	was, had := before[AnnotationRecord]
	now, has := after[AnnotationRecord]
	if had != has || was != now {
		return fmt.Errorf("annotation %s cannot be changed: it is written by the webhook when the pod is created", AnnotationRecord)
	}
	changed := map[string]string{}
	for key, text := range after {
		if before[key] != text {
			changed[key] = text
		}
	}
	return checkAnnotations(changed)
}
