// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

var pools = []scenario{{name: "PodVMPool", play: podVMPool}}

// podVMPool starts the pods of a Deployment cold, and then the same ones in VMs that wait. Half of the VMs that may run are theirs:
// the pool is filled again meanwhile.
// When the pool goes, so do the VMs that still wait, and no pod.
func podVMPool(t *testing.T, s *suite) {
	replicas := *maxVMs / 2
	name := fmt.Sprintf("e2e-%s", s.namespace[len(s.namespace)-4:])
	p := s.pod("pooled", serve).container(served).with("restartPolicy: Always").annotate(annotationCPUs, "1").annotate(annotationMemory, "512")
	deployment := object{
		"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "pooled"},
		"spec": object{"replicas": 0, "selector": object{"matchLabels": p.meta["labels"]}, "template": p.template()},
	}
	pool := object{
		"apiVersion": "confidentialcontainers.org/v1alpha1", "kind": "PodVMPool", "metadata": object{"name": name},
		"spec": object{"minReady": replicas, "vcpus": 1, "memoryMiB": 512, "podSelector": object{"app": "pooled"}},
	}
	s.create(t, deployment)
	cold := s.scaled(t, replicas)
	s.scaled(t, 0)

	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.TryKubectl("get", "podvmpools", "-o", "yaml"))
			t.Log(s.TryKubectl("get", "peerpods", "-A", "-o", "yaml"))
		}
	})
	s.create(t, pool)
	s.kubectl(t, "wait", "--for=condition=Ready", "podvmpool/"+name, s.timeout())
	warm := s.scaled(t, replicas)
	t.Logf("%d pods ready after %s cold, %s from the pool: %.1f times as fast", replicas, cold.Round(100*time.Millisecond), warm.Round(100*time.Millisecond), cold.Seconds()/warm.Seconds())
	kernels := map[string]bool{}
	for _, pod := range s.podsOf(t, "pooled") {
		kernels[s.bootID(t, pod)] = true
		want(t, "host name", s.exec(t, pod, "hostname"), pod+"\n")
	}
	taken := strings.Fields(s.jsonpath(t, "peerpods", "{.items[*].spec.poolVM}"))
	if len(taken) != replicas || len(kernels) != replicas {
		t.Errorf("%d pods run in VMs %v of the pool, with %d kernels", replicas, taken, len(kernels))
	}
	if hits := s.jsonpath(t, "podvmpool/"+name, "{.status.hits}"); hits != strconv.Itoa(replicas) {
		t.Errorf("%s hits", hits)
	}
	s.kubectl(t, "delete", "podvmpool", name, s.timeout())
	for _, pod := range s.podsOf(t, "pooled") {
		want(t, "a pod that outlives its pool", s.exec(t, pod, "echo", "here"), "here\n")
	}
}

// scaled scales the Deployment and returns how long it took until all its pods were ready.
func (s *suite) scaled(t *testing.T, replicas int) time.Duration {
	t.Helper()
	began := time.Now()
	s.kubectl(t, "scale", "deployment/pooled", fmt.Sprintf("--replicas=%d", replicas))
	s.kubectl(t, "rollout", "status", "deployment/pooled", s.timeout())
	took := time.Since(began)
	if replicas == 0 {
		s.kubectl(t, "wait", "--for=delete", "pods", "-l", "app=pooled", s.timeout())
	}
	return took
}
