// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// Sync is a controller that prepares what the operator needs.
type Sync struct {
	// prefix is that of its conditions, title what it is called in them.
	prefix, title string
}

// The sync controllers. The names of their conditions are what dashboards and
// alerts of OpenShift know.
var (
	CloudConfig = Sync{"CloudConfigController", "Cloud Config Controller"}
	TrustedCA   = Sync{"TrustedCABundleControllerController", "Trusted CA Bundle Controller"}
)

func (s Sync) available() openshift.ConditionType {
	return openshift.ConditionType(s.prefix + "Available")
}

func (s Sync) degraded() openshift.ConditionType {
	return openshift.ConditionType(s.prefix + "Degraded")
}

// warning returns the condition that names the cause: the messages of the other two
// are fixed.
func (s Sync) warning() openshift.ConditionType {
	return openshift.ConditionType(s.prefix + "Warning")
}

// ReasonIncomplete is why a controller warns that works: it left out what it
// could not use.
const ReasonIncomplete = "InputIncomplete"

// ReasonNoManager is why the operator warns though it has nothing to deploy: Nodes
// wait for what is not there.
const ReasonNoManager = "NoCloudControllerManager"

// SyncWriter writes the conditions of a sync controller. It never writes the
// version: nothing is deployed yet when the configuration is in place.
type SyncWriter struct {
	sync   Sync
	writer Writer
}

// NewSync returns the writer of a sync controller.
func NewSync(s Sync, c client.Client, reader client.Reader) *SyncWriter {
	return &SyncWriter{s, Writer{
		Client: c, Reader: reader, Owner: "ccm-config-sync-" + s.prefix, Now: time.Now,
		Owns: []openshift.ConditionType{s.available(), s.degraded(), s.warning()},
	}}
}

// Said reports whether a ClusterOperator has what the controller says.
func (w *SyncWriter) Said(o *openshift.ClusterOperator) bool {
	return find(o.Status.Conditions, w.sync.available()) != nil && find(o.Status.Conditions, w.sync.degraded()) != nil
}

// Available says that the controller works. Left, if not empty, is what it had
// to leave out.
func (w *SyncWriter) Available(ctx context.Context, left string) error {
	message := w.sync.title + " works as expected"
	warning := condition(w.sync.warning(), false, ReasonAsExpected, "")
	if left != "" {
		warning = condition(w.sync.warning(), true, ReasonIncomplete, left)
	}
	return w.apply(ctx,
		condition(w.sync.available(), true, ReasonAsExpected, message),
		condition(w.sync.degraded(), false, ReasonAsExpected, message),
		warning)
}

// Failing names the cause of a failure that has not lasted yet.
func (w *SyncWriter) Failing(ctx context.Context, cause error) error {
	return w.apply(ctx, condition(w.sync.warning(), true, ReasonFailed, cause.Error()))
}

// Degraded says that the controller fails.
func (w *SyncWriter) Degraded(ctx context.Context, cause error) error {
	message := w.sync.title + " failed to sync cloud config"
	return w.apply(ctx,
		condition(w.sync.available(), false, ReasonFailed, message),
		condition(w.sync.degraded(), true, ReasonFailed, message),
		condition(w.sync.warning(), true, ReasonFailed, cause.Error()))
}

func (w *SyncWriter) apply(ctx context.Context, conditions ...openshift.ClusterOperatorCondition) error {
	return w.writer.Apply(ctx, Change{Conditions: conditions})
}
