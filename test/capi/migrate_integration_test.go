// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/cli/kubectl"
	"github.com/outrigger/outrigger/test/capi"
	"github.com/outrigger/outrigger/test/cluster"
)

// TestMigrationFromDockerProvider runs the commands of the plan that exchange Cluster API's Docker provider, with objects of
// both families in the cluster, and those back. Clusters and their machines are not made: no manager runs.
func TestMigrationFromDockerProvider(t *testing.T) {
	r := capi.NewRepository(t)
	r.Peer(t)
	r.Release(t, "v0.1.0")
	m := capi.Start(t, r)
	m.Clusterctl(t, "init", "--infrastructure", "docker")
	m.Kubectl(t, "delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
	const kinds = "infrastructure.cluster.x-k8s.io/v1beta2, kind: "
	m.Apply(t, "{apiVersion: "+kinds+"DockerMachineTemplate, metadata: {namespace: default, name: one}, spec: {template: {spec: {customImage: 'kindest/node:v1.33.0'}}}}\n---\n"+
		"{apiVersion: "+kinds+"DockerCluster, metadata: {namespace: default, name: one-x7, labels: {cluster.x-k8s.io/cluster-name: one}}}\n---\n"+
		"{apiVersion: "+kinds+"DevMachineTemplate, metadata: {namespace: default, name: two}, spec: {template: {spec: {backend: {docker: {}}}}}}")
	var out, errs bytes.Buffer
	app := kubectl.App{Stdout: &out, Stderr: &errs, Getenv: os.Getenv, Now: time.Now}
	var plan kubectl.Plan
	code := app.Run([]string{"--kubeconfig", m.Kubeconfig, "migrate", "--from", "capd", "-o", "json"})
	if err := json.Unmarshal(out.Bytes(), &plan); err != nil || code != 2 || len(plan.SettleFirst) != 1 || !strings.Contains(plan.SettleFirst[0], "dockermachinetemplates") || errs.Len() > 0 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, &out, &errs)
	}
	for _, c := range []struct {
		steps []kubectl.Step
		now   string
	}{{plan.Steps, "infrastructure-outrigger"}, {plan.Rollback, "infrastructure-docker"}} {
		for _, s := range c.steps {
			for _, command := range s.Run {
				if !strings.HasPrefix(command, "make ") && !strings.Contains(command, "MANIFESTS") && !strings.Contains(command, "--for=condition=Available") {
					m.Kubectl(t, "wait", "--for=delete", "namespace/cert-manager-test", "--timeout=3m") // of an init before, which waits for it less long
					runStep(t, m, r, strings.ReplaceAll(command, ":VERSION", ""))
				}
			}
		}
		label := m.Kubectl(t, "get", "crd", "dockermachinetemplates.infrastructure.cluster.x-k8s.io", `--output=jsonpath={.metadata.labels.cluster\.x-k8s\.io/provider}`)
		if label != c.now {
			t.Errorf("the definition is %s's, want %s", label, c.now)
		}
	}
}

func runStep(t *testing.T, m *capi.Management, r *capi.Repository, command string) {
	t.Helper()
	wrapper := t.TempDir()
	script := "#!/bin/sh\nexec '" + filepath.Join(capi.Programs(t), "clusterctl") + "' --config '" + r.Config() + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(wrapper, "clusterctl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-ec", command)
	cmd.Env = append(append(os.Environ(), r.Env()...), "PATH="+wrapper+":"+cluster.Programs(t)+":"+os.Getenv("PATH"), "KUBECONFIG="+m.Kubeconfig, "HOME="+m.Dir, "XDG_CONFIG_HOME="+m.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
}
