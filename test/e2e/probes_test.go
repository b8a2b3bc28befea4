// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"strings"
	"testing"
	"time"
)

// liveness: a container whose probe fails is started again in its VM.
func liveness(t *testing.T, s *suite) {
	p := s.pod("liveness", "touch /tmp/well; exec sleep infinity").
		container(`livenessProbe: {exec: {command: [cat, /tmp/well]}, periodSeconds: 3, timeoutSeconds: 30, failureThreshold: 2, initialDelaySeconds: 1}`).
		with("restartPolicy: Always")
	s.start(t, p)
	kernel := s.bootID(t, "liveness")
	s.exec(t, "liveness", "rm", "/tmp/well")
	s.until(t, "pod/liveness", `{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].ready}`, func(v string) bool { return v == "1 true" })
	if again := s.bootID(t, "liveness"); again != kernel {
		t.Errorf("the container is in another VM: kernel %s, before %s", again, kernel)
	}
}

// readiness: kubelet reaches the pod through its tunnel, and nobody else does
// before it is ready. The startup probe holds the others off.
func readiness(t *testing.T, s *suite) {
	p := s.pod("readiness", `until test -e /tmp/go; do sleep 0.2; done; exec podtool serve :8080`).
		container(`{startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 300},
			readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 30},
			livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 30}}`).
		with("restartPolicy: Always")
	s.create(t, p, serviceOf("readiness", 80))
	const state = `{.status.phase} {.status.containerStatuses[0].started} {.status.containerStatuses[0].ready} {.status.containerStatuses[0].restartCount}`
	s.until(t, "pod/readiness", state, func(v string) bool { return v == "Running false false 0" })
	const endpoints = `jsonpath={.items[*].endpoints[*].conditions.ready}`
	slices := []string{"get", "endpointslices", "-l", "kubernetes.io/service-name=readiness", "-o", endpoints}
	if ready := s.kubectl(t, slices...); strings.Contains(ready, "true") {
		t.Errorf("the Service has endpoints that are ready: %s", ready)
	}
	s.exec(t, "readiness", "touch", "/tmp/go")
	s.until(t, "pod/readiness", `{.status.containerStatuses[0].started} {.status.containerStatuses[0].ready}`, func(v string) bool { return v == "true true" })
}

// hooks: the container's log is followed through its whole life.
func hooks(t *testing.T, s *suite) {
	p := s.pod("hooks", `trap 'echo stopped; exit 0' TERM; until test -e /tmp/begun; do sleep 0.1; done; echo begun; while :; do sleep 0.1; done`).
		container(`lifecycle: {postStart: {exec: {command: [touch, /tmp/begun]}}, preStop: {exec: {command: [sh, -c, "echo stopping >/proc/1/fd/1"]}}}`).
		with("terminationGracePeriodSeconds: 60")
	s.start(t, p)
	cmd := s.Command(s.in([]string{"logs", "--follow", "hooks"})...)
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer finish(cmd)
	deadline := time.AfterFunc(patience, func() { cmd.Process.Kill() })
	defer deadline.Stop()
	lines := bufio.NewScanner(stdout)
	if !lines.Scan() || lines.Text() != "begun" {
		t.Errorf("the log begins with %q", lines.Text())
	}
	s.delete(t, "hooks")
	var rest []string
	for lines.Scan() {
		rest = append(rest, lines.Text())
	}
	want(t, "rest of the log", strings.Join(rest, " "), "stopping stopped")
}
