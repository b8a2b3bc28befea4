// SPDX-License-Identifier: Apache-2.0

//go:build integration

package cluster

import (
	"path/filepath"
	"testing"

	realcluster "github.com/outrigger/outrigger/test/cluster"
	teststand "github.com/outrigger/outrigger/test/stand"
)

// TestOnARealAPIServer plays the scenarios where rules are enforced: schemas,
// finalizers, node identities.
func TestOnARealAPIServer(t *testing.T) {
	cp := realcluster.StartControlPlane(t, realcluster.ControlPlaneOptions{})
	cp.Kubectl(t, "apply", "-f", filepath.Join(teststand.Root(), "deploy", "base", "crd", "confidentialcontainers.org_peerpods.yaml"))
	cp.Kubectl(t, "wait", "--for=condition=Established", "crd/peerpods.confidentialcontainers.org")
	cp.Apply(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "`+nodeName+`"}}`)
	for name, scenario := range scenarios {
		t.Run(name, func(t *testing.T) { scenario(t, cp.RESTConfig()) })
	}
}
