// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

var conditionMetric = prometheus.NewDesc("outrigger_ccm_condition",
	"Conditions of CloudControllerManagers and of the ClusterOperator: 1 is True, 0 any other status.",
	[]string{"kind", "name", "condition", "reason"}, nil)

// conditions makes metrics of what is said in conditions, whoever says it: they are
// read again each time that somebody scrapes.
type conditions struct {
	client client.Reader
	apis   apis
	log    *slog.Logger
}

// addMetrics registers the metrics until the manager's context ends. Of several
// operators in one process, as tests have, the first has them.
func addMetrics(mgr manager.Manager, apis apis, log *slog.Logger) error {
	c := &conditions{client: mgr.GetClient(), apis: apis, log: log}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		if metrics.Registry.Register(c) != nil {
			return nil
		}
		<-ctx.Done()
		metrics.Registry.Unregister(c)
		return nil
	}))
}

// Describe implements [prometheus.Collector].
func (c *conditions) Describe(to chan<- *prometheus.Desc) { to <- conditionMetric }

// Collect implements [prometheus.Collector].
func (c *conditions) Collect(to chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	send := func(kind, name, condition, status, reason string) {
		value := 0.0
		if status == "True" {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(conditionMetric, prometheus.GaugeValue, value, kind, name, condition, reason)
	}
	if c.apis.ccm {
		var all ccmv1alpha1.CloudControllerManagerList
		if err := c.client.List(ctx, &all); err != nil {
			c.log.Error("metrics lack the conditions of CloudControllerManagers", "error", err)
		}
		for _, m := range all.Items {
			for _, s := range m.Status.Conditions {
				send("CloudControllerManager", m.Name, s.Type, string(s.Status), s.Reason)
			}
		}
	}
	if c.apis.openShift {
		var o openshift.ClusterOperator
		if err := c.client.Get(ctx, client.ObjectKey{Name: status.Name}, &o); err != nil {
			c.log.Error("metrics lack the conditions of the ClusterOperator", "error", err)
		}
		for _, s := range o.Status.Conditions {
			send("ClusterOperator", status.Name, string(s.Type), string(s.Status), s.Reason)
		}
	}
}
