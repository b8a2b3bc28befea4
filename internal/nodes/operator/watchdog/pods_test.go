// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
)

// ago is a time before now.
func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// crash is the end of a run of three seconds.
func crash(message string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: message, StartedAt: ago(time.Minute), FinishedAt: ago(57 * time.Second)}
}

// after is a pod whose container has crashed before.
func after(message string, state corev1.ContainerState) corev1.Pod {
	p := pod(corev1.PodRunning, state)
	p.Status.ContainerStatuses[0].LastTerminationState.Terminated = crash(message)
	return p
}

func runningSince(d time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(d)}}
}

func diagnosePods(pods ...corev1.Pod) (Cause, string) {
	n := node("", cloudproviderapi.TaintExternalCloudProvider)
	return Diagnose(n, Facts{Provider: "libvirt", Pods: pods, Lease: leaseOf("ccm-1", time.Second)}, now)
}

// TestCrashLoop: the cause and what is said of it stay the same while a container
// is tried again and again, each time with another log line.
func TestCrashLoop(t *testing.T) {
	line := func(at string) string {
		return "E0102 03:04:" + at + "       1 main.go:12] no such host"
	}
	waits := corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off 20s restarting failed container"}}
	ends := pod(corev1.PodRunning, corev1.ContainerState{Terminated: crash(line("01.000001"))})
	const want = "no pod of the cloud controller manager runs: ccm-1: manager crashes, last exit 1: no such host"
	for name, p := range map[string]corev1.Pod{
		"ended": ends, "waits": after(line("02.000002"), waits), "runs again": after(line("03.000003"), runningSince(time.Second)),
		"runs a little longer": after(line("04.000004"), runningSince(35*time.Second)),
	} {
		if cause, message := diagnosePods(p); cause != PodsNotRunning || message != want {
			t.Errorf("%s: %s: %s", name, cause, message)
		}
	}
	if cause, message := diagnosePods(after(line("05.000005"), runningSince(37*time.Second))); cause != Silent {
		t.Errorf("over it: %s: %s", cause, message)
	}
	long := after(line("06.000006"), runningSince(11*time.Minute))
	long.Status.ContainerStatuses[0].LastTerminationState.Terminated.StartedAt = ago(24 * time.Hour)
	if cause, message := diagnosePods(long); cause != Silent {
		t.Errorf("ran for a day before: %s: %s", cause, message)
	}
}

// TestWhatPodsSay has no secrets, and is the same at each attempt.
func TestWhatPodsSay(t *testing.T) {
	waits := func(reason, message string) corev1.Pod {
		return pod(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}})
	}
	oom := crash("killed")
	oom.ExitCode, oom.Reason = 137, "OOMKilled"
	first := pod(corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})
	first.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "first", State: corev1.ContainerState{Terminated: crash("no file")}}}
	for name, c := range map[string]struct {
		pod  corev1.Pod
		says string
	}{
		"secret":         {pod(corev1.PodRunning, corev1.ContainerState{Terminated: crash("x\nlogin https://u:p@cloud with password=hunter2: 401")}), "login https://[hidden]@cloud with password=[hidden]: 401"},
		"killed":         {pod(corev1.PodRunning, corev1.ContainerState{Terminated: oom}), "manager crashes, last exit 137 (OOMKilled): killed"},
		"init container": {first, "first crashes, last exit 1: no file"},
		"pulling":        {waits("ErrImagePull", "not found"), "manager waits: image cannot be pulled: not found"},
		"not pulling":    {waits("ImagePullBackOff", `Back-off pulling image "x": ErrImagePull: not found`), "manager waits: image cannot be pulled: not found"},
		"no config":      {after("x", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError", Message: `secret "x" not found`}}), `CreateContainerConfigError: secret "x" not found`},
	} {
		if cause, message := diagnosePods(c.pod); cause != PodsNotRunning || !strings.HasSuffix(message, c.says) {
			t.Errorf("%s: %s: %s\nwant ...%s", name, cause, message, c.says)
		}
	}
}
