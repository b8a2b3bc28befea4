// SPDX-License-Identifier: Apache-2.0

package podsize

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

const slot corev1.ResourceName = "kata.peerpods.io/vm"

// list reads "cpu=1 memory=2Gi".
func list(text string) corev1.ResourceList {
	var l corev1.ResourceList
	for _, one := range strings.Fields(text) {
		name, quantity, _ := strings.Cut(one, "=")
		if l == nil {
			l = corev1.ResourceList{}
		}
		l[corev1.ResourceName(name)] = resource.MustParse(quantity)
	}
	return l
}

func resources(requests, limits string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}
}

func container(name, requests, limits string) corev1.Container {
	return corev1.Container{Name: name, Resources: resources(requests, limits)}
}

func sidecar(name, requests, limits string) corev1.Container {
	c := container(name, requests, limits)
	always := corev1.ContainerRestartPolicyAlways
	c.RestartPolicy = &always
	return c
}

func pod(containers ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}}
}

func with(p *corev1.Pod, changes ...func(*corev1.Pod)) *corev1.Pod {
	for _, change := range changes {
		change(p)
	}
	return p
}

func inits(cs ...corev1.Container) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.InitContainers = cs }
}

func overhead(text string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Overhead = list(text) }
}

func podLevel(requests, limits string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		r := resources(requests, limits)
		p.Spec.Resources = &r
	}
}

func annotated(pairs ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		if p.Annotations == nil {
			p.Annotations = map[string]string{}
		}
		for i := 0; i < len(pairs); i += 2 {
			p.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

func selector(model string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{LabelGPUProduct: model, "zone": "a"} }
}

func terms(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms},
		}}
	}
}

func term(key string, values ...string) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values},
	}}
}

// sizes are the annotations with their common beginning left out.
func sizes(p *corev1.Pod) map[string]string {
	out := map[string]string{}
	for key, value := range p.Annotations {
		if short, found := strings.CutPrefix(key, "io.katacontainers.config.hypervisor.default_"); found {
			out[short] = value
		}
	}
	return out
}

type want = map[string]string

