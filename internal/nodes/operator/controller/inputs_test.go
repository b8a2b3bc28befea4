// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// gated is a cluster with the gates of a release, which may not be readable.
func gated(t *testing.T, unreadable *error) (*inputs, client.Client, *time.Time) {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := configv1.Install(scheme); err != nil {
		t.Fatal(err)
	}
	c := fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if *unreadable != nil {
				return *unreadable
			}
			return c.Get(ctx, key, o, opts...)
		},
	}).Build()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return &inputs{
		client: c, live: c, o: &Options{Release: "4.99.0", GatesAfter: time.Minute}, now: func() time.Time { return now }, log: slog.New(slog.DiscardHandler),
	}, c, &now
}

func gatesOf(version string, on ...configv1.FeatureGateName) *configv1.FeatureGate {
	d := configv1.FeatureGateDetails{Version: version, Disabled: []configv1.FeatureGateAttributes{{Name: "Off"}}}
	for _, name := range on {
		d.Enabled = append(d.Enabled, configv1.FeatureGateAttributes{Name: name})
	}
	return &configv1.FeatureGate{
		ObjectMeta: metav1.ObjectMeta{Name: openshift.ClusterName}, Status: configv1.FeatureGateStatus{FeatureGates: []configv1.FeatureGateDetails{d}},
	}
}

// TestRegressionGatesAreWaitedFor: those that cannot be read are waited for, for a
// minute in which nothing is deployed; then it goes on without, and says so. Those
// that were read once stay. One that the cluster does not know is off.
func TestRegressionGatesAreWaitedFor(t *testing.T) {
	var unreadable error
	in, c, now := gated(t, &unreadable)
	for i, step := range []struct {
		after      time.Duration
		unreadable error
		add        client.Object
		want       string // an error, or what is left out
	}{
		{0, nil, nil, "error: not found"},
		{59 * time.Second, errors.New("boom"), nil, "error: boom"},
		{time.Second, errors.New("boom"), nil, "left: boom"},
		{time.Hour, nil, nil, "left: not found"},
		{0, nil, gatesOf("4.99.0", "On"), ""},
		{time.Hour, errors.New("boom"), nil, "kept: boom"},
		{time.Hour, errors.New("boom"), nil, "kept: boom"},
		{0, nil, nil, ""},
	} {
		*now, unreadable = now.Add(step.after), step.unreadable
		if step.add != nil {
			if err := c.Create(t.Context(), step.add); err != nil {
				t.Fatal(err)
			}
		}
		gates, left, err := in.readGates(t.Context())
		kind, says, _ := strings.Cut(step.want, ": ")
		switch {
		case kind == "error" && (!errors.Is(err, errNoGates) || !strings.Contains(err.Error(), says)),
			kind == "left" && (err != nil || len(gates) > 0 || len(left) != 1 || !strings.Contains(left[0], says)),
			kind == "kept" && (err != nil || !gates["On"] || len(left) != 1 || !strings.Contains(left[0], says)),
			kind == "" && (err != nil || len(left) > 0 || !gates["On"] || gates["Off"] || gates["Unknown"]):
			t.Errorf("step %d: %v, left %q, error %v; want %q", i, gates, left, err, step.want)
		}
	}
}

// TestGatesOfASnapshot: what was built apart from a release obeys the gates of the
// one that the cluster is to run.
func TestGatesOfASnapshot(t *testing.T) {
	var unreadable error
	in, c, _ := gated(t, &unreadable)
	v := &configv1.ClusterVersion{ObjectMeta: metav1.ObjectMeta{Name: openshift.ClusterVersionName}}
	v.Status.Desired.Version = "4.98.0"
	for _, o := range []client.Object{gatesOf("4.98.0", "On"), v} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for release, want := range map[string]bool{openshift.SnapshotVersion: true, openshift.UnknownVersion: true, "4.98.0": true, "4.99.0": false} {
		in.o.Release, in.waiting, in.known = release, time.Time{}, nil
		if gates, _, err := in.readGates(t.Context()); gates["On"] != want || (err == nil) != want {
			t.Errorf("%s: %v, error %v", release, gates, err)
		}
	}
}
