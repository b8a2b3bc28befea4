// SPDX-License-Identifier: Apache-2.0

//go:build integration

package status

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/test/cluster"
	crds "github.com/outrigger/outrigger/test/openshift"
)

// world is an API server with the kind, and a clock.
type world struct {
	client client.Client
	now    time.Time
	events *events.FakeRecorder
}

func TestStatus(t *testing.T) {
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{ControllerManager: []string{"--controllers=serviceaccount-controller"}})
	crds.Install(t, c)
	scheme := runtime.NewScheme()
	_ = corev1.AddToScheme(scheme)
	_ = configv1.Install(scheme)
	api := c.RESTConfig()
	api.QPS = -1
	k, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(*testing.T, *world){
		"S1 made when missing, kept when there":               created,
		"S2 CloudControllerOwner is removed":                  ownerRemoved,
		"S3 reasons, messages and times":                      messages,
		"regression: the cause in a message":                  cause,
		"regression: two writers leave each other's alone":    twoWriters,
		"no write when nothing is new":                        noWrite,
		"who must be ready before anything is deployed":       provisioning,
		"what others wrote, also with an update, is taken on": takeOver,
	} {
		t.Run(name, func(t *testing.T) {
			if err := k.DeleteAllOf(t.Context(), &configv1.ClusterOperator{}); err != nil {
				t.Fatal(err)
			}
			f(t, &world{k, time.Unix(1e9, 0), events.NewFakeRecorder(100)})
		})
	}
}

func (w *world) operator(version string) *Operator {
	o := NewOperator(w.client, w.client, version, controllers.NewRecorder(w.events, nil))
	o.writer.Now = func() time.Time { return w.now }
	return o
}

