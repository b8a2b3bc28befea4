// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cluster_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

func TestMain(m *testing.M) { testns.Main(m) }

func TestControlPlane(t *testing.T) {
	tier.OnlyAll(t) // whatever starts a cluster sees it fail
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	if info, err := os.Stat(c.Kubeconfig); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%s: %v, %v; want mode 0600", c.Kubeconfig, info, err)
	}
	// The scheduler and the controllers work: a Deployment gets a pod, and the
	// pod a reason why it does not run.
	c.Kubectl(t, "create", "deployment", "web", "--image="+cluster.ToolsImage)
	c.Kubectl(t, "wait", "--for=condition=PodScheduled=false", "pod", "-l", "app=web", "--timeout=120s")

	t.Run("users are bound by RBAC", func(t *testing.T) { usersAreBound(t, c) })
	t.Run("outages", func(t *testing.T) { outages(t, c) })
}

func usersAreBound(t *testing.T, c *cluster.ControlPlane) {
	c.Kubectl(t, "create", "rolebinding", "readers", "--clusterrole=view", "--group=readers")
	c.Kubectl(t, "create", "serviceaccount", "robot")
	c.Kubectl(t, "create", "rolebinding", "robot", "--clusterrole=view", "--serviceaccount=default:robot")
	users := map[string]*cluster.User{
		"certificate": c.NewUser(t, "alice", "readers"),
		"token":       c.ServiceAccount(t, "default", "robot"),
	}
	for name, u := range users {
		t.Run(name, func(t *testing.T) {
			if out := u.Kubectl(t, "get", "deployments", "-o", "name"); !strings.Contains(out, "deployment.apps/web") {
				t.Errorf("a reader sees %q", out)
			}
			if _, err := u.TryKubectl("delete", "deployment", "web"); err == nil || !strings.Contains(err.Error(), "forbidden") {
				t.Errorf("a reader deletes: %v; want it forbidden", err)
			}
		})
	}
	if _, err := c.NewUser(t, "mallory").TryKubectl("get", "pods"); err == nil || !strings.Contains(err.Error(), "forbidden") {
		t.Errorf("somebody without a role reads: %v; want it forbidden", err)
	}
}

func outages(t *testing.T, c *cluster.ControlPlane) {
	client, err := rest.HTTPClientFor(c.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	client.Timeout = 10 * time.Second
	ask := func() error {
		request, err := http.NewRequestWithContext(context.Background(), http.MethodGet, c.Server+"/api/v1/namespaces", nil)
		if err != nil {
			return err
		}
		r, err := client.Do(request)
		if err == nil {
			r.Body.Close()
		}
		return err
	}
	c.Kill()
	if err := ask(); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("while it is killed: %v; want the connection refused", err)
	}
	c.Start(t)
	if err := ask(); err != nil {
		t.Errorf("after the start: %v", err)
	}
	if out := c.Kubectl(t, "get", "deployment", "web", "-o", "name"); out == "" {
		t.Error("what was there before is gone")
	}
}

func TestControlPlanesSideBySide(t *testing.T) {
	tier.OnlyAll(t) // whatever starts a cluster sees it fail
	a := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	b := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{APIServer: []string{"--event-ttl=5m"}})
	a.Kubectl(t, "create", "namespace", "only-in-a")
	if _, err := b.TryKubectl("get", "namespace", "only-in-a"); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("the other one: %v; want no such namespace", err)
	}
}
