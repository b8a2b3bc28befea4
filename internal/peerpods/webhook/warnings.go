// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// maxWarnings bounds what is said of one pod. API servers pass on 4,096 bytes of warnings, and of each at
// least 256 (Kubernetes' documentation of admission webhooks).
const maxWarnings = 8

// sentVolume is a volume: its name, and a field of the name of its kind.
type sentVolume map[string]json.RawMessage

type sentMount struct {
	Name        string `json:"name"`
	ReadOnly    bool   `json:"readOnly"`
	Propagation string `json:"mountPropagation"`
}

// inVM are the kinds of volumes that a pod in a VM can have. Claims are among them: which driver one is of, the pod
// does not say, and it can be that of disks of VMs.
var inVM = []string{"configMap", "downwardAPI", "emptyDir", "ephemeral", "hostPath", "image", "nfs", "persistentVolumeClaim", "projected", "secret"}

// warnings says what has no effect in a VM, and what will keep a container from starting, to whoever creates the pod.
func (s *sentPod) warnings() []string {
	var all []string
	for _, host := range []struct {
		field string
		asked bool
	}{{"hostNetwork", s.Spec.HostNetwork}, {"hostPID", s.Spec.HostPID}, {"hostIPC", s.Spec.HostIPC}} {
		if host.asked {
			all = append(all, "spec."+host.field+": a pod in a VM has a kernel of its own, and will not start")
		}
	}
	for _, v := range s.Spec.Volumes {
		var name string
		_ = json.Unmarshal(v["name"], &name) // the API server refuses what is not a string
		for _, kind := range slices.Sorted(maps.Keys(v)) {
			if text := s.warning(name, kind, v[kind]); text != "" {
				all = append(all, fmt.Sprintf("volume %.63q: %s", name, text))
			}
		}
	}
	for _, c := range slices.Concat(s.Spec.InitContainers, s.Spec.Containers) {
		var limits map[string]json.RawMessage
		_ = json.Unmarshal(c.Resources["limits"], &limits) // was read before
		if limits["ephemeral-storage"] != nil {
			all = append(all, fmt.Sprintf("container %.63q: nothing enforces its limit of ephemeral-storage in the VM, whose disk is the limit of all", c.Name))
		}
		for _, m := range c.VolumeMounts {
			if m.Propagation != "" && m.Propagation != "None" {
				all = append(all, fmt.Sprintf("container %.63q: mountPropagation %.20q of volume %.63q: a pod in a VM shares no mounts with its node, and will not start", c.Name, m.Propagation, m.Name))
			}
		}
	}
	return all[:min(len(all), maxWarnings)]
}

func (s *sentPod) warning(volume, kind string, value json.RawMessage) string {
	switch {
	case kind == "name":
	case !slices.Contains(inVM, kind):
		return fmt.Sprintf("a pod in a VM cannot use %.40s", kind)
	case kind == "hostPath" && s.writes(volume):
		return "a container may write the hostPath, of which a VM has a copy: mount it with readOnly: true"
	case kind == "emptyDir":
		var dir struct {
			Medium    string          `json:"medium"`
			SizeLimit json.RawMessage `json:"sizeLimit"`
		}
		if json.Unmarshal(value, &dir) == nil && dir.Medium == "" && dir.SizeLimit != nil {
			return "nothing enforces sizeLimit in the VM, whose disk is the limit"
		}
	}
	return ""
}

// writes reports whether a container may write a volume.
func (s *sentPod) writes(volume string) bool {
	return slices.ContainsFunc(slices.Concat(s.Spec.InitContainers, s.Spec.Containers), func(c sentContainer) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(m sentMount) bool { return m.Name == volume && !m.ReadOnly })
	})
}
