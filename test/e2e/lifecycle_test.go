// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"
)

var lifecycle = []scenario{
	{name: "CaaDaemonsetRollingUpdate", vms: 2, alone: true, variant: true, play: rollingUpdate},
	{name: "SandboxPersistence", vms: 1, alone: true, variant: true, play: adaptorKilled},
	{name: "DeletePodWhileItStarts", vms: 1, variant: true, play: deletedEarly},
	{name: "WebhookMutatesPeerPods", play: mutated},
}

const daemonSet = "daemonset/cloud-api-adaptor-daemonset"

// system runs kubectl where Outrigger is installed.
func (s *suite) system(t *testing.T, args ...string) string {
	t.Helper()
	return s.Kubectl(t, append([]string{"-n", "confidential-containers-system"}, args...)...)
}

// rollingUpdate replaces the adaptor under a pod: nothing of the pod restarts,
// an exec session stays open, and the node advertises as many VMs as before.
func rollingUpdate(t *testing.T, s *suite) {
	const allocatable = `{.status.allocatable.kata\.peerpods\.io/vm}`
	before := s.Kubectl(t, "get", "nodes", "-o", "jsonpath={range .items[*]}{.metadata.name}="+allocatable+" {end}")
	s.start(t, s.pod("updated", serve).container(served))
	kernel, session := s.bootID(t, "updated"), s.session(t, "updated")
	s.system(t, "rollout", "restart", daemonSet)
	s.system(t, "rollout", "status", daemonSet, s.timeout())
	session.ask(t, "after")
	s.undisturbed(t, "updated", kernel)
	t.Run("ExtendedResourcesAfterRollout", func(t *testing.T) {
		// The new adaptor advertises the capacity; what is allocatable of it the kubelet
		// says when it reports its node the next time.
		for node := range strings.FieldsSeq(before) {
			if name, value, _ := strings.Cut(node, "="); value != "" {
				s.Kubectl(t, "wait", "node/"+name, "--for=jsonpath="+allocatable+"="+value, s.timeout())
			}
		}
	})
	want(t, "a pod made afterwards", s.play(t, s.pod("after-update", "echo well")), "well\n")
}

func (s *suite) undisturbed(t *testing.T, pod, kernel string) {
	t.Helper()
	if now := s.bootID(t, pod); now != kernel {
		t.Errorf("pod %s has kernel %s, before %s", pod, now, kernel)
	}
	want(t, "restarts", s.jsonpath(t, "pod/"+pod, "{.status.phase} {.status.containerStatuses[*].restartCount}"), "Running 0")
	want(t, "answer", s.forwarded(t, pod), "hello from "+pod)
}

// session is a shell in a pod that stays open.
type session struct {
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func (s *suite) session(t *testing.T, pod string) *session {
	t.Helper()
	cmd := s.Command(s.in([]string{"exec", "-i", pod, "--", "cat"})...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { finish(cmd) })
	open := &session{stdin, bufio.NewScanner(stdout)}
	open.ask(t, "before")
	return open
}

// ask wants back what it sends.
func (s *session) ask(t *testing.T, word string) {
	t.Helper()
	fmt.Fprintln(s.stdin, word)
	if !s.lines.Scan() || s.lines.Text() != word {
		t.Errorf("the open exec answers %q, %v", s.lines.Text(), s.lines.Err())
	}
}

// adaptorKilled: a pod lives through the sudden end of its node's adaptor, and
// is removed by the next one.
func adaptorKilled(t *testing.T, s *suite) {
	s.start(t, s.pod("persistent", serve).container(served))
	kernel, id := s.bootID(t, "persistent"), s.instanceOf(t, "persistent")
	s.system(t, "delete", "pods", "-l", "app=cloud-api-adaptor", "--grace-period=0", "--force")
	s.undisturbed(t, "persistent", kernel)
	s.system(t, "rollout", "status", daemonSet, s.timeout())
	s.undisturbed(t, "persistent", kernel)
	s.delete(t, "persistent")
	s.gone(t, id)
}

// deletedEarly: a pod whose VM is still being made leaves nothing.
func deletedEarly(t *testing.T, s *suite) {
	s.create(t, s.pod("early", "sleep infinity"))
	id := s.until(t, "peerpods", "{.spec.podName} {.spec.instanceID}", func(v string) bool {
		f := strings.Fields(v)
		return len(f) == 2 && f[0] == "early"
	})
	s.delete(t, "early")
	s.gone(t, strings.Fields(id)[1])
}

// mutated asks the webhook, through the API server, and makes no pod.
func mutated(t *testing.T, s *suite) {
	const resources = `resources: {requests: {cpu: 1500m, memory: 1Gi}}`
	p := s.pod("mutated", "true").container(resources)
	got := s.dryRun(t, p)
	want(t, "size", got, `"`+annotationCPUs+`":"2"`)
	want(t, "limit", got, `"kata.peerpods.io/vm":"1"`)
	delete(p.spec, "runtimeClassName")
	if got := s.dryRun(t, p); strings.Contains(got, "io.katacontainers") || strings.Contains(got, "kata.peerpods.io/vm") {
		t.Errorf("a pod of no runtime class was changed: %s", got)
	}
}
