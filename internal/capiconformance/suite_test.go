// SPDX-License-Identifier: Apache-2.0

package capiconformance_test

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/outrigger/outrigger/internal/capiconformance"
	"github.com/outrigger/outrigger/provider/conformance"
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
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 1}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 2}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerClusterTemplate
spec: {template: {spec: {}}}
`

func objects() capiconformance.Objects {
	o, err := capiconformance.ParseObjects([]byte(file))
	if err != nil {
		panic(err)
	}
	return o
}

// execute runs one check on a manager of ours with something broken.
func execute(t *testing.T, check capiconformance.Check, breaks breakage) (result conformance.Result) {
	t.Helper()
	hooks() // outside of the bubble
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, breaks)
		defer w.end()
		result = capiconformance.Execute(t.Context(), capiconformance.Options{}, []capiconformance.Check{check}, w.subject())[0]
	})
	return result
}

// TestOurs: the kinds Outrigger* keep the contract.
func TestOurs(t *testing.T) {
	for _, check := range capiconformance.Checks() {
		t.Run(check.Name, func(t *testing.T) {
			t.Parallel()
			result := execute(t, check, nil)
			if result.Status != conformance.Passed || len(result.Left) > 0 {
				t.Errorf("%s: %s; left %s", result.Status, strings.Join(result.Messages, "\n"), result.Left)
			}
		})
	}
}
