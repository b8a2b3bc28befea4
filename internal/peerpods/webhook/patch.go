// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/outrigger/outrigger/internal/peerpods/webhook/podsize"
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

// sentPod is the part of a pod that sizing and warnings read. The rest, which is most of a
// pod, is neither decoded nor touched, so fields of newer API servers survive.
type sentPod struct {
	Metadata *struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Annotations  map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		RuntimeClassName *string           `json:"runtimeClassName"`
		InitContainers   []sentContainer   `json:"initContainers"`
		Containers       []sentContainer   `json:"containers"`
		Resources        sentResources     `json:"resources"`
		Overhead         json.RawMessage   `json:"overhead"`
		NodeSelector     map[string]string `json:"nodeSelector"`
		Affinity         *corev1.Affinity  `json:"affinity"`
		HostNetwork      bool              `json:"hostNetwork"`
		HostPID          bool              `json:"hostPID"`
		HostIPC          bool              `json:"hostIPC"`
		Volumes          []sentVolume      `json:"volumes"`
	} `json:"spec"`
}

type sentContainer struct {
	Name          string                         `json:"name"`
	RestartPolicy *corev1.ContainerRestartPolicy `json:"restartPolicy"`
	Resources     sentResources                  `json:"resources"`
	VolumeMounts  []sentMount                    `json:"volumeMounts"`
}

// sentResources is a ResourceRequirements with all it may hold.
type sentResources map[string]json.RawMessage

func readPod(raw []byte) (*sentPod, error) {
	sent := &sentPod{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, sent); err != nil {
		return nil, err
	}
	if sent.Metadata == nil {
		return nil, errors.New("it has no metadata")
	}
	return sent, nil
}

// pod returns the pod with the fields that were read.
func (s *sentPod) pod() (*corev1.Pod, error) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: s.Metadata.Name, GenerateName: s.Metadata.GenerateName, Annotations: s.Metadata.Annotations},
		Spec: corev1.PodSpec{
			RuntimeClassName: s.Spec.RuntimeClassName, NodeSelector: s.Spec.NodeSelector, Affinity: s.Spec.Affinity,
		},
	}
	var err, initErr error
	if p.Spec.Overhead, err = podsize.ReadList(s.Spec.Overhead); err != nil {
		return p, fmt.Errorf("overhead: %w", err)
	}
	p.Spec.Containers, err = containers(s.Spec.Containers)
	p.Spec.InitContainers, initErr = containers(s.Spec.InitContainers)
	if s.Spec.Resources == nil || err != nil || initErr != nil {
		return p, errors.Join(err, initErr)
	}
	own, err := s.Spec.Resources.typed()
	p.Spec.Resources = &own
	return p, err
}

func containers(sent []sentContainer) ([]corev1.Container, error) {
	out := make([]corev1.Container, len(sent))
	for i, c := range sent {
		r, err := c.Resources.typed()
		if err != nil {
			return nil, fmt.Errorf("container %q: %w", c.Name, err)
		}
		out[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: r}
	}
	return out, nil
}

func (r sentResources) typed() (corev1.ResourceRequirements, error) {
	var out corev1.ResourceRequirements
	for key, to := range map[string]*corev1.ResourceList{"requests": &out.Requests, "limits": &out.Limits} {
		list, err := podsize.ReadList(r[key])
		if err != nil {
			return out, fmt.Errorf("resources.%s: %w", key, err)
		}
		*to = list
	}
	if len(r["claims"]) == 0 {
		return out, nil
	}
	if err := json.Unmarshal(r["claims"], &out.Claims); err != nil {
		return out, fmt.Errorf("resources.claims: %w", err)
	}
	return out, nil
}

// with returns the resources as sent except for requests and limits.
func (r sentResources) with(now corev1.ResourceRequirements) map[string]any {
	out := map[string]any{}
	for key, value := range r {
		if key != "requests" && key != "limits" {
			out[key] = value
		}
	}
	if len(now.Requests) > 0 {
		out["requests"] = now.Requests
	}
	if len(now.Limits) > 0 {
		out["limits"] = now.Limits
	}
	return out
}
