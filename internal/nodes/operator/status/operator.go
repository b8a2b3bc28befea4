// SPDX-License-Identifier: Apache-2.0

package status

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/controllers"
)

// Reasons of conditions.
const (
	ReasonAsExpected = "AsExpected"
	ReasonSyncing    = "SyncingResources"
	ReasonFailed     = "SyncingFailed"
	// ReasonIncomplete is why a controller warns that works: it left out what it could
	// not use.
	ReasonIncomplete = "InputIncomplete"
	// ReasonNoManager is why the operator warns though it has nothing to deploy: Nodes
	// wait for what is not there.
	ReasonNoManager = "NoCloudControllerManager"
)

// Reasons of events.
const (
	eventUpgrade  = "Status upgrade"
	eventDegraded = "Status degraded"
)

// OwnerCondition is what installers once said with who cares for nodes. It is
// removed when that is settled.
const OwnerCondition configv1.ClusterStatusConditionType = "CloudControllerOwner"

// warning is the condition that names what somebody has to see to: the others
// report a failure only when it has lasted.
const warning configv1.ClusterStatusConditionType = "CloudControllerManagerWarning"

// versionName is what the operator's version is called among the versions.
const versionName = "operator"

// Operator writes the conditions that every operator has, and the version.
type Operator struct {
	writer  Writer
	events  *controllers.Recorder
	version string
}

// NewOperator returns the writer of a release's operator. Events may be nil.
func NewOperator(c client.Client, reader client.Reader, version string, recorder *controllers.Recorder) *Operator {
	return &Operator{
		writer: Writer{
			Client: c, Reader: reader, Owner: "ccm-operator", Now: time.Now, OwnsVersions: true,
			Owns: []configv1.ClusterStatusConditionType{configv1.OperatorAvailable, configv1.OperatorProgressing, configv1.OperatorDegraded, configv1.OperatorUpgradeable, warning},
		},
		events: recorder, version: version,
	}
}

// Get returns the ClusterOperator, which it makes when there is none.
func (o *Operator) Get(ctx context.Context) (*configv1.ClusterOperator, error) {
	return o.writer.Get(ctx)
}

func (o *Operator) versions() []configv1.OperandVersion {
	return []configv1.OperandVersion{{Name: versionName, Version: o.version}}
}

// text returns the versions for messages.
func (o *Operator) text() string { return versionName + ": " + o.version }

// Available says that all is done. Related are the objects that belong to the
// operator.
func (o *Operator) Available(ctx context.Context, related []configv1.ObjectReference) error {
	is, err := o.Get(ctx)
	if err != nil {
		return err
	}
	err = o.writer.Apply(ctx, is, Change{
		Conditions: []configv1.ClusterOperatorStatusCondition{
			condition(configv1.OperatorAvailable, true, ReasonAsExpected, "Cluster Cloud Controller Manager Operator is available at "+o.version),
			condition(configv1.OperatorProgressing, false, ReasonAsExpected, ""),
			condition(configv1.OperatorDegraded, false, ReasonAsExpected, ""),
			condition(configv1.OperatorUpgradeable, true, ReasonAsExpected, ""),
		},
		Versions: o.versions(),
		Related:  related,
	})
	if err != nil || find(is.Status.Conditions, OwnerCondition) == nil {
		return err
	}
	if is, err = o.Get(ctx); err != nil {
		return err
	}
	return o.writer.Drop(ctx, is, OwnerCondition)
}

// Progressing says that something is on its way. Whether the operator is
// available or degraded stays as it was.
func (o *Operator) Progressing(ctx context.Context) error {
	return o.writer.Change(ctx, func(is *configv1.ClusterOperator) []configv1.ClusterOperatorStatusCondition {
		reason, message := ReasonAsExpected, ""
		if !slices.Equal(is.Status.Versions, o.versions()) {
			reason, message = ReasonSyncing, "Progressing towards "+o.text()
			if old := find(is.Status.Conditions, configv1.OperatorProgressing); old == nil || old.Message != message {
				o.event(is, corev1.EventTypeNormal, eventUpgrade, message)
			}
		}
		return []configv1.ClusterOperatorStatusCondition{
			condition(configv1.OperatorProgressing, true, reason, message),
			condition(configv1.OperatorUpgradeable, true, ReasonAsExpected, ""),
		}
	})
}

// Degraded returns what goes wrong. Whether the operator is available or
// progressing stays as it was.
func (o *Operator) Degraded(ctx context.Context, cause error) error {
	return o.writer.Change(ctx, func(is *configv1.ClusterOperator) []configv1.ClusterOperatorStatusCondition {
		message := fmt.Sprintf("Failed to resync for %s because %v", o.text(), cause)
		if !slices.Equal(is.Status.Versions, o.versions()) {
			message = fmt.Sprintf("Failed when progressing towards %s because %v", o.text(), cause)
		}
		if old := find(is.Status.Conditions, configv1.OperatorDegraded); old == nil || old.Message != message {
			o.event(is, corev1.EventTypeWarning, eventDegraded, message)
		}
		return []configv1.ClusterOperatorStatusCondition{
			condition(configv1.OperatorDegraded, true, ReasonFailed, message),
			condition(configv1.OperatorUpgradeable, false, ReasonAsExpected, ""),
		}
	})
}

