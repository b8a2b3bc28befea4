// SPDX-License-Identifier: Apache-2.0

package watchdog

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// A container that has crashed runs again, for as long as it takes to crash. It is
// taken for one that runs only when it has run for graceAfterCrash and twice as
// long as the time before, or for settledAfterCrash, with which a kubelet forgets
// crashes too. Else the cause would change with each attempt.
const (
	graceAfterCrash   = 30 * time.Second
	settledAfterCrash = 10 * time.Minute
)

// states returns the reasons why pods do not run.
func states(pods []corev1.Pod, now time.Time) string {
	all := make([]string, len(pods))
	for i := range pods {
		all[i] = pods[i].Name + ": " + state(&pods[i], now)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func running(p *corev1.Pod, now time.Time) bool {
	return p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil &&
		!slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
			return s.State.Running == nil || crashed(&s, false, now) != nil
		})
}

// crashed returns how a container ended that has crashed and has not recovered since;
// nil otherwise.
func crashed(s *corev1.ContainerStatus, first bool, now time.Time) *corev1.ContainerStateTerminated {
	last := s.LastTerminationState.Terminated
	switch {
	case s.State.Terminated != nil:
		last = s.State.Terminated
	case s.State.Waiting != nil && s.State.Waiting.Reason != "CrashLoopBackOff":
		return nil // what it waits for now is more specific
	case s.State.Running != nil && last != nil && recovered(s.State.Running, last, now):
		return nil
	}
	if last == nil || first && last.ExitCode == 0 {
		return nil
	}
	return last
}

// recovered reports whether a container has run for long enough after a crash.
func recovered(is *corev1.ContainerStateRunning, last *corev1.ContainerStateTerminated, now time.Time) bool {
	before := last.FinishedAt.Sub(last.StartedAt.Time)
	return now.Sub(is.StartedAt.Time) >= min(graceAfterCrash+2*before, settledAfterCrash)
}

// state returns the reason why a pod does not run. It is the same for each attempt of
// a pod that crashes again and again.
func state(p *corev1.Pod, now time.Time) string {
	first := len(p.Status.InitContainerStatuses)
	for i, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if t := crashed(&s, i < first, now); t != nil {
			return s.Name + " crashes, " + ended(t)
		}
		if w := s.State.Waiting; w != nil && w.Reason != "PodInitializing" {
			return fmt.Sprintf("%s waits: %s", s.Name, waiting(w))
		}
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason + ": " + c.Message
		}
	}
	return cmp.Or(string(p.Status.Phase), "no phase yet")
}

func ended(t *corev1.ContainerStateTerminated) string {
	why := ""
	if t.Reason != "" && t.Reason != "Error" && t.Reason != "Completed" {
		why = " (" + t.Reason + ")"
	}
	return fmt.Sprintf("last exit %d%s: %s", t.ExitCode, why, lastLine(t.Message))
}

// waiting returns the reason why a container waits. An image that cannot be pulled
// alternates between two reasons; the result is the same for both.
func waiting(w *corev1.ContainerStateWaiting) string {
	reason, message := w.Reason, w.Message
	if reason == "ErrImagePull" || reason == "ImagePullBackOff" {
		reason = "image cannot be pulled"
		if _, cause, has := strings.Cut(message, "ErrImagePull: "); has {
			message = cause
		}
	}
	return cmp.Or(strings.Trim(reason+": "+message, ": "), "no reason given")
}

// stamped is what loggers put before a message, which differs each time: that of
// klog, and the time of others.
var stamped = regexp.MustCompile(`^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+\s+\d+ \S+\] |\b(?:time|ts)=\S+ |"(?:time|ts)":("[^"]*"|[\d.e+]+),?`)

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return cmp.Or(strings.TrimSpace(stamped.ReplaceAllString(lines[len(lines)-1], "")), "no message")
}
