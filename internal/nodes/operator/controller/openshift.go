// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	ccmv1alpha1 "github.com/outrigger/outrigger/api/ccm/v1alpha1"
	"github.com/outrigger/outrigger/internal/nodes/operator/apply"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/daemon"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/nodes/operator/status"
)

// cluster is the name of OpenShift's objects, and that of all work.
var cluster = daemon.All

// openShift deploys what Infrastructure asks for, and says how that went in the
// ClusterOperator.
type openShift struct {
	*operator
	inputs   *inputs
	deployer *Deployer
	window   *failure.Window
	now      func() time.Time
	log      *slog.Logger
}

// state is the result of a pass that did not fail.
type state struct {
	// settled means that everything is as wanted; otherwise it is rolled out or waits.
	settled bool
	// waits says what it waits for, if it cannot begin yet.
	waits string
	// silent means that others report the status.
	silent bool
	// warnings are what somebody should correct although nothing has failed; reason is
	// the reason of all of them.
	warnings []string
	reason   string
	related  []configv1.ObjectReference
	// again is the time after which to reconcile without an event; 0 means never.
	again time.Duration
}

// Reconcile does the work and reports the result. A failure that only a change of an
// object ends is reported at once and not retried; others are reported when they have
// lasted.
func (r *openShift) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	s, err := r.sync(ctx)
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err):
		again, counts := r.window.Conflict(r.now())
		if !counts {
			return reconcile.Result{RequeueAfter: again}, nil
		}
		return reconcile.Result{RequeueAfter: again}, r.status.Degraded(ctx, err)
	case failure.IsTerminal(err):
		r.log.Error("not tried again until something changes", "error", err)
		return reconcile.Result{}, r.failed(ctx, err, true)
	case err != nil:
		return reconcile.Result{}, errors.Join(err, r.failed(ctx, err, r.window.Observe(r.now())))
	case s.waits != "":
		return r.wait(ctx, s.waits)
	}
	r.window.Clear()
	if s.silent {
		return reconcile.Result{}, nil
	}
	return r.report(ctx, s)
}

// failed names an error at once; whether the operator is degraded is another
// question.
func (r *openShift) failed(ctx context.Context, cause error, counts bool) error {
	err := r.status.Warn(ctx, status.ReasonFailed, cause.Error())
	if counts {
		err = errors.Join(err, r.status.Degraded(ctx, cause))
	}
	return err
}

// wait reports what the operator waits for. At first it reports nothing: the sync
// controllers have just been started too.
func (r *openShift) wait(ctx context.Context, what string) (reconcile.Result, error) {
	again := reconcile.Result{RequeueAfter: r.window.Retry()}
	if r.window.Observe(r.now()) {
		return again, r.failed(ctx, errors.New(what), true)
	}
	r.log.Info(what)
	return again, nil
}

func (r *openShift) report(ctx context.Context, s state) (reconcile.Result, error) {
	if err := r.status.Warn(ctx, cmp.Or(s.reason, status.ReasonIncomplete), strings.Join(s.warnings, "; ")); err != nil {
		return reconcile.Result{}, err
	}
	if s.settled {
		return reconcile.Result{RequeueAfter: s.again}, r.status.Available(ctx, s.related)
	}
	if s.again == 0 || r.o.Requeue < s.again {
		s.again = r.o.Requeue
	}
	return reconcile.Result{RequeueAfter: s.again}, r.status.Progressing(ctx)
}

