// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/machines/conformance"
)

func (a *app) open(ctx context.Context) (s conformance.Subject, err error) {
	data, err := os.ReadFile(a.file)
	if err != nil {
		return s, fmt.Errorf("--file: %w", err)
	}
	s.Limits, s.CoreRuns, s.WatchFilter = a.limits, a.core == "running", a.watchFilter
	if s.Objects, err = conformance.ParseObjects(data); err != nil {
		return s, fmt.Errorf("--file %s: %w", a.file, err)
	}
	if a.release != "" {
		if _, err := os.ReadDir(a.release); err != nil {
			return s, fmt.Errorf("--release: %w", err)
		}
		s.Release = os.DirFS(a.release)
	}
	if s.Client, err = a.connect(ctx); err != nil {
		return s, err
	}
	if a.inventoryCommand != "" {
		s.Inventory = func(ctx context.Context) ([]string, error) {
			out, err := a.shell(ctx, "--inventory-command", a.inventoryCommand)
			return strings.Fields(out), err
		}
	}
	if a.restartBy != "" {
		s.Restart = func(ctx context.Context) error {
			_, err := a.shell(ctx, "--restart-command", a.restartBy)
			return err
		}
	}
	return s, nil
}

func (a *app) connect(ctx context.Context) (client.WithWatch, error) {
	config, err := a.config()
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 100, 200
	scheme, err := conformance.Scheme()
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("API server %s: %w", config.Host, err)
	}
	if err := c.List(ctx, &clusterv1.ClusterList{}, client.Limit(1)); err != nil {
		return nil, fmt.Errorf("API server %s does not list Clusters of %s: install Cluster API's core definitions: %w", config.Host, clusterv1.GroupVersion, err)
	}
	return c, nil
}

func (a *app) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}

func (a *app) shell(ctx context.Context, flag, command string) (string, error) {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = time.Second // a manager that it started in the background keeps the output open
	if err := cmd.Run(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return "", fmt.Errorf("%s: %w: %s", flag, err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}
