// SPDX-License-Identifier: Apache-2.0

// Package controllers is what the programs share that are managers of controllers: their
// log, how they find their cluster, and the manager.
package controllers

import (
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/outrigger/outrigger/internal/version"
)

// API says which cluster it is.
type API struct {
	Kubeconfig string `flag:"kubeconfig" env:"KUBECONFIG" usage:"file that says how to reach the cluster from outside of it"`
}

// Find returns how the cluster is reached: by the file or, without one, as a pod, or as
// the user's own file says. Name is who asks.
func (a *API) Find(name string) (*rest.Config, error) {
	find := config.GetConfig
	if a.Kubeconfig != "" {
		find = a.load
	}
	api, err := find()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: run in a pod with a service account, or set -kubeconfig or KUBECONFIG", err)
	}
	if api.QPS == 0 {
		api.QPS = -1 // no limit of the client's own: the API server has priorities and fairness
	}
	api.UserAgent = name + "/" + version.Version
	return api, nil
}

// load reads the file, or the list of files that KUBECONFIG may be.
func (a *API) load() (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: a.Kubeconfig}
	if files := filepath.SplitList(a.Kubeconfig); len(files) > 1 {
		rules = &clientcmd.ClientConfigLoadingRules{Precedence: files}
	}
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}

// NewManager returns a manager whose process ends right after it, and so gives its lease
// back. It is alive while it answers.
func NewManager(api *rest.Config, logger *slog.Logger, o manager.Options) (manager.Manager, error) {
	o.Logger = logr.FromSlogHandler(logger.Handler())
	o.LeaderElectionReleaseOnCancel = true
	mgr, err := manager.New(api, o)
	if err != nil {
		return nil, fmt.Errorf("reach the cluster at %s: %w", api.Host, err)
	}
	return mgr, mgr.AddHealthzCheck("ping", healthz.Ping)
}
