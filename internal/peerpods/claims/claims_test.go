// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider"
)

// memory is an API server for one object.
type memory struct {
	object   *v1alpha1.PeerPod
	writes   int
	conflict int // so many patches fail, as if somebody else was faster
}

var resource = v1alpha1.GroupVersion.WithResource(v1alpha1.Resource).GroupResource()

func (m *memory) Get(_ context.Context, _, name string) (*v1alpha1.PeerPod, error) {
	if m.object == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return m.object.DeepCopy(), nil
}

func (m *memory) Create(_ context.Context, pp *v1alpha1.PeerPod) (*v1alpha1.PeerPod, error) {
	if m.object != nil {
		return nil, apierrors.NewAlreadyExists(resource, pp.Name)
	}
	m.object = pp.DeepCopy()
	m.object.UID, m.object.ResourceVersion, m.object.Status = "u1", "1", v1alpha1.PeerPodStatus{}
	m.writes++
	return m.object.DeepCopy(), nil
}

func (m *memory) Patch(_ context.Context, _, name, subresource string, patch []byte) (*v1alpha1.PeerPod, error) {
	if m.object == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	var head struct {
		Metadata struct {
			ResourceVersion string
			Finalizers      []string
		}
		Spec, Status json.RawMessage
	}
	if err := json.Unmarshal(patch, &head); err != nil {
		return nil, err
	}
	if m.conflict > 0 {
		m.conflict--
		m.bump()
	}
	if head.Metadata.ResourceVersion != m.object.ResourceVersion {
		return nil, apierrors.NewConflict(resource, name, errors.New("it has changed"))
	}
	if (subresource == "status") != (head.Status != nil) {
		return nil, fmt.Errorf("patch of %q has %s", subresource, patch)
	}
	if head.Spec != nil {
		json.Unmarshal(head.Spec, &m.object.Spec)
		m.object.Generation++
	}
	if head.Status != nil {
		m.object.Status = v1alpha1.PeerPodStatus{}
		json.Unmarshal(head.Status, &m.object.Status)
	}
	if head.Spec == nil && head.Status == nil {
		m.object.Finalizers = head.Metadata.Finalizers
	}
	m.bump()
	m.writes++
	answer := m.object.DeepCopy()
	if m.object.DeletionTimestamp != nil && len(m.object.Finalizers) == 0 {
		m.object = nil
	}
	return answer, nil
}

func (m *memory) bump() {
	n, _ := strconv.Atoi(m.object.ResourceVersion)
	m.object.ResourceVersion = strconv.Itoa(n + 1)
}

func (m *memory) Delete(_ context.Context, _, name string, uid types.UID) error {
	switch {
	case m.object == nil:
		return apierrors.NewNotFound(resource, name)
	case m.object.UID != uid:
		return apierrors.NewConflict(resource, name, errors.New("another UID"))
	}
	now := v1alpha1.PeerPod{}.CreationTimestamp
	now.Time = time.Now()
	m.object.DeletionTimestamp = &now
	m.bump()
	m.writes++
	return nil
}

var claim = Claim{Provider: "fake", SandboxID: "s1", Cluster: "c1", Node: "n1", Namespace: "ns", PodName: "web", PodUID: "p1"}

// TestStepsFitIntoThePeerPod: the API server would refuse all of a status with a step too many.
func TestStepsFitIntoThePeerPod(t *testing.T) {
	pp := &v1alpha1.PeerPod{}
	at := time.Now()
	for i := range 2 * v1alpha1.MaxSteps {
		Step(timeline.Step{Name: fmt.Sprint("step-", i), Where: timeline.Guest, Start: at, End: at.Add(time.Second)})(pp)
	}
	Step(timeline.Step{Name: "step-0", Start: at, End: at})(pp)
	first := pp.Status.Steps[0]
	if len(pp.Status.Steps) != v1alpha1.MaxSteps || first.Place != v1alpha1.PlaceGuest || first.Time.Sub(first.StartTime.Time) != time.Second {
		t.Errorf("%d steps, the first of them %+v", len(pp.Status.Steps), first)
	}
}

// TestLifeInSixWrites counts what a pod costs the API server.
func TestLifeInSixWrites(t *testing.T) {
	api := &memory{}
	claims := &Claims{api}
	pp, err := claims.Claim(t.Context(), claim)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	step := func(name string) Change {
		return Step(timeline.Step{Name: name, Where: timeline.Node, Start: at, End: at})
	}
	for _, changes := range [][]Change{
		{step("create-instance"), Created(v1alpha1.Instance{ID: "i-1", Addresses: []string{"192.0.2.1"}})},
		{step("ready"), Ready},
		{Ready}, // said again: no write
	} {
		if pp, err = claims.Update(t.Context(), pp, changes...); err != nil {
			t.Fatal(err)
		}
	}
	if pp.Status.Phase != v1alpha1.PhaseReady || pp.Spec.InstanceID != "i-1" || len(pp.Status.Steps) != 2 {
		t.Errorf("%+v", pp)
	}
	if err := claims.Release(t.Context(), pp); err != nil {
		t.Fatal(err)
	}
	if api.object != nil || api.writes != 6 {
		t.Errorf("%d writes, left %v", api.writes, api.object)
	}
	if err := claims.Release(t.Context(), pp); err != nil {
		t.Errorf("released again: %v", err)
	}
}

