// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// mirror says in the ClusterOperator, where there is one, how a
// CloudControllerManager is.
type mirror struct{ status *status.Operator }

func (m mirror) report(ctx context.Context, c *ccmv1alpha1.CloudControllerManager, failed bool) error {
	if m.status == nil {
		return nil
	}
	all := c.Status.Conditions
	if err := m.warn(ctx, apimeta.FindStatusCondition(all, ccmv1alpha1.WarningCondition)); err != nil {
		return err
	}
	switch d := apimeta.FindStatusCondition(all, ccmv1alpha1.DegradedCondition); {
	case failed && d != nil:
		return m.status.Degraded(ctx, errors.New(d.Message))
	case apimeta.IsStatusConditionTrue(all, ccmv1alpha1.ProgressingCondition):
		return m.status.Progressing(ctx)
	case apimeta.IsStatusConditionTrue(all, ccmv1alpha1.AvailableCondition):
		return m.status.Available(ctx, nil)
	}
	return nil
}

// warn takes away what the ClusterOperator warned of before, too.
func (m mirror) warn(ctx context.Context, w *metav1.Condition) error {
	if w == nil || w.Status != metav1.ConditionTrue {
		return m.status.Warn(ctx, "", "")
	}
	return m.status.Warn(ctx, w.Reason, w.Message)
}