func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want want
	}{
		"nothing asked":                   {pod(container("a", "", "")), want{}},
		"overhead alone is not a size":    {with(pod(container("a", "", "")), overhead("cpu=250m memory=128Mi")), want{}},
		"request":                         {pod(container("a", "cpu=2 memory=4Gi", "")), want{"vcpus": "2", "memory": "4096"}},
		"limit above request":             {pod(container("a", "cpu=1 memory=1Gi", "cpu=4 memory=2Gi")), want{"vcpus": "4", "memory": "2048"}},
		"limit alone is the request":      {pod(container("a", "", "cpu=3 memory=1Gi")), want{"vcpus": "3", "memory": "1024"}},
		"request of zero is none":         {pod(container("a", "cpu=0", "cpu=4")), want{}},
		"one limited, other asks more":    {pod(container("a", "cpu=1", "cpu=2"), container("b", "cpu=4", "")), want{"vcpus": "5"}},
		"limits of some exceed requests":  {pod(container("a", "cpu=1", "cpu=8"), container("b", "cpu=4", "")), want{"vcpus": "8"}},
		"only cpu":                        {pod(container("a", "cpu=2", "")), want{"vcpus": "2"}},
		"only memory":                     {pod(container("a", "memory=1Gi", "")), want{"memory": "1024"}},
		"rounded up after the sum":        {pod(container("a", "cpu=300m", ""), container("b", "cpu=300m", "")), want{"vcpus": "1"}},
		"a little more is one more":       {pod(container("a", "cpu=1001m memory=1048577", "")), want{"vcpus": "2", "memory": "2"}},
		"millis of bytes":                 {pod(container("a", "memory=100m", "")), want{"memory": "1"}},
		"decimal memory":                  {pod(container("a", "memory=1G", "")), want{"memory": "954"}},
		"containers add up":               {pod(container("a", "cpu=1", ""), container("b", "cpu=2", "")), want{"vcpus": "3"}},
		"init below main":                 {with(pod(container("a", "cpu=2", "")), inits(container("i", "cpu=1", ""))), want{"vcpus": "2"}},
		"init above main":                 {with(pod(container("a", "cpu=2", "")), inits(container("i", "cpu=5", ""))), want{"vcpus": "5"}},
		"inits do not add up":             {with(pod(container("a", "cpu=1", "")), inits(container("i", "cpu=2", ""), container("j", "cpu=2", ""))), want{"vcpus": "2"}},
		"each resource by itself":         {with(pod(container("a", "cpu=4 memory=1Gi", "")), inits(container("i", "cpu=1 memory=8Gi", ""))), want{"vcpus": "4", "memory": "8192"}},
		"sidecar adds to main":            {with(pod(container("a", "cpu=2", "")), inits(sidecar("s", "cpu=1", ""))), want{"vcpus": "3"}},
		"sidecar before init adds to it":  {with(pod(container("a", "cpu=1", "")), inits(sidecar("s", "cpu=1", ""), container("i", "cpu=4", ""))), want{"vcpus": "5"}},
		"sidecar after init does not":     {with(pod(container("a", "cpu=1", "")), inits(container("i", "cpu=4", ""), sidecar("s", "cpu=1", ""))), want{"vcpus": "4"}},
		"two sidecars around an init":     {with(pod(container("a", "cpu=1", "")), inits(sidecar("s", "cpu=1", ""), container("i", "cpu=2", ""), sidecar("t", "cpu=2", ""))), want{"vcpus": "4"}},
		"overhead adds":                   {with(pod(container("a", "cpu=2 memory=1Gi", "")), overhead("cpu=250m memory=128Mi")), want{"vcpus": "3", "memory": "1152"}},
		"overhead adds to limits":         {with(pod(container("a", "cpu=1", "cpu=2")), overhead("cpu=1")), want{"vcpus": "3"}},
		"pod-level wins over containers":  {with(pod(container("a", "cpu=1 memory=1Gi", "")), podLevel("cpu=4", "")), want{"vcpus": "4", "memory": "1024"}},
		"pod-level limit":                 {with(pod(container("a", "cpu=1", "")), podLevel("cpu=2", "cpu=6")), want{"vcpus": "6"}},
		"pod-level limit alone":           {with(pod(container("a", "", "")), podLevel("", "cpu=6 memory=1Gi")), want{"vcpus": "6", "memory": "1024"}},
		"GPU":                             {pod(container("a", "", "nvidia.com/gpu=2")), want{"gpus": "2"}},
		"GPUs of inits by max":            {with(pod(container("a", "", "nvidia.com/gpu=1")), inits(container("i", "", "nvidia.com/gpu=2"))), want{"gpus": "2"}},
		"model by selector":               {with(pod(container("a", "", "nvidia.com/gpu=1")), selector("A100")), want{"gpus": "1", "gpu_model": "A100"}},
		"model by affinity":               {with(pod(container("a", "", "nvidia.com/gpu=1")), terms(term("zone", "a"), term(LabelGPUProduct, "H100", "A100"))), want{"gpus": "1", "gpu_model": "H100"}},
		"model without GPU":               {with(pod(container("a", "cpu=1", "")), selector("A100")), want{"vcpus": "1"}},
		"model, GPUs by annotation":       {with(pod(container("a", "", "")), selector("A100"), annotated(AnnotationGPUs, "10")), want{"gpus": "10", "gpu_model": "A100"}},
		"model, no GPUs by annotation":    {with(pod(container("a", "", "nvidia.com/gpu=1")), selector("A100"), annotated(AnnotationGPUs, "0")), want{"gpus": "0"}},
		"user's model stays":              {with(pod(container("a", "", "nvidia.com/gpu=1")), selector("A100"), annotated(AnnotationGPUModel, "T4")), want{"gpus": "1", "gpu_model": "T4"}},
		"user's vcpus stay":               {with(pod(container("a", "cpu=2 memory=1Gi", "")), annotated(AnnotationVCPUs, "7")), want{"vcpus": "7", "memory": "1024"}},
		"user's memory stays":             {with(pod(container("a", "cpu=2 memory=1Gi", "")), annotated(AnnotationMemory, "512")), want{"vcpus": "2", "memory": "512"}},
		"user's empty annotation stays":   {with(pod(container("a", "cpu=2", "")), annotated(AnnotationVCPUs, "")), want{"vcpus": ""}},
		"user's fraction stays":           {with(pod(container("a", "cpu=2", "")), annotated(AnnotationVCPUs, "1.5")), want{"vcpus": "1.5"}},
		"user's size where nothing asked": {with(pod(container("a", "", "")), annotated(AnnotationVCPUs, "2")), want{"vcpus": "2"}},
		"other devices do not size":       {pod(container("a", "", "amd.com/gpu=1 ephemeral-storage=1Gi")), want{}},
	} {
		t.Run(name, func(t *testing.T) {
			mustMutate(t, c.pod)
			if diff := cmp.Diff(c.want, sizes(c.pod)); diff != "" {
				t.Errorf("annotations (-want +got):\n%s", diff)
			}
			again := c.pod.DeepCopy()
			mustMutate(t, again)
			if diff := cmp.Diff(c.pod, again); diff != "" {
				t.Errorf("a second call changes (-first +second):\n%s", diff)
			}
		})
	}
}

