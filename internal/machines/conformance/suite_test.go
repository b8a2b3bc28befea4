// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/internal/machines/conformance"
	providers "github.com/outrigger/outrigger/provider/conformance"
)

// file is what a user would give.
const file = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerCluster
spec:
  controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}
  failureDomains: [{name: a, controlPlane: true}, {name: b, controlPlane: true}]
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachine
spec: {}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachine
metadata: {annotations: {capi-conformance.outrigger.dev/role: failing-machine}}
spec: {image: none}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 1}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 2}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: DockerMachinePool
spec: {}
---
apiVersion: other.example.com/v1beta2
kind: OutriggerClusterTemplate
spec: {template: {spec: {}}}
`

// watchFilter is what the manager of a world looks at.
const watchFilter = "world"

func objects() conformance.Objects {
	o, err := conformance.ParseObjects([]byte(file))
	if err != nil {
		panic(err)
	}
	return o
}

// execute runs one check on a manager of ours with something broken.
func execute(t *testing.T, check conformance.Check, breaks breakage) (result providers.Result) {
	t.Helper()
	hooks() // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, breaks)
		defer w.end()
		result = conformance.Execute(t.Context(), conformance.Options{}, []conformance.Check{check}, w.subject())[0]
	})
	return result
}

// TestOurs: the kinds Outrigger* keep the contract.
func TestOurs(t *testing.T) {
	for _, check := range conformance.Checks() {
		t.Run(check.Name, func(t *testing.T) {
			t.Parallel()
			result := execute(t, check, nil)
			if result.Status != providers.Passed || len(result.Left) > 0 {
				t.Errorf("%s: %s; left %s", result.Status, strings.Join(result.Messages, "\n"), result.Left)
			}
		})
	}
}

// TestUnseenIsLeft: what cannot be listed when a check ends is not taken for
// deleted.
func TestUnseenIsLeft(t *testing.T) {
	hooks() // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, nil)
		defer w.end()
		subject := w.subject()
		subject.Client = interceptor.NewClient(w.memory, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				if list.GetObjectKind().GroupVersionKind().Kind == "OutriggerMachineList" {
					return errors.New("no answer")
				}
				return c.List(ctx, list, options...)
			},
		})
		check := conformance.Checks()[slices.IndexFunc(conformance.Checks(), func(c conformance.Check) bool { return c.Name == "machine-finalizer" })]
		result := conformance.Execute(t.Context(), conformance.Options{}, []conformance.Check{check}, subject)[0]
		if result.Status != providers.Passed || len(result.Left) == 0 || !strings.Contains(result.Left[0], "no answer") {
			t.Errorf("%s: %q; left %q", result.Status, result.Messages, result.Left)
		}
	})
}
