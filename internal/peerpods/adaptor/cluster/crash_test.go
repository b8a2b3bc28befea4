// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/test/crashtest"
)

// serverEnv names the API server of the adaptor that the test binary runs.
const serverEnv = "OUTRIGGER_TEST_API_SERVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashtest.FolderEnv); dir != "" {
		if err := crashtest.Serve(dir, join); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func join(o *adaptor.Options) (func(context.Context), error) {
	joined, err := New(Options{
		Config:   &rest.Config{Host: os.Getenv(serverEnv), QPS: -1},
		NodeName: nodeName, Owner: "child", Provider: "fake", Limit: -1, MinRetry: time.Millisecond,
	})
	if err != nil {
		return nil, err
	}
	o.Cluster, o.Log = joined, slog.New(slog.NewTextHandler(os.Stderr, nil))
	return joined.Run, nil
}

// crashWorld has an API server that outlives the adaptor.
type crashWorld struct {
	crashtest.Folder
	pods *claims.REST
}

func newCrashWorld(t *testing.T) crashtest.World {
	api := newFakeAPI(t)
	api.put("/api/v1/namespaces/default/pods/crash", map[string]any{
		"metadata": map[string]any{"name": "crash", "namespace": namespace}, "spec": map[string]any{"nodeName": nodeName},
	})
	config := api.serve()
	pods, err := claims.NewREST(config)
	if err != nil {
		t.Fatal(err)
	}
	return crashWorld{crashtest.NewFolder(t, serverEnv+"="+config.Host), pods}
}

// Instances also checks what must hold at any time: who has an instance has
// claimed it.
func (w crashWorld) Instances() int {
	n := w.Folder.Instances()
	list := w.peerPods()
	if n > 0 && (len(list) != 1 || !hasFinalizer(&list[0]) || list[0].Spec.PodUID == "") {
		w.T.Errorf("%d instance(s) and PeerPods %+v", n, list)
	}
	return n
}

func (w crashWorld) peerPods() []v1alpha1.PeerPod {
	list, err := w.pods.OfNode(context.Background(), nodeName)
	if err != nil {
		w.T.Fatal(err)
	}
	return list
}

func (w crashWorld) Leftovers() []string {
	left := w.Folder.Leftovers()
	for _, pp := range w.peerPods() {
		left = append(left, "PeerPod "+pp.Name)
	}
	return left
}

// TestKilledBetweenAnyTwoSteps: at no time is there an instance without a
// PeerPod, and in the end there is neither.
func TestKilledBetweenAnyTwoSteps(t *testing.T) {
	crashtest.Run(t, newCrashWorld, crashtest.Every)
}