// Warn names what is wrong and has not lasted yet, or has not failed. An empty
// message is that nothing is.
func (o *Operator) Warn(ctx context.Context, reason, message string) error {
	return o.writer.Change(ctx, func(is *configv1.ClusterOperator) []configv1.ClusterOperatorStatusCondition {
		if message != "" {
			return []configv1.ClusterOperatorStatusCondition{condition(warning, true, reason, message)}
		}
		if find(is.Status.Conditions, warning) == nil {
			return nil
		}
		return []configv1.ClusterOperatorStatusCondition{condition(warning, false, ReasonAsExpected, "")}
	})
}

func (o *Operator) event(about *configv1.ClusterOperator, kind, reason, message string) {
	o.events.Emit(about, nil, kind, reason, "Sync", message)
}

// Provisioning reports whether what the operator needs is in place: all of its
// sync controllers say so. The error is that one of them is degraded; waiting
// says, where nothing is wrong yet, what has not been said.
func Provisioning(o *configv1.ClusterOperator) (waiting string, err error) {
	var failed, missing []string
	for _, s := range []Sync{CloudConfig, TrustedCA} {
		if c := find(o.Status.Conditions, s.condition("Degraded")); c != nil && c.Status == configv1.ConditionTrue {
			failed = append(failed, fmt.Sprintf("failed to apply resources because %s condition is set to True: %s", c.Type, c.Message))
		}
		if c := find(o.Status.Conditions, s.condition("Available")); c == nil {
			missing = append(missing, fmt.Sprintf("condition %s is missing", s.condition("Available")))
		} else if c.Status != configv1.ConditionTrue {
			missing = append(missing, fmt.Sprintf("condition %s is %s: %s", s.condition("Available"), c.Status, c.Message))
		}
	}
	slices.Sort(failed)
	if len(failed) > 0 {
		return "", fmt.Errorf("failed to check if provisioning is allowed: %s", strings.Join(failed, "; "))
	}
	if len(missing) > 0 {
		return "waiting for ccm-operator config-sync (is it running, and may it write the status of ClusterOperators?): " + strings.Join(missing, "; "), nil
	}
	return "", nil
}

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

// condition returns the name of a condition: Available, Degraded, or Warning, which names
// the cause, since the messages of the other two are fixed.
func (s Sync) condition(name string) configv1.ClusterStatusConditionType {
	return configv1.ClusterStatusConditionType(s.prefix + name)
}

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
		Owns: []configv1.ClusterStatusConditionType{s.condition("Available"), s.condition("Degraded"), s.condition("Warning")},
	}}
}

// Said reports whether a ClusterOperator has what the controller says.
func (w *SyncWriter) Said(o *configv1.ClusterOperator) bool {
	return find(o.Status.Conditions, w.sync.condition("Available")) != nil && find(o.Status.Conditions, w.sync.condition("Degraded")) != nil
}

// Available says that the controller works. Left, if not empty, is what it had
// to leave out.
func (w *SyncWriter) Available(ctx context.Context, left string) error {
	message := w.sync.title + " works as expected"
	warning := condition(w.sync.condition("Warning"), false, ReasonAsExpected, "")
	if left != "" {
		warning = condition(w.sync.condition("Warning"), true, ReasonIncomplete, left)
	}
	return w.apply(ctx,
		condition(w.sync.condition("Available"), true, ReasonAsExpected, message),
		condition(w.sync.condition("Degraded"), false, ReasonAsExpected, message),
		warning)
}

// Failing names the cause of a failure that has not lasted yet.
func (w *SyncWriter) Failing(ctx context.Context, cause error) error {
	return w.apply(ctx, condition(w.sync.condition("Warning"), true, ReasonFailed, cause.Error()))
}

// Degraded says that the controller fails.
func (w *SyncWriter) Degraded(ctx context.Context, cause error) error {
	message := w.sync.title + " failed to sync cloud config"
	return w.apply(ctx,
		condition(w.sync.condition("Available"), false, ReasonFailed, message),
		condition(w.sync.condition("Degraded"), true, ReasonFailed, message),
		condition(w.sync.condition("Warning"), true, ReasonFailed, cause.Error()))
}

func (w *SyncWriter) apply(ctx context.Context, conditions ...configv1.ClusterOperatorStatusCondition) error {
	return w.writer.Change(ctx, func(*configv1.ClusterOperator) []configv1.ClusterOperatorStatusCondition { return conditions })
}
