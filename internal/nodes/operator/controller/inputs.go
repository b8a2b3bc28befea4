// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/nodes/operator/settings"
	"github.com/outrigger/outrigger/internal/nodes/operator/tlsprofile"
)

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
	tls atomic.Pointer[tlsprofile.Settings]
}

// read returns what the cluster says, apart from its Infrastructure, and what of
// it had to be left out.
func (r *inputs) read(ctx context.Context, infra *openshift.Infrastructure) (in settings.Cluster, left []string, err error) {
	in = settings.Cluster{Infrastructure: infra, Namespace: r.o.Namespace}
	if in.Images, err = r.readImages(); err != nil {
		return in, nil, unbuilt(err)
	}
	var proxy openshift.Proxy
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
func (r *inputs) readTLS(ctx context.Context) (tlsprofile.Settings, error) {
	a := &openshift.APIServer{}
	if err := r.client.Get(ctx, cluster, a); err != nil {
		if !apierrors.IsNotFound(err) {
			r.log.Warn("the TLS profile cannot be read: Intermediate is used", "error", err)
		}
		a = nil
	}
	profile, err := tlsprofile.FromAPIServer(a)
	return r.o.TLS.Or(profile), err
}

// errNoGates is that there are none yet.
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