func (r *openShift) sync(ctx context.Context) (state, error) {
	var infra configv1.Infrastructure
	if err := r.client.Get(ctx, cluster, &infra); apierrors.IsNotFound(err) {
		return state{settled: true, related: r.related(nil)}, nil
	} else if err != nil {
		return state{}, fmt.Errorf("failed to get Infrastructure: %w", err)
	}
	existing, err := r.status.Get(ctx)
	if err != nil {
		return state{}, err
	}
	if waiting, err := status.Provisioning(existing); err != nil || waiting != "" {
		return state{waits: waiting}, err
	}
	objects, left, err := r.objects(ctx, &infra)
	if err != nil {
		return state{}, err
	}
	s, err := r.deploy(ctx, objects)
	s.warnings = append(s.warnings, left...)
	if err == nil && len(objects) == 0 {
		var instead []ccmv1alpha1.CloudControllerManager
		instead, err = r.managers(ctx) // they decide what to deploy, and report the status
		s.silent = slices.ContainsFunc(instead, func(c ccmv1alpha1.CloudControllerManager) bool { return c.DeletionTimestamp == nil })
		s.reason, s.warnings = unserved(infra.Status.PlatformStatus, r.o.Bundles)
	}
	return s, err
}

// unserved warns that Nodes wait and nobody comes. It is not a failure:
// installers wait until the operator is available, and so may whoever deploys
// the manager.
func unserved(p *configv1.PlatformStatus, known bundle.Set) (reason string, warnings []string) {
	if !openshift.AwaitsManager(p) {
		return "", nil
	}
	why := "none of the operator's bundles is for it; deploy the platform's own, or give the operator one with --bundle-dir or a CloudControllerManager"
	if b := known.Find(string(p.Type), "", bundle.OpenShift); b != nil {
		why = fmt.Sprintf("images.json lacks what bundle %s needs: %s", b.Name, strings.Join(b.ImageKeys(), ", "))
	}
	return status.ReasonNoManager, []string{fmt.Sprintf("no cloud controller manager is deployed, and Nodes of platform %s wait for one: %s", p.Type, why)}
}

// objects returns the objects of the platform and what was left out of them. There are
// none if the platform has no cloud controller manager; then it reads nothing.
func (r *openShift) objects(ctx context.Context, infra *configv1.Infrastructure) ([]client.Object, []string, error) {
	platform, err := settings.PlatformOf(infra)
	if err != nil {
		return nil, nil, unbuilt(err)
	}
	b := r.o.Bundles.Find(platform.Type, platform.CloudName, bundle.OpenShift)
	if b == nil {
		r.deployer.Reads = nil
		r.inputs.noteTLS(ctx)
		return nil, nil, nil
	}
	in, left, err := r.inputs.read(ctx, infra)
	if err != nil {
		return nil, nil, err
	}
	values, _, err := in.Values()
	if err != nil {
		return nil, nil, unbuilt(err)
	}
	objects, err := b.Resources(values)
	if b.Optional && errors.Is(err, bundle.ErrMissedImages) {
		r.deployer.Reads = nil
		return nil, nil, nil
	}
	r.deployer.Reads = b.Secrets
	return objects, left, unbuilt(err)
}

// unbuilt returns the error that explains why there are no objects. It is terminal:
// only a change ends it.
func unbuilt(err error) error {
	if err == nil {
		return nil
	}
	return failure.Terminal(fmt.Errorf("failed to build operator config: %w", err))
}

func (r *openShift) deploy(ctx context.Context, objects []client.Object) (state, error) {
	out, err := r.deployer.Deploy(ctx, objects)
	r.notes.absent.Store(inventoryName, out.Missing)
	if err != nil {
		return state{}, err
	}
	s := state{settled: out.Settled(), related: r.related(out.Objects), warnings: out.Warnings(), again: out.Again}
	for _, w := range out.Waits {
		r.log.Info("on its way", "what", w)
	}
	return s, nil
}

// related returns the objects that belong to the operator, for must-gather.
func (r *openShift) related(applied []apply.Ref) []configv1.ObjectReference {
	all := []configv1.ObjectReference{
		{Resource: "namespaces", Name: r.o.OperatorNamespace},
		{Group: configv1.GroupVersion.Group, Resource: "clusteroperators", Name: status.Name},
		{Resource: "namespaces", Name: r.o.Namespace},
	}
	for _, a := range applied {
		all = append(all, configv1.ObjectReference{Group: a.Group, Resource: a.Resource(), Namespace: a.Namespace, Name: a.Name})
	}
	return all
}

