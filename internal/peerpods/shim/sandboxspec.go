// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/base64"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

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
		ID: b.id, Name: b.annotation(keysName), Namespace: b.annotation(keysNamespace), UID: b.annotation([]string{"io.kubernetes.cri.sandbox-uid"}),
		Netns: b.netns(), Hostname: b.spec.Hostname, StartTimeout: seconds(c.Hypervisor.Remote.Timeout),
	}
	if spec.Name == "" {
		spec.Name = b.id
	}
	for _, fill := range []func(*bundle, *podclient.PodSpec) error{c.fillAnnotations, c.fillSize, fillPolicy, fillMounts} {
		if err := fill(b, &spec); err != nil {
			return spec, err
		}
	}
	return spec, nil
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
	vcpus, err := number(spec.Annotations, hypervisorPrefix+"default_vcpus", c.Hypervisor.Remote.VCPUs)
	if err != nil {
		return err
	}
	memory, err := number(spec.Annotations, hypervisorPrefix+"default_memory", float64(c.Hypervisor.Remote.MemoryMiB))
	if err != nil {
		return err
	}
	if c.Runtime.StaticSizing {
		cpu, mib, err := podLimits(b.spec.Annotations)
		if err != nil {
			return err
		}
		vcpus, memory = vcpus+cpu, memory+mib
	}
	spec.Annotations[hypervisorPrefix+"default_vcpus"] = strconv.Itoa(int(math.Ceil(vcpus)))
	spec.Annotations[hypervisorPrefix+"default_memory"] = strconv.Itoa(int(math.Ceil(memory)))
	return nil
}

// podLimits returns the limits in CPUs and MiB; 0 means no limit.
func podLimits(ann map[string]string) (cpus, mib float64, err error) {
	quota, err := number(ann, keyCPUQuota, 0)
	if err != nil {
		return 0, 0, err
	}
	period, err := number(ann, keyCPUPeriod, 0)
	if err != nil {
		return 0, 0, err
	}
	if quota > 0 && period > 0 {
		cpus = quota / period
	}
	memory, err := number(ann, keyMemory, 0)
	return cpus, max(memory, 0) / (1 << 20), err
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
