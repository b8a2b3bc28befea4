// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

const (
	hypervisorPrefix = "io.katacontainers.config.hypervisor."
	keyPolicy        = "io.katacontainers.config.agent.policy"

	// What containerd says of the limits of all containers of a pod together.
	keyCPUQuota  = "io.kubernetes.cri.sandbox-cpu-quota"
	keyCPUPeriod = "io.kubernetes.cri.sandbox-cpu-period"
	keyMemory    = "io.kubernetes.cri.sandbox-memory"
)

// podSpec returns what VM the sandbox container asks for.
func (c *Config) podSpec(b *bundle) (podclient.PodSpec, error) {
	spec := podclient.PodSpec{
		ID: b.id, Name: cmp.Or(b.annotation(keysName), b.id), Namespace: b.annotation(keysNamespace), UID: b.spec.Annotations["io.kubernetes.cri.sandbox-uid"],
		Netns: b.netns(), Hostname: b.spec.Hostname, StartTimeout: seconds(c.Hypervisor.Remote.Timeout),
	}
	for _, fill := range []func(*bundle, *podclient.PodSpec) error{refuseHostNamespaces, c.fillAnnotations, c.fillSize, fillPolicy, fillMounts} {
		if err := fill(b, &spec); err != nil {
			return spec, err
		}
	}
	return spec, nil
}

// refuseHostNamespaces: a pod that is to use namespaces of the node has none of its own of that
// kind, and one in a VM cannot.
func refuseHostNamespaces(b *bundle, _ *podclient.PodSpec) error {
	for kind, field := range map[oci.LinuxNamespaceType]string{oci.NetworkNamespace: "hostNetwork", oci.PIDNamespace: "hostPID", oci.IPCNamespace: "hostIPC"} {
		if b.namespace(kind) == nil {
			return fmt.Errorf("a pod with %s cannot run in a VM, which has a kernel of its own: remove %[1]s, or the pod's runtimeClassName", field)
		}
	}
	return nil
}

// fillAnnotations passes on the hypervisor annotations that are allowed.
func (c *Config) fillAnnotations(b *bundle, spec *podclient.PodSpec) error {
	spec.Annotations = map[string]string{}
	for key, value := range b.spec.Annotations {
		name, ours := strings.CutPrefix(key, hypervisorPrefix)
		if !ours {
			continue
		}
		if !slices.Contains(c.Hypervisor.Remote.EnableAnnotations, name) {
			return fmt.Errorf("annotation %s is not allowed: enable_annotations of the shim's configuration does not name %s", key, name)
		}
		spec.Annotations[key] = value
	}
	return nil
}

// fillSize adds the pod's limits to what its annotations ask for.
func (c *Config) fillSize(b *bundle, spec *podclient.PodSpec) error {
	var wrong error
	read := func(ann map[string]string, key string, otherwise float64) float64 {
		n, err := number(ann, key, otherwise)
		wrong = errors.Join(wrong, err)
		return n
	}
	vcpus := read(spec.Annotations, hypervisorPrefix+"default_vcpus", c.Hypervisor.Remote.VCPUs)
	memory := read(spec.Annotations, hypervisorPrefix+"default_memory", float64(c.Hypervisor.Remote.MemoryMiB))
	if c.Runtime.StaticSizing {
		if quota, period := read(b.spec.Annotations, keyCPUQuota, 0), read(b.spec.Annotations, keyCPUPeriod, 0); quota > 0 && period > 0 {
			vcpus += quota / period
		}
		memory += max(read(b.spec.Annotations, keyMemory, 0), 0) / (1 << 20)
	}
	spec.Annotations[hypervisorPrefix+"default_vcpus"] = strconv.Itoa(int(math.Ceil(vcpus)))
	spec.Annotations[hypervisorPrefix+"default_memory"] = strconv.Itoa(int(math.Ceil(memory)))
	return wrong
}

func number(ann map[string]string, key string, otherwise float64) (float64, error) {
	text := ann[key]
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(n) || math.Abs(n) > 1<<53 {
		return 0, fmt.Errorf("annotation %s: %q is not a number", key, text)
	}
	return n, nil
}

func fillPolicy(b *bundle, spec *podclient.PodSpec) error {
	policy, err := base64.StdEncoding.DecodeString(b.spec.Annotations[keyPolicy])
	if err != nil {
		return fmt.Errorf("annotation %s: %w", keyPolicy, err)
	}
	spec.Policy = string(policy)
	return nil
}

// fillMounts takes name servers and the size of /dev/shm from the mounts that
// containerd made for the pause container.
func fillMounts(b *bundle, spec *podclient.PodSpec) error {
	for _, m := range b.spec.Mounts {
		switch m.Destination {
		case "/etc/resolv.conf":
			text, err := os.ReadFile(m.Source)
			if err != nil {
				return fmt.Errorf("the pod's resolv.conf: %w", err)
			}
			spec.DNS = strings.Split(string(text), "\n")
		case "/dev/shm":
			spec.ShmBytes = tmpfsSize(m.Source)
		}
	}
	return nil
}
