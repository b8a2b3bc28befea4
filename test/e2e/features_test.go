// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

var features = []scenario{
	{name: "CreatePeerPodWithLargeImage", vms: 1, variant: true, play: largeImage},
	{name: "PodWithInitContainer", vms: 1, play: initContainers},
	{name: "PodWithSidecar", vms: 1, variant: true, play: sidecar},
	{name: "PodWithSpecificCommands", vms: 1, variant: true, play: commands},
	{name: "CreatePeerPodWithAuthenticatedImageWithImagePullSecretOnPod", vms: 1, play: pullSecretOnPod},
	{name: "CreatePeerPodWithAuthenticatedImageWithImagePullSecretInServiceAccount", vms: 1, variant: true, play: pullSecretOfAccount},
	{name: "CreatePeerPodWithAuthenticatedImageWithoutCredentials", vms: 1, variant: true, play: noPullSecret},
	{name: "CreatePeerPodWithAuthenticatedImageWithInvalidCredentials", vms: 1, variant: true, play: wrongPullSecret},
	{name: "PodToDownloadExternalFile", vms: 1, variant: true, play: download},
	{name: "PodToAPIServer", vms: 1, variant: true, play: serviceAccount},
	{name: "PodWithDownwardAPI", vms: 1, variant: true, play: downwardAPI},
	{name: "PodWithSecurityContext", vms: 1, variant: true, play: securityContext},
	{name: "PrivilegedPod", vms: 1, variant: true, play: privileged},
	{name: "PodWithLargeLogs", vms: 1, variant: true, play: largeLogs},
	{name: "PodThatFails", vms: 1, variant: true, play: failing},
	{name: "PodThatIsRestarted", vms: 1, variant: true, play: restarted},
	{name: "PodOutOfMemory", vms: 1, variant: true, play: outOfMemory},
	{name: "PodWithoutSuchCommand", vms: 1, variant: true, play: noSuchCommand},
	{name: "PodWithTerminationMessage", vms: 1, variant: true, play: terminationMessage},
	{name: "PodWithLivenessProbe", vms: 1, variant: true, play: liveness},
	{name: "PodWithReadinessAndStartupProbe", vms: 1, play: readiness},
	{name: "PodWithHooksAndSignals", vms: 1, variant: true, play: hooks},
}

func largeImage(t *testing.T, s *suite) {
	p := s.pod("large", "wc -c </large").image(s.images.large)
	want(t, "size of the file", s.play(t, p), fmt.Sprintln(largeSize))
}

const scratch = `volumeMounts: [{name: scratch, mountPath: /scratch}]`

const scratchVolume = `volumes: [{name: scratch, emptyDir: {}}]`

func initContainers(t *testing.T, s *suite) {
	p := s.pod("init", "cat /scratch/order; echo main").container(scratch).with(scratchVolume).
		before("first", "echo first >>/scratch/order", scratch).before("second", "echo second >>/scratch/order", scratch)
	want(t, "log", s.play(t, p), "first\nsecond\nmain\n")
}

// sidecar: an init container that stays is up before main begins, and does not
// keep the pod from ending.
func sidecar(t *testing.T, s *suite) {
	p := s.pod("sidecar", "podtool get http://localhost:8080/").
		before("server", serve, `{restartPolicy: Always, startupProbe: {tcpSocket: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 100}}`)
	want(t, "answer", s.play(t, p), "hello from sidecar")
}

func commands(t *testing.T, s *suite) {
	p := s.pod("commands", "").container(`{command: [printf, "%s|"], args: ["a b", "$(WORD)", "$HOME", ""], env: [{name: WORD, value: "it's"}], workingDir: /tmp}`)
	want(t, "log", s.play(t, p), "a b|it's|$HOME||")
}

