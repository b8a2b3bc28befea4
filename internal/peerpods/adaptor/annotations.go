// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"fmt"
	"math"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// Annotations of CreateVM. A shim sends the first nine (kata 3.3 to 4.1; which
// of them depends on its version); all but the pod's name and namespace may be
// absent or empty.
const (
	annotationPodName      = "io.kubernetes.cri.sandbox-name"
	annotationPodNamespace = "io.kubernetes.cri.sandbox-namespace"
	annotationMachineType  = "io.katacontainers.config.hypervisor.machine_type"
	annotationImage        = "io.katacontainers.config.hypervisor.image"
	annotationVCPUs        = "io.katacontainers.config.hypervisor.default_vcpus"
	annotationMemory       = "io.katacontainers.config.hypervisor.default_memory"
	annotationGPUs         = "io.katacontainers.config.hypervisor.default_gpus"
	annotationGPUModel     = "io.katacontainers.config.hypervisor.default_gpu_model"
	annotationInitdata     = cloudinit.InitDataAnnotation

	// AnnotationKeepIdle is ours: "true" keeps a sandbox that has no client
	// for longer than the orphan timeout. No shim sends it.
	AnnotationKeepIdle = "outrigger.dev/keep-idle"
)

// podRequest is what CreateVM's annotations say.
type podRequest struct {
	Name, Namespace string
	Spec            provider.InstanceTypeSpec
	// Initdata is base64 of gzip of TOML; empty when the pod has none.
	Initdata string
	KeepIdle bool
}

// parseAnnotations reads a pod's request. Its errors name the annotation and
// are of class provider.ErrInvalidArgument.
func parseAnnotations(annotations map[string]string) (*podRequest, error) {
	req := &podRequest{
		Name:      annotations[annotationPodName],
		Namespace: annotations[annotationPodNamespace],
		KeepIdle:  annotations[AnnotationKeepIdle] == "true",
	}
	req.fromCRIO()
	if err := req.checkPod(); err != nil {
		return nil, err
	}
	req.Spec.Arch = runtime.GOARCH // the pod was scheduled to a node like this one
	req.Spec.InstanceType = strings.TrimSpace(annotations[annotationMachineType])
	req.Spec.Image = strings.TrimSpace(annotations[annotationImage])
	req.Spec.GPU = strings.TrimSpace(annotations[annotationGPUModel])
	for _, size := range []struct {
		key   string
		field *int64
	}{
		{annotationVCPUs, &req.Spec.VCPUs},
		{annotationMemory, &req.Spec.Memory},
		{annotationGPUs, &req.Spec.GPUs},
	} {
		n, err := parseSize(annotations[size.key])
		if err != nil {
			return nil, invalid("annotation %s: %w", size.key, err)
		}
		*size.field = n
	}
	initdata, err := NormalInitdata(annotations[annotationInitdata])
	if err != nil {
		return nil, invalid("annotation %s: %w", annotationInitdata, err)
	}
	req.Initdata = initdata
	return req, nil
}

// fromCRIO takes pod and namespace out of CRI-O's sandbox name
// k8s_<pod>_<namespace>_<uid>_<attempt>.
func (r *podRequest) fromCRIO() {
	parts := strings.Split(r.Name, "_")
	if len(parts) != 5 || parts[0] != "k8s" {
		return
	}
	r.Name = parts[1]
	if r.Namespace == "" {
		r.Namespace = parts[2]
	}
}

func (r *podRequest) checkPod() error {
	for _, field := range []struct{ key, value string }{
		{annotationPodName, r.Name},
		{annotationPodNamespace, r.Namespace},
	} {
		if field.value == "" {
			return invalid("annotation %s is missing: a sandbox needs the name and namespace of its pod (with ctr, pass --annotation %s=VALUE)", field.key, field.key)
		}
		if !podNamePattern.MatchString(field.value) {
			return invalid("annotation %s: %q is not a name of letters, digits, '-', '_' and '.' with at most 253 characters", field.key, shorten(field.value, 80))
		}
	}
	return nil
}

var (
	podNamePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,252}$`)
	sizePattern    = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,12})?$`)
)

// parseSize reads a count that a shim may have formatted as a float, rounded
// up. Empty is 0, the provider's default.
func parseSize(text string) (int64, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return 0, nil
	}
	if !sizePattern.MatchString(text) {
		return 0, fmt.Errorf("%q is not a number such as 3 or 0.5", shorten(text, 80))
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || n > math.MaxInt32 {
		return 0, fmt.Errorf("%s is too large", text)
	}
	return int64(math.Ceil(n)), nil
}

func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return s[:most] + "..."
}

// checkPatterns wants each pattern of -pod-images to be a name, NAME* or *.
func checkPatterns(patterns []string) error {
	for _, p := range patterns {
		if strings.Contains(strings.TrimSuffix(p, "*"), "*") {
			return fmt.Errorf("-pod-images (POD_IMAGES): %q has a * that is not at its end: want a name, NAME* or *", shorten(p, 80))
		}
	}
	return nil
}

// allowImage checks the VM image that a pod names against the operator's list.
// Whoever chooses the image is root in a VM on the nodes' network without
// having to escape from a container, so by default no image may be named.
func (o *Options) allowImage(image string) error {
	if image == "" || slices.ContainsFunc(o.PodImages, func(p string) bool { return imageMatches(p, image) }) {
		return nil
	}
	allowed := "no pod may name one"
	if len(o.PodImages) > 0 {
		allowed = "allowed are " + shorten(strings.Join(o.PodImages, ", "), 200)
	}
	return invalid("annotation %s: VM image %q is not allowed, %s; leave the annotation out, or have the operator add the image to the adaptor's -pod-images (POD_IMAGES)",
		annotationImage, shorten(image, 80), allowed)
}

// imageMatches keeps a name with ".." from leaving the folder that NAME* is for.
func imageMatches(pattern, image string) bool {
	prefix, open := strings.CutSuffix(pattern, "*")
	switch {
	case !open:
		return image == pattern
	case prefix == "":
		return true
	}
	return strings.HasPrefix(image, prefix) && !slices.Contains(strings.Split(image, "/"), "..")
}
