// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var pools = []scenario{
	{name: "PodVMPool", play: podVMPool},
	{name: "PodVMPoolStopped", play: stoppedPool},
	{name: "PodVMPoolNewImage", variant: true, play: newPoolImage},
}

// podVMPool starts the pods of a Deployment cold, and then the same ones in VMs that wait. Half of the VMs that may run are theirs:
// the pool is filled again meanwhile.
// When the pool goes, so do the VMs that still wait, and no pod.
func podVMPool(t *testing.T, s *suite) {
	replicas := *maxVMs / 2
	name, deployment, pool := s.pooled(replicas)
	s.create(t, deployment)
	cold := s.scaled(t, replicas)
	s.scaled(t, 0)

	s.fill(t, name, pool)
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

// pooled returns a Deployment without pods, and a pool for them.
func (s *suite) pooled(ready int) (name string, deployment, pool object) {
	name = fmt.Sprintf("e2e-%s", s.namespace[len(s.namespace)-4:])
	p := s.pod("pooled", serve).container(served).with("restartPolicy: Always").annotate(annotationCPUs, "1").annotate(annotationMemory, "512")
	return name, object{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": object{"name": "pooled"},
			"spec": object{"replicas": 0, "selector": object{"matchLabels": p.meta["labels"]}, "template": p.template()},
		}, object{
			"apiVersion": "confidentialcontainers.org/v1alpha1", "kind": "PodVMPool", "metadata": object{"name": name},
			"spec": object{"minReady": ready, "vcpus": 1, "memoryMiB": 512, "podSelector": object{"app": "pooled"}, "images": []any{p.main["image"]}},
		}
}

// fill makes a pool and waits until its VMs do.
func (s *suite) fill(t *testing.T, name string, pool object) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.TryKubectl("get", "podvmpools", "-o", "yaml"))
			t.Log(s.TryKubectl("get", "peerpods", "-A", "-o", "yaml"))
		}
	})
	s.create(t, pool)
	s.kubectl(t, "wait", "--for=condition=Ready", "podvmpool/"+name, s.timeout())
	want(t, "last error, such as of a pull", s.jsonpath(t, "podvmpool/"+name, "{.status.lastError.message}"), "")
}

// stoppedPool starts a pod in a VM that waits stopped.
func stoppedPool(t *testing.T, s *suite) {
	name, deployment, pool := s.pooled(1)
	pool["spec"].(object)["standby"] = "stopped"
	s.create(t, deployment)
	s.fill(t, name, pool)
	s.scaled(t, 1)
	if hits := s.jsonpath(t, "podvmpool/"+name, "{.status.hits}"); hits != "1" {
		t.Errorf("%s hits", hits)
	}
	want(t, "host name", s.exec(t, s.podsOf(t, "pooled")[0], "hostname"), s.podsOf(t, "pooled")[0]+"\n")
	s.kubectl(t, "delete", "podvmpool", name, s.timeout())
}

// newPoolImage gives a pool and its Deployment another image of the pod VM: no pod fails, whether it comes while the pool has no
// VM or later, and all VMs of the old image are gone.
func newPoolImage(t *testing.T, s *suite) {
	if s.cloud.image == "" {
		t.Skipf("provider %s: no image that pods may name is known to the suite", *providerName)
	}
	name, deployment, pool := s.pooled(1)
	s.create(t, deployment)
	s.fill(t, name, pool)
	s.scaled(t, 1)
	old := s.jsonpath(t, "podvmpool/"+name, "{.status.template}")
	s.kubectl(t, "patch", "podvmpool", name, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"image":%q}}`, s.cloud.image))
	s.kubectl(t, "patch", "deployment", "pooled", "-p", fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}`, annotationImage, s.cloud.image))
	s.kubectl(t, "rollout", "status", "deployment/pooled", s.timeout())
	s.until(t, "podvmpool/"+name, `{.status.template} {.status.ready}`, func(v string) bool {
		template, ready, _ := strings.Cut(v, " ")
		return template != "" && template != old && ready == "1"
	})
	s.scaled(t, 2)
	for pp := range strings.FieldsSeq(s.system(t, "get", "peerpods", "-o", fmt.Sprintf(`jsonpath={.items[?(@.spec.pool.template==%q)].metadata.name}`, old))) {
		s.system(t, "wait", "--for=delete", "peerpod/"+pp, s.timeout())
	}
	if failed := s.jsonpath(t, "events", `{range .items[?(@.type=="Warning")]}{.reason}: {.message}{" "}{end}`); strings.Contains(failed, "Failed") {
		t.Errorf("Events: %s", failed)
	}
	// The first pod had a VM of the pool, and the one that came when a VM of the new image waited. The rollout's pod
	// has one if it found one that waited.
	pods := s.podsOf(t, "pooled")
	pooled := 0
	for line := range strings.Lines(s.kubectl(t, "get", "peerpods", "-o", `jsonpath={range .items[*]}{.spec.podName} {.spec.poolVM}{"\n"}{end}`)) {
		if pod, vm, _ := strings.Cut(strings.TrimSpace(line), " "); vm != "" && slices.Contains(pods, pod) {
			pooled++
		}
	}
	if len(pods) != 2 || pooled < 1 {
		t.Errorf("%d of the pods %v have a VM of the pool", pooled, pods)
	}
	s.until(t, "podvmpool/"+name, "{.status.hits}", func(hits string) bool { return hits == fmt.Sprint(1+pooled) })
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
