// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/machines/docker"
	"github.com/outrigger/outrigger/internal/machines/outrigger"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider"
)

// family is a pair of kinds with their backend.
type family struct {
	clustersAtOnce, machinesAtOnce int
	newClusters                    func() client.ObjectList
	clusters                       reconciler.ClusterReconciler
	machines                       reconciler.MachineReconciler
	newTemplate                    func() reconciler.InfraTemplate
	// clusterEnqueuer and enqueuer, if any, are those of the backend.
	clusterEnqueuer, enqueuer *reconciler.Enqueuer
}

// addKinds adds the controllers of all kinds to the manager. Call close, which
// ends their backends, after the manager has stopped.
func addKinds(ctx context.Context, mgr manager.Manager, s *settings, logger *slog.Logger) (closeAll func() error, err error) {
	var closers []func() error
	closeAll = func() error {
		var errs []error
		for _, f := range closers {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	engine, err := docker.New(s.Config, logger)
	if err != nil {
		return closeAll, program.UsageError(err)
	}
	engine.Templates = templatesOf(mgr.GetAPIReader())
	closers = append(closers, engine.Close)
	containers := dockerKinds(s, engine)
	watch := func(ctx context.Context) error { return engine.Watch(ctx, s.Namespace) }
	if err := errors.Join(containers.add(mgr, s), addDockerPools(mgr, s), containers.addCollector(mgr, s, engine), mgr.Add(manager.RunnableFunc(watch))); err != nil {
		return closeAll, err
	}
	if s.Provider == "" && len(s.More) == 0 {
		logger.Warn("Outrigger kinds cannot be provisioned: --provider (CLOUD_PROVIDER) is not set")
	}
	o := opener{settings: s, getenv: os.Getenv, secrets: mgr.GetAPIReader(), logger: logger}
	enqueuer := &reconciler.Enqueuer{}
	clouds, closeClouds, err := o.openAll(ctx, outrigger.Options{Enqueuer: enqueuer, Observe: newMeters(metrics.Registry).observe})
	closers = append(closers, closeClouds)
	if err != nil {
		return closeAll, err
	}
	kinds := outriggerKinds(s, clouds, enqueuer)
	return closeAll, errors.Join(kinds.add(mgr, s), kinds.addCollector(mgr, s, clouds))
}

// templatesOf reads ConfigMaps by their names: the manager neither lists nor caches them.
func templatesOf(live client.Reader) docker.TemplateReader {
	return func(ctx context.Context, namespace, name string) (string, error) {
		var m corev1.ConfigMap
		err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &m)
		switch {
		case apierrors.IsNotFound(err):
			return "", fmt.Errorf("%w: there is none", provider.ErrNotFound)
		case apierrors.IsForbidden(err):
			return "", fmt.Errorf("%w: %w", provider.ErrPermissionDenied, err)
		case err != nil:
			return "", fmt.Errorf("%w: %w", provider.ErrUnavailable, err)
		case m.Data["value"] == "":
			return "", fmt.Errorf("%w: it has nothing under the key value", provider.ErrInvalidArgument)
		}
		return m.Data["value"], nil
	}
}

func (s *settings) base(mgr manager.Manager) reconciler.Base {
	return reconciler.Base{Client: mgr.GetClient(), Events: controllers.NewRecorder(mgr.GetEventRecorder("capi-manager"), nil), Filter: s.WatchFilter}
}

func dockerKinds(s *settings, b *docker.Backend) *family {
	f := &family{
		clustersAtOnce: s.DockerClusters, machinesAtOnce: s.DockerMachines,
		newClusters: func() client.ObjectList { return &infrav1.DockerClusterList{} },
		newTemplate: func() reconciler.InfraTemplate { return &infrav1.DockerMachineTemplate{} },
	}
	f.clusterEnqueuer, f.enqueuer = b.Enqueuers()
	f.clusters = reconciler.ClusterReconciler{
		Backend: b, Finalizer: infrav1.DockerClusterFinalizer,
		New:         func() reconciler.InfraCluster { return &infrav1.DockerCluster{} },
		NewMachines: func() client.ObjectList { return &infrav1.DockerMachineList{} },
	}
	f.machines = reconciler.MachineReconciler{
		Backend: b, Finalizer: infrav1.DockerMachineFinalizer,
		New:         func() reconciler.InfraMachine { return &infrav1.DockerMachine{} },
		NewCluster:  func() reconciler.InfraCluster { return &infrav1.DockerCluster{} },
		ClusterKind: infrav1.GroupVersion.WithKind("DockerCluster").GroupKind(),
	}
	return f
}

func addDockerPools(mgr manager.Manager, s *settings) error {
	if !s.Gates["MachinePool"] {
		return nil
	}
	r := &reconciler.PoolReconciler{
		Base:        s.base(mgr),
		Finalizer:   infrav1.DockerMachinePoolFinalizer,
		Live:        mgr.GetAPIReader(),
		MachineKind: infrav1.GroupVersion.WithKind("DockerMachine"),
		New:         func() reconciler.InfraPool { return &infrav1.DockerMachinePool{} },
		NewMachine: func(pool reconciler.InfraPool) reconciler.InfraMachine {
			template := pool.(*infrav1.DockerMachinePool).Spec.Template.DeepCopy()
			return &infrav1.DockerMachine{Spec: infrav1.DockerMachineSpec{DockerNodeSpec: *template}}
		},
		NewMachines: func() client.ObjectList { return &infrav1.DockerMachineList{} },
	}
	return r.Setup(mgr, &infrav1.DockerMachinePoolList{}, &infrav1.DockerMachine{}, reconciler.Watching{Concurrency: s.DockerMachinePools})
}

func outriggerKinds(s *settings, clouds *outrigger.Clouds, enqueuer *reconciler.Enqueuer) *family {
	f := &family{
		clustersAtOnce: s.OutriggerClusters, machinesAtOnce: s.OutriggerMachines, enqueuer: enqueuer,
		newClusters: func() client.ObjectList { return &infrav1.OutriggerClusterList{} },
		newTemplate: func() reconciler.InfraTemplate { return &infrav1.OutriggerMachineTemplate{} },
	}
	f.clusters = reconciler.ClusterReconciler{
		Backend: clouds, Finalizer: infrav1.OutriggerClusterFinalizer,
		New:         func() reconciler.InfraCluster { return &infrav1.OutriggerCluster{} },
		NewMachines: func() client.ObjectList { return &infrav1.OutriggerMachineList{} },
	}
	f.machines = reconciler.MachineReconciler{
		Backend: clouds, Finalizer: infrav1.OutriggerMachineFinalizer,
		New:         func() reconciler.InfraMachine { return &infrav1.OutriggerMachine{} },
		NewCluster:  func() reconciler.InfraCluster { return &infrav1.OutriggerCluster{} },
		ClusterKind: infrav1.GroupVersion.WithKind("OutriggerCluster").GroupKind(),
	}
	return f
}

func (f *family) add(mgr manager.Manager, s *settings) error {
	f.clusters.Base, f.machines.Base = s.base(mgr), s.base(mgr)
	f.clusters.Live, f.machines.Live = mgr.GetAPIReader(), mgr.GetAPIReader()
	f.clusters.NewList, f.machines.NewList = f.newClusters, f.clusters.NewMachines
	if err := f.clusters.Setup(mgr, f.machines.New(), reconciler.Watching{Concurrency: f.clustersAtOnce, Enqueuer: f.clusterEnqueuer}); err != nil {
		return err
	}
	if sizer, ok := f.machines.Backend.(reconciler.Sizer); ok {
		r := &reconciler.TemplateReconciler{Base: s.base(mgr), New: f.newTemplate, Sizer: sizer, NewCluster: f.machines.NewCluster, ClusterKind: f.machines.ClusterKind}
		if err := r.Setup(mgr, reconciler.Watching{Concurrency: 1}); err != nil {
			return err
		}
	}
	return f.machines.Setup(mgr, f.clusters.NewMachines(), reconciler.Watching{Concurrency: f.machinesAtOnce, Enqueuer: f.enqueuer})
}

func (f *family) addCollector(mgr manager.Manager, s *settings, inventory reconciler.Inventory) error {
	if s.Collect == 0 {
		return nil
	}
	return mgr.Add(&reconciler.Collector{
		Base:      s.base(mgr),
		Reader:    mgr.GetAPIReader(),
		Inventory: inventory, Namespace: s.Namespace, Every: s.Collect, Grace: s.Grace,
		NewClusters: f.newClusters, NewMachines: f.clusters.NewMachines,
	})
}