// pullSecret returns the Secret of a registry.
func pullSecret(t *testing.T, name string, p private) object {
	t.Helper()
	auth := base64.StdEncoding.EncodeToString([]byte(p.user + ":" + p.password))
	data, err := json.Marshal(object{"auths": object{p.server: object{"auth": auth}}})
	if err != nil {
		t.Fatal(err)
	}
	made := secret(name, map[string]string{".dockerconfigjson": string(data)})
	made["type"] = "kubernetes.io/dockerconfigjson"
	return made
}

func (s *suite) privatePod(name string) *pod {
	return s.pod(name, "echo pulled").image(s.images.private.ref).container("imagePullPolicy: Always")
}

func pullSecretOnPod(t *testing.T, s *suite) {
	p := s.needPrivate(t)
	out := s.play(t, s.privatePod("pull-pod").with(`imagePullSecrets: [{name: pull-pod}]`), pullSecret(t, "pull-pod", p))
	want(t, "log", out, "pulled\n")
}

func pullSecretOfAccount(t *testing.T, s *suite) {
	p := s.needPrivate(t)
	account := object{
		"apiVersion": "v1", "kind": "ServiceAccount", "metadata": object{"name": "puller"},
		"imagePullSecrets": []any{object{"name": "pull-account"}},
	}
	out := s.play(t, s.privatePod("pull-account").with("serviceAccountName: puller"), account, pullSecret(t, "pull-account", p))
	want(t, "log", out, "pulled\n")
}

func noPullSecret(t *testing.T, s *suite) {
	s.needPrivate(t)
	s.create(t, s.privatePod("pull-none"))
	s.until(t, "pod/pull-none", waiting, isPullError)
}

func wrongPullSecret(t *testing.T, s *suite) {
	p := s.needPrivate(t)
	p.password += "-wrong"
	s.create(t, s.privatePod("pull-wrong").with(`imagePullSecrets: [{name: pull-wrong}]`), pullSecret(t, "pull-wrong", p))
	s.until(t, "pod/pull-wrong", waiting, isPullError)
}

// waiting is the reason why a pod's container does not run.
const waiting = "{.status.containerStatuses[0].state.waiting.reason}"

func isPullError(reason string) bool { return reason == "ErrImagePull" || reason == "ImagePullBackOff" }

func download(t *testing.T, s *suite) {
	p := s.pod("download", "podtool get "+s.outside+" >/scratch/file && test -s /scratch/file && echo downloaded").container(scratch).with(scratchVolume)
	want(t, "log", s.play(t, p), "downloaded\n")
}

func serviceAccount(t *testing.T, s *suite) {
	want(t, "answer", s.play(t, s.pod("account", "podtool get https://kubernetes.default.svc/version")), "200 OK")
}

func downwardAPI(t *testing.T, s *suite) {
	p := s.pod("downward", `echo "$NAME $NAMESPACE $NODE"; ip addr | grep -q "inet $IP/" && echo its address; cat /volume/labels`).
		container(`{env: [
			{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: NAMESPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}},
			{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}],
			volumeMounts: [{name: v, mountPath: /volume}]}`).
		with(`volumes: [{name: v, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}]`)
	log := s.play(t, p)
	want(t, "log", log, fmt.Sprintf("downward %s %s\nits address\n", s.namespace, s.jsonpath(t, "pod/downward", "{.spec.nodeName}")))
	want(t, "labels", log, `app="downward"`)
}

func securityContext(t *testing.T, s *suite) {
	p := s.pod("security", `id -u; id -g; id -G; touch /x || echo read-only; touch /scratch/x && stat -c %g /scratch/x; grep -E 'CapEff|NoNewPrivs|Seccomp:' /proc/self/status`).
		container(`{volumeMounts: [{name: scratch, mountPath: /scratch}],
			securityContext: {readOnlyRootFilesystem: true, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}`).
		with(`{volumes: [{name: scratch, emptyDir: {}}],
			securityContext: {runAsUser: 1234, runAsGroup: 3000, fsGroup: 2000, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}}`)
	log := s.play(t, p)
	for _, part := range []string{"1234\n3000\n", "2000", "read-only", "\n2000\n", "CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		want(t, "log", log, part)
	}
}