func mustMutate(t *testing.T, p *corev1.Pod) Size {
	t.Helper()
	size, err := Mutate(p, slot)
	if err != nil {
		t.Fatal(err)
	}
	return size
}

func TestResourcesLeft(t *testing.T) {
	const one = " kata.peerpods.io/vm=1"
	for name, c := range map[string]struct{ pod, want *corev1.Pod }{
		"cpu, memory and GPUs go": {
			pod(container("a", "cpu=1 memory=1Gi nvidia.com/gpu=1", "nvidia.com/gpu=1"), container("b", "cpu=1", "cpu=2")),
			pod(container("a", one, one), container("b", "", "")),
		},
		"the rest stays": {
			pod(container("a", "cpu=1 ephemeral-storage=1Gi", "ephemeral-storage=2Gi example.com/nic=1")),
			pod(container("a", "ephemeral-storage=1Gi"+one, "ephemeral-storage=2Gi example.com/nic=1"+one)),
		},
		"huge pages keep a trace of cpu": {
			pod(container("a", "cpu=1 memory=1Gi hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi")),
			pod(container("a", "cpu=1m hugepages-2Mi=4Mi"+one, "hugepages-2Mi=4Mi"+one)),
		},
		"huge pages keep a trace of memory": {
			pod(container("a", "memory=1Gi hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi")),
			pod(container("a", "memory=1 hugepages-2Mi=4Mi"+one, "hugepages-2Mi=4Mi"+one)),
		},
		"huge pages alone are the API server's to refuse": {
			pod(container("a", "hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi")),
			pod(container("a", "hugepages-2Mi=4Mi"+one, "hugepages-2Mi=4Mi"+one)),
		},
		"pod-level resources go": {
			with(pod(container("a", "cpu=1", "")), podLevel("cpu=2", "memory=1Gi")),
			pod(container("a", one, one)),
		},
		"pod-level huge pages stay, with a trace for all containers": {
			with(pod(container("a", "cpu=1", ""), container("b", "", "")), podLevel("cpu=2 hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi")),
			with(pod(container("a", one, one), container("b", "", "")), podLevel("cpu=2m hugepages-2Mi=4Mi", "hugepages-2Mi=4Mi")),
		},
		"one slot, whatever was asked": {
			with(pod(container("a", one, one), container("b", "kata.peerpods.io/vm=3", "kata.peerpods.io/vm=3")), inits(container("i", one, one))),
			with(pod(container("a", one, one), container("b", "", "")), inits(container("i", "", ""))),
		},
		"no containers": {pod(), pod()},
	} {
		t.Run(name, func(t *testing.T) {
			mustMutate(t, c.pod)
			again := c.pod.DeepCopy()
			mustMutate(t, again)
			for _, got := range []*corev1.Pod{c.pod, again} {
				if diff := cmp.Diff(left(c.want), left(got)); diff != "" {
					t.Errorf("resources (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// left is what a pod asks of its node, empty lists left out.
func left(p *corev1.Pod) map[string]Resources {
	out := map[string]Resources{}
	note := func(name string, r corev1.ResourceRequirements) {
		if len(r.Requests)+len(r.Limits) > 0 {
			out[name] = Resources{Requests: r.Requests, Limits: r.Limits}
		}
	}
	for c := range containers(&p.Spec) {
		note(c.Name, c.Resources)
	}
	if p.Spec.Resources != nil {
		note("", *p.Spec.Resources)
	}
	return out
}

func TestNodeSelectionLosesTheModelAlone(t *testing.T) {
	both := term("zone", "a")
	both.MatchExpressions = append(both.MatchExpressions, term(LabelGPUProduct, "A100").MatchExpressions...)
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want *corev1.NodeSelector
	}{
		"a term of its own accepts all": {with(pod(container("a", "", "nvidia.com/gpu=1")), terms(term("zone", "a"), term(LabelGPUProduct, "A100"))), nil},
		"others in the term stay":       {with(pod(container("a", "", "nvidia.com/gpu=1")), terms(both)), &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term("zone", "a")}}},
		"no GPU, no change":             {with(pod(container("a", "", "")), terms(term(LabelGPUProduct, "A100"))), &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term(LabelGPUProduct, "A100")}}},
	} {
		t.Run(name, func(t *testing.T) {
			mustMutate(t, c.pod)
			if diff := cmp.Diff(c.want, requiredNodes(&c.pod.Spec)); diff != "" {
				t.Errorf("required nodes (-want +got):\n%s", diff)
			}
		})
	}
	p := with(pod(container("a", "", "nvidia.com/gpu=1")), selector("A100"))
	mustMutate(t, p)
	if diff := cmp.Diff(map[string]string{"zone": "a"}, p.Spec.NodeSelector); diff != "" {
		t.Errorf("node selector (-want +got):\n%s", diff)
	}
}

func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		pod  *corev1.Pod
		want string
	}{
		"request above limit":    {pod(container("a", "cpu=2", "cpu=1")), `container "a": request of cpu: 2 is more than the limit of 1`},
		"negative request":       {pod(container("a", "memory=-1", "")), `container "a": request of memory: -1 is negative`},
		"negative limit":         {pod(container("a", "cpu=0", "cpu=-1")), `container "a": limit of cpu: -1 is negative`},
		"GPUs unequal":           {pod(container("a", "nvidia.com/gpu=1", "nvidia.com/gpu=2")), `must be equal`},
		"GPUs without a limit":   {pod(container("a", "nvidia.com/gpu=1", "")), `must be equal`},
		"part of a GPU":          {pod(container("a", "", "nvidia.com/gpu=500m")), `not a whole number`},
		"too much cpu":           {pod(container("a", "cpu=1e30", "")), `the pod's cpu`},
		"too much memory":        {pod(container("a", "memory=9Ei", ""), container("b", "memory=9Ei", "")), `more than any VM has`},
		"pod less than its sum":  {with(pod(container("a", "cpu=2", "")), podLevel("cpu=1", "")), `less than what its containers ask for together`},
		"container beyond pod":   {with(pod(container("a", "cpu=1", "cpu=9")), podLevel("cpu=1", "cpu=4")), `more than the limit of the pod, 4`},
		"no name":                {pod(container("", "cpu=1", "")), "has no name"},
		"vcpus not a number":     {with(pod(), annotated(AnnotationVCPUs, "two")), AnnotationVCPUs + `: "two" is not a number of vCPUs such as 2`},
		"memory with a unit":     {with(pod(), annotated(AnnotationMemory, "4Gi")), "without a unit"},
		"negative GPUs":          {with(pod(), annotated(AnnotationGPUs, "-1")), AnnotationGPUs},
		"record is not JSON":     {with(pod(), annotated(AnnotationRecord, "x")), AnnotationRecord},
		"record is not a record": {with(pod(), annotated(AnnotationRecord, `{"containers":{"a":{"requests":{"cpu":"x"}}}}`)), AnnotationRecord},
		"record with a negative": {with(pod(container("a", "", "")), annotated(AnnotationRecord, `{"containers":{"a":{"requests":{"cpu":"-1"}}}}`)), "negative"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Mutate(c.pod, slot); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

func TestSecondCall(t *testing.T) {
	p := with(pod(container("a", "cpu=4", "")), annotated(AnnotationMemory, "512"))
	mustMutate(t, p)

	t.Run("a LimitRange's defaults do not count", func(t *testing.T) {
		p := p.DeepCopy()
		p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("100m")
		mustMutate(t, p)
		if got := sizes(p); got["vcpus"] != "4" {
			t.Errorf("sizes %v, want 4 vcpus", got)
		}
		if _, found := p.Spec.Containers[0].Resources.Requests["cpu"]; found {
			t.Error("cpu is asked of the node")
		}
	})
	t.Run("a container injected since counts", func(t *testing.T) {
		p := p.DeepCopy()
		p.Spec.InitContainers = []corev1.Container{sidecar("proxy", "cpu=2 memory=1Gi", "")}
		mustMutate(t, p)
		if diff := cmp.Diff(want{"vcpus": "6", "memory": "512"}, sizes(p)); diff != "" {
			t.Errorf("sizes (-want +got):\n%s", diff)
		}
	})
	t.Run("an annotation changed since stays", func(t *testing.T) {
		p := p.DeepCopy()
		p.Annotations[AnnotationVCPUs] = "9"
		mustMutate(t, p)
		if got := sizes(p); got["vcpus"] != "9" {
			t.Errorf("sizes %v, want 9 vcpus", got)
		}
	})
}

func TestRecordSaysWhatWasTaken(t *testing.T) {
	p := with(pod(container("a", "cpu=1 ephemeral-storage=1Gi", "cpu=2 memory=1Gi"), container("b", "", "")), podLevel("cpu=3", ""))
	mustMutate(t, p)
	got, err := ReadRecord(p.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	want := Record{
		Pod:        &Resources{Requests: list("cpu=3 memory=1Gi")},
		Containers: map[string]Resources{"a": {Requests: list("cpu=1 memory=1Gi"), Limits: list("cpu=2 memory=1Gi")}},
		Sized:      map[string]string{AnnotationVCPUs: "3", AnnotationMemory: "1024"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}
