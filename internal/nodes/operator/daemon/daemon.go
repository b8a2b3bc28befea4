// SPDX-License-Identifier: Apache-2.0

// Package daemon has what the programs operator and config-sync share: they find
// the cluster, log, answer probes, and reconcile one singleton request, whatever
// enqueued it.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/internal/version"
)

// Cluster returns how the cluster is reached: as the file says or else, by the
// variable KUBECONFIG or as a pod, as the surroundings do. Name is who asks.
func Cluster(file string, getenv func(string) string, name string) (*rest.Config, error) {
	find := inPod
	if file = cmp.Or(file, getenv("KUBECONFIG")); file != "" {
		find = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", file) }
	}
	api, err := find()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: run in a pod with a service account, or set --kubeconfig or KUBECONFIG", err)
	}
	api.UserAgent = name + "/" + version.Version
	// A bundle is some thirty requests, at once.
	api.QPS, api.Burst = 50, 100
	return api, nil
}

func inPod() (*rest.Config, error) {
	api, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	return api, useNodesAddress(api, addressFile)
}

// Log returns a log, which the libraries write into as well.
func Log(to io.Writer) *slog.Logger {
	l := slog.New(slog.NewTextHandler(to, nil))
	log.SetLogger(logr.FromSlogHandler(l.Handler()))
	klog.SetSlogLogger(l)
	return l
}

// AddChecks adds health checks: live is a process that answers, ready one whose
// caches have synced.
func AddChecks(mgr manager.Manager) error {
	return errors.Join(mgr.AddHealthzCheck("ping", healthz.Ping), mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the cluster's objects have not been read yet")
		}
		return nil
	}))
}