// privileged: a pod may do anything to its VM.
func privileged(t *testing.T, s *suite) {
	p := s.pod("privileged", "mount -t tmpfs none /mnt && dmesg >/dev/null && echo it may").
		container(`{securityContext: {privileged: true}, volumeMounts: [{name: mnt, mountPath: /mnt}]}`).with(`volumes: [{name: mnt, emptyDir: {}}]`)
	want(t, "log", s.play(t, p), "it may\n")
}

func largeLogs(t *testing.T, s *suite) {
	const lines = 60000
	log := s.play(t, s.pod("logs", fmt.Sprintf(`awk 'BEGIN { for (i = 1; i <= %d; i++) printf "line %%08d of a log that is long\n", i }'`, lines)))
	got := strings.Split(strings.TrimSuffix(log, "\n"), "\n")
	for i, line := range got {
		if line != fmt.Sprintf("line %08d of a log that is long", i+1) {
			t.Fatalf("line %d is %q", i+1, line)
		}
	}
	if len(got) != lines {
		t.Errorf("%d lines of %d", len(got), lines)
	}
}

const terminated = `{.status.containerStatuses[0].state.terminated.reason} {.status.containerStatuses[0].state.terminated.exitCode}`

func failing(t *testing.T, s *suite) {
	s.create(t, s.pod("failing", "echo oops >&2; exit 3"))
	if phase := s.ended(t, "failing"); phase != "Failed" {
		t.Errorf("the pod %s", phase)
	}
	want(t, "state", s.jsonpath(t, "pod/failing", terminated), "Error 3")
	want(t, "log", s.logs(t, "failing"), "oops")
}

// restarted: a container that fails starts again in the same VM, where it finds
// its emptyDir.
func restarted(t *testing.T, s *suite) {
	p := s.pod("restarted", "cat /proc/sys/kernel/random/boot_id >>/scratch/boots; uniq /scratch/boots | wc -l; test $(wc -l </scratch/boots) = 2").
		container(scratch).with(scratchVolume).with("restartPolicy: OnFailure")
	want(t, "kernels", s.play(t, p), "1\n")
	want(t, "restarts", s.jsonpath(t, "pod/restarted", "{.status.containerStatuses[0].restartCount}"), "1")
}

func outOfMemory(t *testing.T, s *suite) {
	s.create(t, s.pod("greedy", "echo up; exec tail /dev/zero").container("resources: {limits: {memory: 64Mi}}"))
	s.ended(t, "greedy")
	want(t, "state", s.jsonpath(t, "pod/greedy", terminated), "OOMKilled 137")
}

func noSuchCommand(t *testing.T, s *suite) {
	s.create(t, s.pod("nosuch", "").container("command: [/bin/nosuch]"))
	s.ended(t, "nosuch")
	want(t, "state", s.jsonpath(t, "pod/nosuch", terminated), "StartError 128")
	want(t, "reason", s.jsonpath(t, "pod/nosuch", "{.status.containerStatuses[0].state.terminated.message}"), "/bin/nosuch")
}

// terminationMessage: what a container writes about its end is in the pod's
// status.
func terminationMessage(t *testing.T, s *suite) {
	p := s.pod("message", "echo -n it was the butler >/dev/termination-log").
		beside("other", "echo -n elsewhere >/tmp/message; exit 1", "terminationMessagePath: /tmp/message").
		beside("logs", "echo from the log; exit 1", "terminationMessagePolicy: FallbackToLogsOnError")
	s.create(t, p)
	s.ended(t, "message")
	got := s.jsonpath(t, "pod/message", "{range .status.containerStatuses[*]}{.name}: {.state.terminated.message};{end}")
	for _, part := range []string{"main: it was the butler;", "other: elsewhere;", "logs: from the log"} {
		want(t, "messages", got, part)
	}
}