func (w *world) get(t *testing.T) *configv1.ClusterOperator {
	t.Helper()
	var o configv1.ClusterOperator
	must(t, w.client.Get(t.Context(), types.NamespacedName{Name: Name}, &o))
	return &o
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// want compares the conditions, as type=status/reason/message, and the
// versions.
func (w *world) want(t *testing.T, version string, want map[configv1.ClusterStatusConditionType]string) {
	t.Helper()
	o := w.get(t)
	got := map[configv1.ClusterStatusConditionType]string{}
	for _, c := range o.Status.Conditions {
		got[c.Type] = string(c.Status) + "/" + c.Reason + "/" + c.Message
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	var versions []configv1.OperandVersion
	if version != "" {
		versions = []configv1.OperandVersion{{Name: "operator", Version: version}}
	}
	if d := cmp.Diff(versions, o.Status.Versions); d != "" {
		t.Errorf("versions: -want +got:\n%s", d)
	}
}

func (w *world) since(t *testing.T, of configv1.ClusterStatusConditionType) int64 {
	t.Helper()
	return find(w.get(t).Status.Conditions, of).LastTransitionTime.Unix()
}

var available = map[configv1.ClusterStatusConditionType]string{
	"Available":   "True/AsExpected/Cluster Cloud Controller Manager Operator is available at 2",
	"Progressing": "False/AsExpected/", "Degraded": "False/AsExpected/", "Upgradeable": "True/AsExpected/",
}

func created(t *testing.T, w *world) {
	must(t, w.operator("2").Available(t.Context(), nil))
	uid := w.get(t).UID
	w.want(t, "2", available)
	must(t, w.operator("2").Progressing(t.Context()))
	if w.get(t).UID != uid {
		t.Error("it was made again")
	}
}

func ownerRemoved(t *testing.T, w *world) {
	for _, s := range []configv1.ConditionStatus{configv1.ConditionTrue, configv1.ConditionFalse} {
		o, err := w.operator("2").Get(t.Context())
		must(t, err)
		o.Status.Conditions = append([]configv1.ClusterOperatorStatusCondition{
			{Type: OwnerCondition, Status: s, LastTransitionTime: metav1.NewTime(w.now)},
			{Type: "Foreign", Status: s, LastTransitionTime: metav1.NewTime(w.now)},
		}, o.Status.Conditions...)
		must(t, w.client.Status().Update(t.Context(), o))
		must(t, w.operator("2").Available(t.Context(), nil))
		conditions := w.get(t).Status.Conditions
		if find(conditions, OwnerCondition) != nil || find(conditions, "Foreign") == nil {
			t.Errorf("%v", conditions)
		}
		o = w.get(t)
		must(t, w.operator("2").writer.Drop(t.Context(), o, "Foreign"))
	}
	// It is dropped only where it still is.
	old := w.get(t)
	old.Status.Conditions[0].Type = "Moved"
	if err := w.operator("2").writer.Drop(t.Context(), old, "Moved"); err == nil {
		t.Error("another condition was removed in its place")
	}
}

func messages(t *testing.T, w *world) {
	start := w.now.Unix()
	o := w.operator("2")
	must(t, o.Progressing(t.Context()))
	w.want(t, "", map[configv1.ClusterStatusConditionType]string{"Progressing": "True/SyncingResources/Progressing towards operator: 2", "Upgradeable": "True/AsExpected/"})
	w.now = w.now.Add(time.Minute)
	must(t, o.Degraded(t.Context(), errors.New("boom")))
	w.want(t, "", map[configv1.ClusterStatusConditionType]string{
		"Progressing": "True/SyncingResources/Progressing towards operator: 2", "Upgradeable": "False/AsExpected/",
		"Degraded": "True/SyncingFailed/Failed when progressing towards operator: 2 because boom",
	})
	w.now = w.now.Add(time.Minute)
	must(t, o.Available(t.Context(), []configv1.ObjectReference{{Resource: "namespaces", Name: "x"}}))
	w.want(t, "2", available)
	if got := w.get(t).Status.RelatedObjects; len(got) != 1 || got[0].Name != "x" {
		t.Errorf("related: %v", got)
	}
	must(t, o.Progressing(t.Context()))
	must(t, o.Degraded(t.Context(), errors.New("boom")))
	w.want(t, "2", map[configv1.ClusterStatusConditionType]string{
		"Available":   available["Available"],
		"Progressing": "True/AsExpected/", "Degraded": "True/SyncingFailed/Failed to resync for operator: 2 because boom", "Upgradeable": "False/AsExpected/",
	})
	for of, want := range map[configv1.ClusterStatusConditionType]int64{"Available": 120, "Progressing": 120, "Degraded": 120, "Upgradeable": 120} {
		if got := w.since(t, of) - start; got != want {
			t.Errorf("%s is so since %d s; want %d", of, got, want)
		}
	}
	// Another message is not a transition, another status is.
	w.now = w.now.Add(time.Minute)
	must(t, o.Degraded(t.Context(), errors.New("bang")))
	if got := w.since(t, "Degraded") - start; got != 120 {
		t.Errorf("degraded since %d s; want 120", got)
	}
	must(t, o.Available(t.Context(), nil))
	if got := w.since(t, "Degraded") - start; got != 180 {
		t.Errorf("not degraded since %d s; want 180", got)
	}
	if got := w.since(t, "Available") - start; got != 120 {
		t.Errorf("available since %d s; want 120", got)
	}
	must(t, w.operator("3").Progressing(t.Context()))
	if got := find(w.get(t).Status.Conditions, "Progressing").Message; got != "Progressing towards operator: 3" {
		t.Error(got)
	}
	var told []string
	for len(w.events.Events) > 0 {
		told = append(told, <-w.events.Events)
	}
	want := []string{
		"Normal Status upgrade Progressing towards operator: 2",
		"Warning Status degraded Failed when progressing towards operator: 2 because boom",
		"Warning Status degraded Failed to resync for operator: 2 because boom",
		"Warning Status degraded Failed to resync for operator: 2 because bang",
		"Normal Status upgrade Progressing towards operator: 3",
	}
	if d := cmp.Diff(want, told); d != "" {
		t.Errorf("events: -want +got:\n%s", d)
	}
}

// cause: a wrong verb showed the memory of the error instead of its text.
func cause(t *testing.T, w *world) {
	must(t, w.operator("2").Degraded(t.Context(), fmt.Errorf("terminal error: %w", errors.New("100%s of it"))))
	if got := find(w.get(t).Status.Conditions, "Degraded").Message; got != "Failed when progressing towards operator: 2 because terminal error: 100%s of it" {
		t.Error(got)
	}
	if got := <-w.events.Events; !strings.HasSuffix(got, "because terminal error: 100%s of it") {
		t.Error(got)
	}
}

// twoWriters: two programs rewrote one status, and undid each other's.
func twoWriters(t *testing.T, w *world) {
	o, sync1, sync2 := w.operator("2"), NewSync(CloudConfig, w.client, w.client), NewSync(TrustedCA, w.client, w.client)
	var all sync.WaitGroup
	errs := make(chan error, 100)
	for i := range 10 {
		fail := errors.New("x")
		for _, f := range []func(context.Context) error{
			func(ctx context.Context) error {
				if i%2 == 0 {
					return o.Degraded(ctx, fail)
				}
				return o.Progressing(ctx)
			},
			func(ctx context.Context) error { return sync1.Degraded(ctx, fail) },
			func(ctx context.Context) error { return sync2.Available(ctx, fmt.Sprint(i)) },
		} {
			all.Go(func() { errs <- f(t.Context()) })
		}
		all.Wait() // each program has one worker
	}
	close(errs)
	for err := range errs {
		if err != nil {
			t.Error(err)
		}
	}
	must(t, o.Available(t.Context(), nil))
	must(t, sync1.Available(t.Context(), ""))
	const config, ca = "/AsExpected/Cloud Config Controller works as expected", "/AsExpected/Trusted CA Bundle Controller works as expected"
	want := map[configv1.ClusterStatusConditionType]string{
		"CloudConfigControllerAvailable": "True" + config, "CloudConfigControllerDegraded": "False" + config, "CloudConfigControllerWarning": "False/AsExpected/",
		"TrustedCABundleControllerControllerAvailable": "True" + ca, "TrustedCABundleControllerControllerDegraded": "False" + ca,
		"TrustedCABundleControllerControllerWarning": "True/InputIncomplete/9",
	}
	for k, v := range available {
		want[k] = v
	}
	w.want(t, "2", want)
}

func noWrite(t *testing.T, w *world) {
	o, s := w.operator("2"), NewSync(CloudConfig, w.client, w.client)
	for what, f := range map[string]func() error{
		"available":        func() error { return o.Available(t.Context(), []configv1.ObjectReference{{Resource: "r", Name: "n"}}) },
		"progressing":      func() error { return o.Progressing(t.Context()) },
		"degraded":         func() error { return o.Degraded(t.Context(), errors.New("x")) },
		"sync available":   func() error { return s.Available(t.Context(), "x") },
		"sync failing":     func() error { return s.Failing(t.Context(), errors.New("x")) },
		"sync is degraded": func() error { return s.Degraded(t.Context(), errors.New("x")) },
	} {
		must(t, f())
		before := w.get(t).ResourceVersion
		w.now = w.now.Add(time.Hour)
		must(t, f())
		if w.get(t).ResourceVersion != before {
			t.Errorf("%s: written again", what)
		}
	}
}

func provisioning(t *testing.T, w *world) {
	s, ca := NewSync(CloudConfig, w.client, w.client), NewSync(TrustedCA, w.client, w.client)
	must(t, s.Available(t.Context(), ""))
	if waiting, err := Provisioning(w.get(t)); err != nil || !strings.HasSuffix(waiting, ": condition TrustedCABundleControllerControllerAvailable is missing") {
		t.Errorf("%q, %v", waiting, err)
	}
	must(t, ca.Available(t.Context(), "something left out is not an obstacle"))
	if waiting, err := Provisioning(w.get(t)); err != nil || waiting != "" {
		t.Errorf("%q, %v", waiting, err)
	}
	must(t, s.Degraded(t.Context(), errors.New("x")))
	must(t, ca.Degraded(t.Context(), errors.New("x")))
	want := "failed to check if provisioning is allowed: " +
		"failed to apply resources because CloudConfigControllerDegraded condition is set to True: Cloud Config Controller failed to sync cloud config; " +
		"failed to apply resources because TrustedCABundleControllerControllerDegraded condition is set to True: Trusted CA Bundle Controller failed to sync cloud config"
	if _, err := Provisioning(w.get(t)); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// takeOver: a cluster that another operator has served before.
func takeOver(t *testing.T, w *world) {
	o, err := w.operator("2").Get(t.Context())
	must(t, err)
	o.Status.Versions = []configv1.OperandVersion{{Name: "operator", Version: "1"}}
	for k, v := range available {
		c := condition(k, strings.HasPrefix(v, "False"), "Old", "old")
		c.LastTransitionTime = metav1.NewTime(w.now)
		o.Status.Conditions = append(o.Status.Conditions, c)
	}
	must(t, w.client.Status().Update(t.Context(), o))
	must(t, w.operator("2").Available(t.Context(), nil))
	w.want(t, "2", available)
	before := w.get(t).ResourceVersion
	must(t, w.operator("2").Available(t.Context(), nil))
	if w.get(t).ResourceVersion != before {
		t.Error("written again")
	}
}