func TestClaimIsRepeatable(t *testing.T) {
	api := &memory{}
	claims := &Claims{api}
	for range 3 {
		if _, err := claims.Claim(t.Context(), claim); err != nil {
			t.Fatal(err)
		}
	}
	if api.writes != 1 {
		t.Errorf("%d objects made", api.writes)
	}
	api.object.Spec.SandboxID = "other"
	if _, err := claims.Claim(t.Context(), claim); !errors.Is(err, provider.ErrAlreadyExists) {
		t.Errorf("another sandbox's: %v", err)
	}
	api.object.Spec.SandboxID = "s1"
	api.Delete(t.Context(), "", "", "u1")
	if _, err := claims.Claim(t.Context(), claim); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("one in deletion: %v", err)
	}
}

func TestConflictsAreDecidedAnew(t *testing.T) {
	api := &memory{}
	claims := &Claims{api}
	pp, _ := claims.Claim(t.Context(), claim)
	api.conflict = 3
	pp, err := claims.Update(t.Context(), pp, Created(v1alpha1.Instance{ID: "i-1"}))
	if err != nil || pp.Status.Phase != v1alpha1.PhaseConnecting {
		t.Errorf("%+v, %v", pp, err)
	}
	api.object.UID = "u2" // deleted and made again meanwhile
	api.bump()
	if _, err := claims.Update(t.Context(), pp, Ready); !apierrors.IsNotFound(err) {
		t.Errorf("another object of the name: %v; want not found", err)
	}
	if err := claims.Release(t.Context(), pp); err != nil || api.object.DeletionTimestamp != nil {
		t.Errorf("released another's: %v", err)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, c := range [][2]string{{"web", "s1"}, {"", "s1"}, {long, long}, {"a.b", "X_y.Z"}, {strings.Repeat("a", 49) + "." + "b", "x"}} {
		name := Name(c[0], c[1])
		if errs := validation.IsDNS1123Subdomain(name); len(errs) > 0 || len(name) > maxName {
			t.Errorf("%q: %v", name, errs)
		}
		if name != Name(c[0], c[1]) || name == Name(c[0], c[1]+"0") {
			t.Errorf("%q is not that of its sandbox alone", name)
		}
	}
}

func TestPhases(t *testing.T) {
	boom := fmt.Errorf("make it: %w", provider.ErrQuota)
	at := time.Now()
	for _, c := range []struct {
		changes []Change
		want    v1alpha1.Phase
	}{
		{nil, v1alpha1.PhasePending},
		{[]Change{Claimed}, v1alpha1.PhasePending},
		{[]Change{Claimed, Failed("create-instance", boom, at)}, v1alpha1.PhaseFailed},
		{[]Change{Claimed, Created(v1alpha1.Instance{ID: "i"})}, v1alpha1.PhaseConnecting},
		{[]Change{Claimed, Failed("create-instance", boom, at), Created(v1alpha1.Instance{ID: "i"})}, v1alpha1.PhaseConnecting},
		{[]Change{Created(v1alpha1.Instance{ID: "i"}), Ready}, v1alpha1.PhaseReady},
		{[]Change{Created(v1alpha1.Instance{ID: "i"}), Ready, Lost}, v1alpha1.PhaseFailed},
		{[]Change{Ready, Deleting(ReasonWaitingForCloud, "")}, v1alpha1.PhaseDeleting},
	} {
		pp := New(claim)
		for _, change := range c.changes {
			change(pp)
		}
		if got := PhaseOf(pp); got != c.want {
			t.Errorf("%d changes: phase %s, want %s", len(c.changes), got, c.want)
		}
		before := pp.DeepCopy()
		for _, change := range c.changes[max(0, len(c.changes)-1):] {
			change(pp)
		}
		if diff := cmp.Diff(before.Status, pp.Status); diff != "" {
			t.Errorf("the last change applied twice: %s", diff)
		}
	}
}

// TestEveryClassHasReasonAndHint: no error leaves a user alone.
func TestEveryClassHasReasonAndHint(t *testing.T) {
	reasons := map[string]bool{}
	for class := range classTable {
		err := fmt.Errorf("try it: %w", class)
		if Reason(err) == "" || Hint(err) == "" || reasons[Reason(err)] {
			t.Errorf("%v: reason %q, hint %q", class, Reason(err), Hint(err))
		}
		reasons[Reason(err)] = true
	}
	if len(reasons) != len(provider.Classes()) || Reason(errors.New("x")) != "ProviderError" {
		t.Errorf("reasons %v", reasons)
	}
}

func TestLongMessagesFit(t *testing.T) {
	err := errors.New(strings.Repeat("ä", 5000) + "\xff")
	if e := Error("s", err, time.Now()); len(e.Message) > 4096 || !strings.HasSuffix(e.Message, "ä…") {
		t.Errorf("%d bytes, ends %q", len(e.Message), e.Message[len(e.Message)-6:])
	}
}
