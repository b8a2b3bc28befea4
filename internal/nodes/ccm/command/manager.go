// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/informers"
	v1core "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/cloud-provider/app"
	ccmconfig "k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/metrics/prometheus/slis"
	genericmanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/pkg/clientbuilder"
	controllerhealthz "k8s.io/controller-manager/pkg/healthz"

	"github.com/outrigger/outrigger/internal/nodes/ccm"
)

// resync is how often unchanged Nodes are reconciled: the queue's own backoff
// for Nodes that could not be initialized grows to 16 minutes, and clouds
// recover earlier.
const resync = 30 * time.Second

// manager serves, elects and runs controllers. It replaces the library's
// app.Run, which never releases its lease.
type manager struct {
	config *ccmconfig.CompletedConfig
	cloud  *ccm.Cloud
	log    *slog.Logger
	health *controllerhealthz.MutableHealthzHandler
	leader *leaderelection.HealthzAdaptor
}

func newManager(s *settings, cloud *ccm.Cloud, logger *slog.Logger) (*manager, error) {
	c, err := s.options.Config(controllerNames(), app.ControllersDisabledByDefault.List(), names.CCMControllerAliases(), nil, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: run in a pod with a service account, or set --kubeconfig", err)
	}
	c.SharedInformers = informers.NewSharedInformerFactoryWithOptions(c.VersionedClient, c.ComponentConfig.Generic.MinResyncPeriod.Duration,
		informers.WithCustomResyncConfig(map[metav1.Object]time.Duration{&corev1.Node{}: resync}))
	m := &manager{config: c.Complete(), cloud: cloud, log: logger}
	cloud.SetEvents(c.EventRecorder)
	return m, nil
}

// run ends with ctx, or when the lease is lost.
func (m *manager) run(ctx context.Context) error {
	c := m.config
	c.EventBroadcaster.StartStructuredLogging(0)
	c.EventBroadcaster.StartRecordingToSink(&v1core.EventSinkImpl{Interface: c.Client.CoreV1().Events("")})
	defer c.EventBroadcaster.Shutdown()
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := m.serve(serving); err != nil {
		return err
	}
	if !c.ComponentConfig.Generic.LeaderElection.LeaderElect {
		return m.controllers(ctx)
	}
	return m.elect(ctx)
}

// serve returns /healthz and /metrics, also of those that do not lead.
func (m *manager) serve(ctx context.Context) error {
	c := m.config
	var checks []healthz.HealthChecker
	if c.ComponentConfig.Generic.LeaderElection.LeaderElect {
		m.leader = leaderelection.NewLeaderHealthzAdaptor(20 * time.Second)
		checks = append(checks, m.leader)
	}
	m.health = controllerhealthz.NewMutableHealthzHandler(checks...)
	if c.SecureServing == nil {
		return nil
	}
	mux := genericmanager.NewBaseHandler(&c.ComponentConfig.Generic.Debugging, m.health)
	slis.SLIMetricsWithReset{}.Install(mux)
	_, _, err := c.SecureServing.Serve(genericmanager.BuildHandlerChain(mux, &c.Authorization, &c.Authentication), 0, ctx.Done())
	return err
}

// elect runs the controllers while this process has the lease, and releases it.
func (m *manager) elect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := m.config.ComponentConfig.Generic.LeaderElection
	lock, err := m.lock()
	if err != nil {
		return err
	}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, Name: o.ResourceName, WatchDog: m.leader, ReleaseOnCancel: true,
		LeaseDuration: o.LeaseDuration.Duration, RenewDeadline: o.RenewDeadline.Duration, RetryPeriod: o.RetryPeriod.Duration,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				if err := m.controllers(ctx); err != nil {
					cancel(err)
				}
			},
			OnStoppedLeading: func() { m.log.Info("no longer the leader") },
		},
	})
	if err != nil {
		return fmt.Errorf("leader election: %w", err)
	}
	elector.Run(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	if ctx.Err() == nil {
		return errors.New("the lease was lost: another process leads, or the API server did not answer for the renew deadline")
	}
	return nil
}

func (m *manager) lock() (resourcelock.Interface, error) {
	o := m.config.ComponentConfig.Generic.LeaderElection
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: m.config.EventRecorder}
	lock, err := resourcelock.NewFromKubeconfig(o.ResourceLock, o.ResourceNamespace, o.ResourceName, identity, m.config.Kubeconfig, o.RenewDeadline.Duration)
	if err != nil {
		return nil, fmt.Errorf("leader election: %w", err)
	}
	return lock, nil
}

func (m *manager) controllers(ctx context.Context) error {
	c := m.config
	// Some controllers' clients are made of it, as the library does.
	shared, err := app.CreateControllerContext(c, clientbuilder.SimpleControllerClientBuilder{ClientConfig: c.Kubeconfig}, ctx.Done())
	if err != nil {
		return err
	}
	m.cloud.SetInformers(c.SharedInformers)
	constructors := m.constructors()
	initializers := app.ConstructControllerInitializers(constructors, c, m.cloud)
	var checks []healthz.HealthChecker
	for _, controller := range slices.Sorted(maps.Keys(initializers)) {
		_, started, err := initializers[controller](ctx, shared)
		if err != nil {
			return fmt.Errorf("start controller %s: %w", controller, err)
		}
		if started {
			m.log.Info("started", "controller", controller)
			checks = append(checks, controllerhealthz.NamedPingChecker(controller))
		}
	}
	m.health.AddHealthChecker(checks...)
	if _, balances := constructors[names.ServiceLBController]; balances {
		if left := m.cloud.Leftovers(m.services, m.log); left != nil {
			defer worker(ctx, left.Run)()
		}
	}
	c.SharedInformers.Start(ctx.Done())
	shared.InformerFactory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

// worker runs until ctx ends; the returned function waits for it.
func worker(ctx context.Context, run func(context.Context)) (wait func()) {
	done := make(chan struct{})
	go func() { defer close(done); run(ctx) }()
	return func() { <-done }
}

// services asks the API server itself: a cache may be behind.
func (m *manager) services(ctx context.Context) ([]corev1.Service, error) {
	list, err := m.config.Client.CoreV1().Services("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// constructors returns those of the controllers that are enabled and have something to
// do.
func (m *manager) constructors() map[string]app.ControllerInitFuncConstructor {
	all := map[string]app.ControllerInitFuncConstructor{}
	_, balances := m.cloud.LoadBalancer()
	for controller, constructor := range app.DefaultInitFuncConstructors {
		switch {
		case !genericmanager.IsControllerEnabled(controller, app.ControllersDisabledByDefault, m.config.ComponentConfig.Generic.Controllers):
			m.log.Info("not asked for", "controller", controller)
		case controller == names.ServiceLBController && !balances:
			m.log.Info("not started: the provider has no load balancers, Services of type LoadBalancer are left to others", "controller", controller)
		case controller == names.NodeRouteController:
			m.log.Info("not started: routes are the network plugin's", "controller", controller)
		default:
			all[controller] = constructor
		}
	}
	return all
}
