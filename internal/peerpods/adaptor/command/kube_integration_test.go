// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// What a daemon that runs on every node may weigh; see SPECIFICATION.md.
const (
	mostSize = 30e6
	mostRSS  = 40 << 20
)

const installedIn = "confidential-containers-system"

// TestDaemonInACluster runs the static programs as their DaemonSets do: the
// relay by itself, the adaptor with the rights that it is installed with.
func TestDaemonInACluster(t *testing.T) {
	cp := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	cp.Kubectl(t, "create", "namespace", installedIn)
	cp.Kubectl(t, "apply", "-n", installedIn, "-f", filepath.Join(stand.Root(), "deploy/base/adaptor/rbac.yaml"))
	cp.Apply(t, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}}`)
	cp.Kubectl(t, "apply", "-f", filepath.Join(stand.Root(), "deploy/base/adaptor/node.yaml"))
	account := cp.NodeAccount(t, installedIn, "cloud-api-adaptor", "node1")
	dir := stand.Dir(t)
	port := freePort(t)
	daemon := stand.Binary(t, "cloud-api-adaptor")
	adaptor := stand.Start(t, stand.Daemon{
		Path: daemon, Log: dir + "/adaptor.log", Socket: dir + "/hypervisor.sock",
		Args: []string{"qemu", "-socket", dir + "/hypervisor.sock", "-pods-dir", dir + "/pods", "-qemu-state-dir", dir + "/qemu", "-qemu-accel", "tcg"},
		Env: []string{
			"NODE_NAME=node1", "POD_UID=adaptor-1", "KUBECONFIG=" + account.Kubeconfig, "RELAY_EXTERNAL=true",
			"PEERPODS_LIMIT_PER_NODE=7", fmt.Sprint("PROBE_PORT=", port),
		},
	})
	if code, _ := fetch(t, port, "/readyz"); code != http.StatusInternalServerError {
		t.Errorf("without a relay /readyz answers %d", code)
	}
	stand.Start(t, stand.Daemon{
		Path: stand.Binary(t, "agent-relay"), Args: []string{"-socket", dir + "/relay.sock"},
		Log: dir + "/relay.log", Socket: dir + "/relay.sock",
	})
	await(t, "ready", func() bool { code, _ := fetch(t, port, "/readyz"); return code == http.StatusOK })
	node := func() string {
		return cp.Kubectl(t, "get", "node", "node1", "-o", `jsonpath={.status.capacity.kata\.peerpods\.io/vm} {.metadata.annotations.kata\.peerpods\.io/caa-owner}`)
	}
	await(t, "the node's resource", func() bool { return node() == "7 adaptor-1" })
	_, text := fetch(t, port, "/metrics")
	for _, line := range []string{"outrigger_adaptor_apiserver_away 0", "outrigger_adaptor_relay_up 1", `outrigger_adaptor_sandboxes{state="ready"} 0`} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	id := strings.TrimSpace(cp.Kubectl(t, "get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"))
	if kept, err := os.ReadFile(dir + "/pods/.cluster-id"); err != nil || string(kept) != id {
		t.Errorf("the cluster's identity: %q, %v; want %s", kept, err, id)
	}
	weigh(t, daemon, adaptor.Pid)
	adaptor.Stop(syscall.SIGTERM)
	if got := strings.TrimSpace(node()); got != "" {
		t.Errorf("the node still advertises %q", got)
	}
}

func weigh(t *testing.T, program string, pid int) {
	t.Helper()
	file, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("file %.1f MB, resident %.1f MiB", float64(file.Size())/1e6, float64(kib)/1024)
	if file.Size() > mostSize || kib<<10 > mostRSS {
		t.Errorf("more than %.0f MB or %d MiB", mostSize/1e6, mostRSS>>20)
	}
}

func fetch(t *testing.T, port int, path string) (int, string) {
	t.Helper()
	resp, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func await(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !happened(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}
