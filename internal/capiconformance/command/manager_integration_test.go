// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/capiconformance"
	"github.com/outrigger/outrigger/internal/checkreport"
	"github.com/outrigger/outrigger/internal/testns"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

func TestMain(m *testing.M) { testns.Main(m) }

// installation is capi-manager as a process at a real API server, on a cloud in
// a folder.
type installation struct {
	t      *testing.T
	api    *cluster.ControlPlane
	cloud  *fake.Cloud
	folder string
	// health and webhook are ports.
	health, webhook string
	manager         *stand.Process
}

func install(t *testing.T) *installation {
	t.Helper()
	in := &installation{t: t, api: cluster.StartControlPlane(t, cluster.ControlPlaneOptions{}), folder: filepath.Join(t.TempDir(), "cloud")}
	in.health, in.webhook = cluster.HoldPort(t), cluster.HoldPort(t)
	var err error
	if in.cloud, err = fake.New(fake.Options{Dir: in.folder}); err != nil {
		t.Fatal(err)
	}
	in.define()
	in.start()
	in.hook()
	return in
}

func (in *installation) define() {
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	cmd.Dir = stand.Root()
	out, err := cmd.Output()
	if err != nil {
		in.t.Fatalf("find the module of Cluster API: %v", err)
	}
	ours := filepath.Join(stand.Root(), "config", "crd", "bases")
	in.api.Kubectl(in.t, "apply", "--server-side", "-f", filepath.Join(strings.TrimSpace(string(out)), "core", "config", "crd", "bases"))
	in.api.Kubectl(in.t, "apply", "--server-side", "-f", ours)
	// What config/crd/kustomization.yaml adds.
	in.api.Kubectl(in.t, "label", "-f", ours, "cluster.x-k8s.io/v1beta1=v1alpha1", "cluster.x-k8s.io/v1beta2=v1beta2")
	in.api.Kubectl(in.t, "wait", "--for=condition=Established", "crd", "--all", "--timeout=180s")
}

func (in *installation) start() {
	t := in.t
	plugin := filepath.Join(t.TempDir(), "fake")
	build := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", plugin, "./test/capi/fakecloud")
	build.Dir, build.Env = stand.Root(), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the plugin: %v\n%s", err, out)
	}
	data, err := os.ReadFile(plugin)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	certs, log := filepath.Join(in.api.Dir, "webhooks"), filepath.Join(in.api.Dir, "capi-manager.log")
	in.api.Serving(t, certs)
	in.manager = stand.Start(t, stand.Daemon{
		Path: stand.Binary(t, "capi-manager"), Log: log,
		Args: []string{
			"--kubeconfig=" + in.api.Kubeconfig, "--provider=fake", "--leader-elect=false", "--webhook-port=" + in.webhook, "--webhook-cert-dir=" + certs,
			"--health-addr=127.0.0.1:" + in.health, "--diagnostics-address=0", "--observe-interval=1s", "--settle-after=1s",
		},
		Env: []string{
			"ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN=true", "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH=" + plugin,
			"CLOUD_PROVIDER_EXTERNAL_PLUGIN_HASH=" + hex.EncodeToString(sum[:]), "FAKE_DIR=" + in.folder,
		},
	})
	in.await()
}

func (in *installation) await() {
	in.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		r, err := http.Get("http://127.0.0.1:" + in.health + "/readyz")
		if err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return
			}
		}
		select {
		case <-in.manager.Ended():
			in.t.Fatal("capi-manager ended; its log follows")
		default:
		}
		if time.Now().After(deadline) {
			in.t.Fatalf("capi-manager is not ready: %v", err)
		}
	}
}

// hook leads the API server to the webhooks of templates.
func (in *installation) hook() {
	data, err := os.ReadFile(filepath.Join(stand.Root(), "config", "webhook", "manifests.yaml"))
	if err != nil {
		in.t.Fatal(err)
	}
	c, err := client.New(in.api.RESTConfig(), client.Options{})
	if err != nil {
		in.t.Fatal(err)
	}
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		u := &unstructured.Unstructured{}
		if decoder.Decode(&u.Object) != nil {
			return
		}
		if len(u.Object) == 0 {
			continue
		}
		for _, item := range u.Object["webhooks"].([]any) {
			w := item.(map[string]any)
			path, _, _ := unstructured.NestedString(w, "clientConfig", "service", "path")
			w["clientConfig"] = map[string]any{"url": "https://127.0.0.1:" + in.webhook + path, "caBundle": base64.StdEncoding.EncodeToString(in.api.CA())}
		}
		if err := c.Create(in.t.Context(), u); err != nil {
			in.t.Fatal(err)
		}
	}
}

func (in *installation) restart(context.Context) error {
	in.manager.Stop(syscall.SIGKILL)
	in.manager.Again(in.t)
	in.await()
	return nil
}

func (in *installation) inventory(context.Context) ([]string, error) {
	left, err := in.cloud.Leaks()
	var ids []string
	for _, l := range left {
		if l.Kind == fake.KindInstance {
			ids = append(ids, l.ID)
		}
	}
	return ids, err
}

const file = `
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerCluster
spec: {controlPlaneEndpoint: {host: 192.0.2.1, port: 6443}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 1}}}
---
apiVersion: infrastructure.cluster.x-k8s.io/v1beta2
kind: OutriggerMachineTemplate
spec: {template: {spec: {vcpus: 2}}}
`

// TestManager: capi-manager, a process at a real API server with its webhooks,
// keeps the contract.
func TestManager(t *testing.T) {
	in := install(t)
	path := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	a := &app{file: path, kubeconfig: in.api.Kubeconfig, core: "play", limits: capiconformance.Limits{Provision: 3 * time.Minute, Delete: 3 * time.Minute, Quiet: time.Second}}
	subject, err := a.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	atOnce(t, subject)
	subject.Inventory, subject.Restart = in.inventory, in.restart
	for _, check := range capiconformance.Checks() {
		switch check.Name {
		case "machine-once", "delete-machine-while-made", "restart-while-made", "restart-deleting":
			look(t, check, subject)
		}
	}
	var out bytes.Buffer
	if code := run(t.Context(), []string{"--file", path, "--kubeconfig", in.api.Kubeconfig, "--run", "^crd-", "--quiet", "1s"}, &out, &out); code != checkreport.ExitOK || !strings.Contains(out.String(), "core is played by the kit") {
		t.Errorf("exit code %d: %s", code, &out)
	}
}

// atOnce runs the checks that need nothing from outside, several at a time: they
// mostly wait.
func atOnce(t *testing.T, subject capiconformance.Subject) {
	t.Helper()
	slots, wait := make(chan struct{}, 12), sync.WaitGroup{}
	for _, check := range capiconformance.Checks() {
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			look(t, check, subject)
		})
	}
	wait.Wait()
}

func look(t *testing.T, check capiconformance.Check, subject capiconformance.Subject) {
	t.Helper()
	result := capiconformance.Execute(t.Context(), capiconformance.Options{}, []capiconformance.Check{check}, subject)[0]
	text := fmt.Sprintf("%s: %s (%.1fs) %s", check.Name, result.Status, result.Took.Seconds(), strings.Join(result.Messages, "; "))
	if result.Status == conformance.Failed || len(result.Left) > 0 {
		t.Errorf("%s; left %s", text, result.Left)
		return
	}
	t.Log(text)
}
