// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var sizing = []scenario{
	{name: "PodVMwithNoAnnotations", vms: 1, variant: true, play: unsized},
	{name: "PodVMwithAnnotationsInstanceType", vms: 1, variant: true, play: instanceType},
	{name: "PodVMwithAnnotationsInvalidInstanceType", vms: 1, play: invalidInstanceType},
	{name: "PodVMwithAnnotationsLargerMemory", vms: 1, play: tooMuchMemory},
	{name: "PodVMwithAnnotationsLargerCPU", vms: 1, play: tooManyCPUs},
	{name: "PodVMWithAnnotationsCPUMemory", vms: 1, variant: true, play: cpusAndMemory},
	{name: "PodVMWithAnnotationCPU", vms: 1, variant: true, play: onlyCPUs},
	{name: "PodVMWithAnnotationMemory", vms: 1, variant: true, play: onlyMemory},
	{name: "CreatePeerPodContainerWithValidAlternateImage", vms: 1, variant: true, play: otherImage},
	{name: "CreatePeerPodContainerWithInvalidAlternateImage", vms: 1, play: noSuchImage},
}

// Annotations that size a VM.
const (
	annotationType   = "io.katacontainers.config.hypervisor.machine_type"
	annotationCPUs   = "io.katacontainers.config.hypervisor.default_vcpus"
	annotationMemory = "io.katacontainers.config.hypervisor.default_memory"
	annotationImage  = "io.katacontainers.config.hypervisor.image"
)

// missingImage is one that no cloud has.
const missingImage = "no-such-image"

var (
	processors = regexp.MustCompile(`(?m)^\d+$`)
	memTotal   = regexp.MustCompile(`MemTotal: +(\d+) kB`)
)

// sizeIn reads what nproc and /proc/meminfo have printed.
func sizeIn(t *testing.T, log string) (cpus, mib int) {
	t.Helper()
	memory := memTotal.FindStringSubmatch(log)
	if memory == nil {
		t.Fatalf("no size in %q", clip(log))
	}
	cpus, _ = strconv.Atoi(processors.FindString(log))
	kib, _ := strconv.Atoi(memory[1])
	return cpus, kib >> 10
}

// sized plays a pod with annotations, key and value in turn, and returns the
// size of its VM.
func (s *suite) sized(t *testing.T, name string, annotations ...string) (cpus, mib int) {
	t.Helper()
	p := s.pod(name, "nproc; grep MemTotal /proc/meminfo")
	for i := 0; i < len(annotations); i += 2 {
		p.annotate(annotations[i], annotations[i+1])
	}
	return sizeIn(t, s.play(t, p))
}

// wantSize allows for what a guest's kernel takes for itself, and for instance
// types that are larger.
func wantSize(t *testing.T, cpus, mib, wantCPUs, wantMiB int) {
	t.Helper()
	if cpus < wantCPUs || mib < wantMiB*3/4 {
		t.Errorf("the VM has %d CPUs and %d MiB, not %d and %d", cpus, mib, wantCPUs, wantMiB)
	}
}

func unsized(t *testing.T, s *suite) {
	cpus, mib := s.sized(t, "unsized")
	wantSize(t, cpus, mib, 1, 96)
}

func instanceType(t *testing.T, s *suite) {
	m := s.cloud.machineType
	if m.name == "" {
		t.Skipf("the suite knows no instance type of provider %s: set machineType in the provider's file", *providerName)
	}
	cpus, mib := s.sized(t, "type", annotationType, m.name)
	wantSize(t, cpus, mib, m.cpus, m.mib)
	if cpus != m.cpus {
		t.Errorf("the VM has %d CPUs, its type %d", cpus, m.cpus)
	}
}

func cpusAndMemory(t *testing.T, s *suite) {
	cpus, mib := s.sized(t, "both", annotationCPUs, "2", annotationMemory, "700")
	wantSize(t, cpus, mib, 2, 700)
}

func onlyCPUs(t *testing.T, s *suite) {
	cpus, mib := s.sized(t, "cpus", annotationCPUs, "2")
	wantSize(t, cpus, mib, 2, 96)
}

func onlyMemory(t *testing.T, s *suite) {
	cpus, mib := s.sized(t, "memory", annotationMemory, "800")
	wantSize(t, cpus, mib, 1, 800)
}

// refused wants a Warning on the pod with one of the reasons, and no instance.
func (s *suite) refused(t *testing.T, name, key, value string, reasons ...string) {
	t.Helper()
	s.create(t, s.pod(name, "sleep infinity").annotate(key, value))
	s.warned(t, name, reasons...)
	claims := s.kubectl(t, "get", "peerpods", "-o", `jsonpath={range .items[*]}{.spec.podName} {.spec.instanceID}{"\n"}{end}`)
	for line := range strings.Lines(claims) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			t.Errorf("the pod has instance %s", f[1])
		}
	}
}

// warned waits for an Event about a pod, and returns its message.
func (s *suite) warned(t *testing.T, pod string, reasons ...string) string {
	t.Helper()
	return s.until(t, "events --field-selector=type=Warning,involvedObject.name="+pod, "{.reason}: {.message}", func(v string) bool {
		for _, r := range reasons {
			if strings.HasPrefix(v, r+": ") {
				return true
			}
		}
		return false
	})
}

func invalidInstanceType(t *testing.T, s *suite) {
	s.refused(t, "wrong-type", annotationType, "no-such-type", "InvalidArgument", "NotFound")
}

func tooMuchMemory(t *testing.T, s *suite) {
	s.refused(t, "much-memory", annotationMemory, "15000000", "NoCapacity", "InvalidArgument", "QuotaExceeded")
}

func tooManyCPUs(t *testing.T, s *suite) {
	s.refused(t, "many-cpus", annotationCPUs, "5000", "NoCapacity", "InvalidArgument", "QuotaExceeded")
}

func otherImage(t *testing.T, s *suite) {
	if s.cloud.image == "" {
		t.Skipf("the suite knows no second image of provider %s: set image in the provider's file", *providerName)
	}
	want(t, "log", s.play(t, s.pod("image", "echo booted").annotate(annotationImage, s.cloud.image)), "booted\n")
}

func noSuchImage(t *testing.T, s *suite) {
	s.refused(t, "wrong-image", annotationImage, missingImage, "InvalidArgument", "NotFound")
}
