// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"testing"
	"time"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
)

// TestLowest: a newer version counts once no older one has answered for a while,
// an older one at once.
func TestLowest(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answer := ""
	s := &servers{
		version: func(context.Context) (string, error) { return answer, nil },
		settle:  5 * time.Minute, now: func() time.Time { return now },
	}
	known := ""
	for i, step := range []struct {
		after        time.Duration
		answer, want string
		again        time.Duration
	}{
		{0, "v1.35.2", "v1.35.2", 0},
		{time.Minute, "v1.36.0", "v1.35.2", 30 * time.Second},
		{4 * time.Minute, "v1.36.0", "v1.35.2", 30 * time.Second},
		{30 * time.Second, "v1.35.2", "v1.35.2", 0}, // not all are upgraded: from the beginning
		{time.Minute, "v1.36.0", "v1.35.2", 30 * time.Second},
		{4*time.Minute + 50*time.Second, "v1.36.0", "v1.35.2", 10 * time.Second},
		{10 * time.Second, "v1.36.0", "v1.36.0", 0},
		{0, "v1.36.1", "v1.36.1", 0},
		{0, "v1.35.2", "v1.35.2", 0},
	} {
		now, answer = now.Add(step.after), step.answer
		is, again, err := s.lowest(t.Context(), known)
		if is != step.want || again != step.again || err != nil {
			t.Fatalf("step %d: %s, again in %s, error %v; want %s, %s", i, is, again, err, step.want, step.again)
		}
		known = is
	}
	answer = "unknown"
	if _, _, err := s.lowest(t.Context(), known); err == nil {
		t.Error("a version that is none is taken")
	}
}

// TestChoose: patches of Kubernetes do not make another rollout.
func TestChoose(t *testing.T) {
	c := &ccmv1alpha1.CloudControllerManager{}
	c.Spec.Images = map[string]string{"b": "own"}
	c.Spec.Versions = []ccmv1alpha1.VersionRule{{Kubernetes: "1.36", Version: "v1.36.1", Images: map[string]string{"a": "x", "b": "y"}}}
	one, err := choose(c, "v1.36.0")
	if err != nil || one.Version != "v1.36.1" || one.Images["a"] != "x" || one.Images["b"] != "own" || one.KubernetesVersion != "1.36" {
		t.Errorf("%+v, error %v", one, err)
	}
	if other, err := choose(c, "v1.36.3"); err != nil || other.KubernetesVersion != one.KubernetesVersion {
		t.Errorf("%+v, error %v", other, err)
	}
	if _, err := choose(c, "v1.37.0"); err == nil {
		t.Error("no rule is for 1.37, and one is taken")
	}
	if c.Spec.Versions[0].Images["b"] != "y" {
		t.Error("the spec was written into")
	}
}
