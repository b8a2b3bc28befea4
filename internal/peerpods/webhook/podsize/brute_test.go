// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestSizeIsTheMostThatEverRuns lives through random pods moment by moment:
// at each, a set of containers runs. What the pod needs is the most that such a
// set asks for. Numbers are plain milli-CPUs; the code under test is not used.
func TestSizeIsTheMostThatEverRuns(t *testing.T) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		p := randomPod(r)
		request, limit := mostAtOnce(p, requestOf), mostAtOnce(p, limitOf)
		if own := p.Spec.Resources; own != nil {
			request, limit = override(request, own.Requests), override(limit, own.Limits)
		}
		want := int64(0)
		if request > 0 {
			milli := max(request, limit) + milliOf(p.Spec.Overhead)
			want = int64(math.Ceil(float64(milli) / 1000))
		}
		got, err := Of(p)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if got.VCPUs != want {
			t.Fatalf("seed %d: %d vCPUs, want %d for %s", seed, got.VCPUs, want, show(p))
		}
	}
}

func milliOf(l corev1.ResourceList) int64 { return l.Cpu().MilliValue() }

func requestOf(c corev1.Container) int64 { return milliOf(c.Resources.Requests) }
func limitOf(c corev1.Container) int64   { return milliOf(c.Resources.Limits) }

func override(n int64, own corev1.ResourceList) int64 {
	if q, set := own[corev1.ResourceCPU]; set {
		return q.MilliValue()
	}
	return n
}

// mostAtOnce starts init containers one after the other. A sidecar runs from
// its turn to the end; any other ends before the next starts.
func mostAtOnce(p *corev1.Pod, of func(corev1.Container) int64) int64 {
	most, sidecars := int64(0), int64(0)
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy != nil {
			sidecars += of(c)
			most = max(most, sidecars)
			continue
		}
		most = max(most, sidecars+of(c))
	}
	for _, c := range p.Spec.Containers {
		sidecars += of(c)
	}
	return max(most, sidecars)
}

func randomPod(r *rand.Rand) *corev1.Pod {
	p := &corev1.Pod{}
	for i := range 1 + r.IntN(3) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: randomResources(r)})
	}
	always := corev1.ContainerRestartPolicyAlways
	for i := range r.IntN(5) {
		c := corev1.Container{Name: fmt.Sprint("i", i), Resources: randomResources(r)}
		if r.IntN(2) == 0 {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	if r.IntN(3) == 0 {
		p.Spec.Overhead = randomList(r)
	}
	if r.IntN(4) == 0 {
		own := randomResources(r)
		p.Spec.Resources = &own
	}
	return p
}

func randomResources(r *rand.Rand) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: randomList(r), Limits: randomList(r)}
}

func randomList(r *rand.Rand) corev1.ResourceList {
	if r.IntN(3) == 0 {
		return nil
	}
	return corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(r.Int64N(20)*125, resource.DecimalSI)}
}

func show(p *corev1.Pod) string {
	text := ""
	for _, c := range p.Spec.InitContainers {
		text += fmt.Sprintf(" init(sidecar=%v %d/%d)", c.RestartPolicy != nil, requestOf(c), limitOf(c))
	}
	for _, c := range p.Spec.Containers {
		text += fmt.Sprintf(" main(%d/%d)", requestOf(c), limitOf(c))
	}
	return fmt.Sprintf("%s overhead %d pod %v", text, milliOf(p.Spec.Overhead), p.Spec.Resources)
}

// TestSecondCallNeverChanges holds for any valid pod.
func TestSecondCallNeverChanges(t *testing.T) {
	sized := 0
	for seed := range uint64(2000) {
		p := randomPod(rand.New(rand.NewPCG(seed, 2)))
		if _, err := Mutate(p, slot); err != nil {
			continue // not a valid pod
		}
		sized++
		again := p.DeepCopy()
		mustMutate(t, again)
		if fmt.Sprint(sizes(p)) != fmt.Sprint(sizes(again)) || p.Annotations[AnnotationRecord] != again.Annotations[AnnotationRecord] {
			t.Fatalf("seed %d: %v became %v", seed, p.Annotations, again.Annotations)
		}
	}
	if sized < 100 {
		t.Fatalf("only %d valid pods: this test proves nothing", sized)
	}
}
