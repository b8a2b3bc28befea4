// SPDX-License-Identifier: Apache-2.0

//go:build integration

package guide

import (
	"os"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/testns"
)

// TestCCMGuide follows the guide to the letter, at a real API server with its
// controllers and scheduler. Kubelets are played.
func TestCCMGuide(t *testing.T) {
	need(t, "bash", "go", "tar", "unshare", "chroot")
	testns.RequireRoot(t) // a pod's volumes are mounted
	api := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{
		// Nobody says again and again that Nodes are well.
		ControllerManager: []string{"--node-monitor-grace-period=1h", "--node-startup-grace-period=1h"},
	})
	registry := &cluster.Registry{}
	registry.Start(t, api)
	startKubelet(t, api)
	follow(t, ccmGuide, 10*time.Minute, "KUBECONFIG="+api.Kubeconfig, "REGISTRY="+registry.Host+"/mycloud",
		"PATH="+cluster.Programs(t)+":"+os.Getenv("PATH"))
}