// inputs reads the settings in the objects of an OpenShift cluster.
type inputs struct {
	// client reads what is watched, live anything else.
	client client.Client
	live   client.Reader
	o      *Options
	now    func() time.Time
	log    *slog.Logger

	waiting time.Time
	// known are the feature gates that were read last.
	known openshift.Gates
	// tls is what was read last, for servers of our own.
	tls atomic.Pointer[settings.TLS]
}

// read returns what the cluster says, apart from its Infrastructure, and what of
// it had to be left out.
func (r *inputs) read(ctx context.Context, infra *configv1.Infrastructure) (in settings.Cluster, left []string, err error) {
	in = settings.Cluster{Infrastructure: infra, Namespace: r.o.Namespace}
	if in.Images, err = r.readImages(); err != nil {
		return in, nil, unbuilt(err)
	}
	var proxy configv1.Proxy
	if err := r.client.Get(ctx, cluster, &proxy); err == nil {
		in.Proxy = &proxy
	} else if !apierrors.IsNotFound(err) {
		return in, nil, fmt.Errorf("failed to get Proxy: %w", err)
	}
	if in.TLS, err = r.readTLS(ctx); err != nil {
		return in, nil, unbuilt(err)
	}
	r.tls.Store(&in.TLS)
	in.Gates, left, err = r.readGates(ctx)
	return in, left, err
}

func (r *inputs) readImages() (bundle.Images, error) {
	text, err := os.ReadFile(r.o.ImagesFile)
	if err != nil {
		return nil, fmt.Errorf("unable to read --images-json: %w", err)
	}
	images, err := bundle.ParseImages(text)
	if err != nil {
		return nil, fmt.Errorf("unable to decode images content from --images-json %s: %w", r.o.ImagesFile, err)
	}
	return images, nil
}

// noteTLS reads the settings for servers of our own alone.
func (r *inputs) noteTLS(ctx context.Context) {
	s, err := r.readTLS(ctx)
	if err != nil {
		r.log.Error("servers keep to the TLS settings that they had", "error", err)
		return
	}
	r.tls.Store(&s)
}

// readTLS keeps to the default profile while the cluster's cannot be read.
func (r *inputs) readTLS(ctx context.Context) (settings.TLS, error) {
	a := &configv1.APIServer{}
	if err := r.client.Get(ctx, cluster, a); err != nil {
		if !apierrors.IsNotFound(err) {
			r.log.Warn("the TLS profile cannot be read: Intermediate is used", "error", err)
		}
		a = nil
	}
	profile, err := settings.TLSFromAPIServer(a)
	return r.o.TLS.Or(profile), err
}

var errNoGates = errors.New("the cluster's feature gates are not there yet")

// readGates waits a while for a new release's feature gates, and then goes on
// without: managers keep their own defaults. Those that were read once stay until
// there are others: nothing is rolled out because they cannot be read.
func (r *inputs) readGates(ctx context.Context) (gates openshift.Gates, left []string, err error) {
	gates, err = openshift.ReadGates(ctx, r.client, r.live, r.o.Release)
	if err == nil {
		r.waiting, r.known = time.Time{}, gates
		return gates, nil, nil
	}
	if r.known != nil {
		return r.known, []string{fmt.Sprintf("the cluster's feature gates are those that were read before: %v", err)}, nil
	}
	if r.waiting.IsZero() {
		r.waiting = r.now()
	}
	if r.now().Sub(r.waiting) < r.o.GatesAfter {
		return nil, nil, fmt.Errorf("%w: %w", errNoGates, err)
	}
	return nil, []string{fmt.Sprintf("deployed without the cluster's feature gates: %v", err)}, nil
}
