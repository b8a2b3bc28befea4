// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
)

// refusals are what engines say of containers that they never start.
var refusals = map[string]struct {
	code int
	text string
}{
	"killed":  {http.StatusInternalServerError, "failed to create task for container: task %s: already exists"},
	"network": {http.StatusNotFound, "network %s not found"}, // one of two, made by two managers at once
}

// TestStartInterrupted: an engine that was killed while it started a container never
// starts that container again. A machine and a load balancer in that state are made
// again, under another id and with the same name and address.
func TestStartInterrupted(t *testing.T) {
	e, b := newFakeEngine(t, Config{})
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "c"}
	infra := &infrav1.DockerCluster{ObjectMeta: meta}
	cluster := &reconciler.ClusterScope{Cluster: &clusterv1.Cluster{ObjectMeta: meta}, Infra: infra, Key: "cluster"}
	machine := &reconciler.MachineScope{
		Cluster: cluster.Cluster, Machine: &clusterv1.Machine{}, InfraCluster: infra, Infra: &infrav1.DockerMachine{ObjectMeta: meta},
		Key: "machine", ClusterKey: "cluster", Began: time.Now(), Format: reconciler.FormatCloudConfig,
	}
	for _, row := range []struct {
		what   string
		labels []string
		ensure func() error
	}{
		{"load balancer", []string{labelKey, "cluster"}, func() error { _, err := b.EnsureCluster(t.Context(), cluster); return err }},
		{"machine", []string{labelKey, "machine"}, func() error { _, err := b.EnsureMachine(t.Context(), machine); return err }},
	} {
		for name, refusal := range refusals {
			t.Run(row.what+"/"+name, func(t *testing.T) {
				stuck := map[string]bool{} // ids
				e.refuse = func(verb, path string) (int, string) {
					id, start := strings.CutSuffix(strings.TrimPrefix(path, "/containers/"), "/start")
					if verb == http.MethodPost && start && (len(stuck) == 0 || stuck[id]) {
						stuck[id] = true
						return refusal.code, fmt.Sprintf(refusal.text, id)
					}
					return 0, ""
				}
				var err error
				for range 4 {
					err = row.ensure()
				}
				if err != nil || len(stuck) != 1 {
					t.Fatalf("%v after the start of %d containers has failed", err, len(stuck))
				}
				found, err := b.containerWith(t.Context(), row.labels...)
				if err != nil || found == nil || stuck[found.ID] || !found.State.Running {
					t.Errorf("%+v, %v: want another container that runs", found, err)
				}
				if err := b.remove(t.Context(), found.ID); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
