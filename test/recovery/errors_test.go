// SPDX-License-Identifier: Apache-2.0

//go:build integration

package recovery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
)

// classEvents is what the owner of a pod reads for each class of error: reason
// and a part of the hint.
var classEvents = map[error]struct{ reason, hint string }{
	provider.ErrInvalidArgument:  {"InvalidArgument", "correct the annotation"},
	provider.ErrNotFound:         {"NotFound", "check that the image"},
	provider.ErrAlreadyExists:    {"AlreadyExists", "delete the pod"},
	provider.ErrInUse:            {"DiskInUse", "another instance still has"},
	provider.ErrCapacity:         {"NoCapacity", "another instance type or zone"},
	provider.ErrQuota:            {"QuotaExceeded", "quota"},
	provider.ErrUnauthenticated:  {"Unauthenticated", "credentials"},
	provider.ErrPermissionDenied: {"PermissionDenied", "missing permission"},
	provider.ErrUnavailable:      {"CloudUnavailable", "throttled or away"},
	provider.ErrUnimplemented:    {"Unimplemented", "another provider"},
	provider.ErrUnknown:          {"ProviderError", "see the message"},
}

// asks is how often one StartVM asks a cloud that is unavailable.
const asks = 4

// TestErrorClassesAreEvents fails the cloud in every way there is and reads the
// Events of the pod whose VM was asked for.
func TestErrorClassesAreEvents(t *testing.T) {
	s := newSite(t, cluster.OutriggerOptions{})
	for n, class := range provider.Classes() {
		want, ok := classEvents[class]
		if !ok {
			t.Errorf("no Event is wanted here for the class %q: what should the pod's owner read?", class)
			continue
		}
		t.Run(want.reason, func(t *testing.T) { s.classIsAnEvent(t, n, class, want.reason, want.hint) })
	}
	s.nothingIsLeft(t)
}

func (s *site) classIsAnEvent(t *testing.T, n int, class error, reason, hint string) {
	const said = "what the cloud said"
	failure, gate := fake.Block(fake.OpCreate)
	failure.Err = fmt.Errorf("%w: %s", class, said)
	s.cloud.Inject(failure)
	if class == provider.ErrUnavailable {
		s.cloud.Inject(fake.Fail(fake.OpCreate, failure.Err).Repeated(asks - 1))
	}
	name := fmt.Sprintf("fails-%d", n)
	must(t, s.create(s.newPod(name, "exec sleep infinity")))
	select {
	case <-gate.Reached():
	case <-time.After(patience):
		t.Fatal("the cloud was not asked")
	}
	failed := time.Now()
	gate.Open()
	e := s.event(t, name, reason)
	if took := time.Since(failed); took > 5*time.Second {
		t.Errorf("the Event came %s after the failure", took)
	} else {
		t.Logf("after %s: %s", took.Round(time.Millisecond), e.Message)
	}
	pod, err := s.pod(t.Context(), name)
	must(t, err)
	if e.Type != corev1.EventTypeWarning || e.InvolvedObject.UID != pod.UID {
		t.Errorf("Event %+v", e)
	}
	for _, part := range []string{said, hint, "step create-instance"} {
		if !strings.Contains(e.Message, part) {
			t.Errorf("the Event lacks %q: %s", part, e.Message)
		}
	}
	must(t, s.remove(name))
	must(t, s.gone(name))
}
