// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/stand"
)

// What an installation is called.
const (
	// Namespace is that of the manifests.
	Namespace = "confidential-containers-system"
	// RuntimeClass is that of pods in VMs, and its handler.
	RuntimeClass = "kata-remote"
	// workerLabel is what the RuntimeClass selects nodes by.
	workerLabel = "node.kubernetes.io/worker"
)

// webhookAddress is where the API server finds the webhook, which runs beside
// it, and healthAddress where it tells how it is.
const (
	webhookAddress = "127.0.0.1:9443"
	healthAddress  = "127.0.0.1:8081"
)

// OutriggerNode completes the options of a node that Outrigger is to run on:
// label and handler of its RuntimeClass.
func OutriggerNode(t testing.TB, o NodeOptions) NodeOptions {
	t.Helper()
	labels := map[string]string{workerLabel: ""}
	maps.Copy(labels, o.Labels)
	o.Labels = labels
	o.Runtimes = append(slices.Clip(o.Runtimes), Runtime{
		Handler: RuntimeClass, Shim: stand.Binary(t, "containerd-shim-outrigger-v2"),
		PodAnnotations: []string{"io.katacontainers.*", "outrigger.dev/*"},
	})
	return o
}

// OutriggerOptions say what is installed.
type OutriggerOptions struct {
	// Provider is its name. bin/provider-NAME runs on the node, unless Socket,
	// a path, says where the provider is served already.
	Provider, Socket string
	// Settings and Secrets are keys of peer-pods-cm and peer-pods-secret.
	Settings, Secrets map[string]string
	// Controller are more flags of peerpod-ctrl.
	Controller []string
}

// Outrigger is an installation on one node. Objects are those of deploy/base;
// what would be pods are processes, with the rights and settings of those.
type Outrigger struct {
	// Adaptor and the others may be stopped, killed and started again, the
	// adaptor by StartAdaptor. Provider is nil when somebody else serves it.
	Provider, Relay, Adaptor, Controller, Webhook *stand.Process

	cluster  *ControlPlane
	node     *Node
	options  OutriggerOptions
	adaptors int
}

// Install returns when everything is ready. The node's options are those of
// [OutriggerNode].
func Install(t testing.TB, c *ControlPlane, n *Node, o OutriggerOptions) *Outrigger {
	t.Helper()
	i := &Outrigger{cluster: c, node: n, options: o}
	i.complete()
	must(t, os.MkdirAll(n.Path("/run/peerpod"), 0o755), "make a folder")
	c.Apply(t, i.manifests(t))
	c.Kubectl(t, "wait", "--for=condition=Established", "crd/peerpods.confidentialcontainers.org", "--timeout=60s")
	c.Kubectl(t, "patch", "mutatingwebhookconfiguration", "peerpods-webhook", "--type=json", "-p",
		`[{"op":"remove","path":"/webhooks/0/clientConfig/service"},{"op":"add","path":"/webhooks/0/clientConfig/url","value":"https://`+webhookAddress+`/mutate-v1-pod"}]`)
	if o.Socket == "" {
		i.startProvider(t)
	}
	i.Relay = i.start(t, "agent-relay", "/run/peerpod/relay.sock", nil, "-socket=/run/peerpod/relay.sock")
	i.StartAdaptor(t)
	i.startController(t)
	i.startWebhook(t)
	i.AwaitReady(t)
	return i
}

// complete adds the settings that the place of the provider makes necessary.
func (i *Outrigger) complete() {
	socket := cmp.Or(i.options.Socket, i.providerSocket())
	settings := map[string]string{
		"CLOUD_PROVIDER":                        i.options.Provider,
		"ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN": "true",
		"CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH":   "unix://" + socket,
		"PEERPODS_LIMIT_PER_NODE":               "20",
		"INSECURE_REGISTRIES":                   i.cluster.Address,
	}
	maps.Copy(settings, i.options.Settings)
	i.options.Settings = settings
}

// manifests are deploy/base without what would need images.
func (i *Outrigger) manifests(t testing.TB) string {
	t.Helper()
	base := i.cluster.Kubectl(t, "kustomize", filepath.Join(stand.Root(), "deploy/base"))
	kept := []string{withoutWorkloads(base)}
	type object = map[string]any
	for name, o := range map[string]object{
		"peer-pods-cm":     {"kind": "ConfigMap", "data": i.options.Settings},
		"peer-pods-secret": {"kind": "Secret", "stringData": i.options.Secrets},
	} {
		o["apiVersion"], o["metadata"] = "v1", object{"name": name, "namespace": Namespace}
		data, err := json.Marshal(o)
		must(t, err, "make a manifest")
		kept = append(kept, string(data))
	}
	return strings.Join(kept, "\n---\n")
}

func (i *Outrigger) providerSocket() string {
	return "/run/peerpod/provider-" + i.options.Provider + ".sock"
}

// start runs one of our programs on the node.
func (i *Outrigger) start(t testing.TB, name, socket string, env []string, args ...string) *stand.Process {
	t.Helper()
	return stand.Start(t, i.node.Daemon(stand.Daemon{
		Path: stand.Binary(t, name), Args: args, Env: env, Log: i.node.log(name), Socket: socket,
	}))
}

func (i *Outrigger) startProvider(t testing.TB) {
	t.Helper()
	state := strings.ToUpper(i.options.Provider) + "_STATE_DIR=" + i.node.path(i.options.Provider)
	env := append([]string{state}, variables(i.options.Settings, i.options.Secrets)...)
	i.Provider = i.start(t, "provider-"+i.options.Provider, i.providerSocket(), env, "--listen=unix://"+i.providerSocket())
}

// variables are keys of a ConfigMap or Secret as a container has them.
func variables(all ...map[string]string) []string {
	var env []string
	for _, keys := range all {
		for key, value := range keys {
			env = append(env, key+"="+value)
		}
	}
	slices.Sort(env)
	return env
}

// StartAdaptor runs the adaptor, as the DaemonSet does: each one is another pod.
// It returns when the adaptor's socket is served.
func (i *Outrigger) StartAdaptor(t testing.TB) {
	t.Helper()
	i.adaptors++
	pod := fmt.Sprintf("POD_UID=adaptor-%d", i.adaptors)
	if i.Adaptor != nil {
		i.Adaptor.Again(t, pod)
		return
	}
	i.Adaptor = i.start(t, "cloud-api-adaptor", "/run/peerpod/hypervisor.sock", append(i.adaptorEnv(t), pod))
}

func (i *Outrigger) adaptorEnv(t testing.TB) []string {
	t.Helper()
	return append(variables(i.options.Settings, i.options.Secrets),
		"NODE_NAME="+i.node.Name, "RELAY_EXTERNAL=true", "PROBE_ADDRESS="+i.node.IP,
		"KUBECONFIG="+i.node.Kubeconfig(t, i.cluster.NodeAccount(t, Namespace, "cloud-api-adaptor", i.node.Name)), "KUBELET_KUBECONFIG="+i.node.path("system-node-"+i.node.Name+".kubeconfig"))
}

// SecondAdaptor runs another one on the node and returns what it says when it
// ends, which it must by itself and with an error.
func (i *Outrigger) SecondAdaptor(t testing.TB) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	args := i.node.Command(stand.Binary(t, "cloud-api-adaptor"))
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), append(i.adaptorEnv(t), "POD_UID=second", "PROBE_PORT=0")...)
	said, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("a second adaptor ended with %v (%v):\n%s", err, ctx.Err(), said)
	}
	return string(said)
}

// ReplaceAdaptor is what a rolling update does with the node: one adaptor ends,
// by that signal, then the next one starts.
func (i *Outrigger) ReplaceAdaptor(t testing.TB, signal syscall.Signal) {
	t.Helper()
	i.Adaptor.Stop(signal)
	i.StartAdaptor(t)
}

// account returns a kubeconfig of the service account for the node.
func (i *Outrigger) account(t testing.TB, name string) string {
	t.Helper()
	return i.node.Kubeconfig(t, i.cluster.ServiceAccount(t, Namespace, name))
}

func (i *Outrigger) startController(t testing.TB) {
	t.Helper()
	args := append([]string{"-kubeconfig", i.account(t, "peerpod-ctrl"), "-leader-elect=false"}, i.options.Controller...)
	i.Controller = i.start(t, "peerpod-ctrl", "", []string{"PEERPODS_NAMESPACE=" + Namespace}, args...)
}

// startWebhook runs it beside the API server.
func (i *Outrigger) startWebhook(t testing.TB) {
	t.Helper()
	robot := i.cluster.ServiceAccount(t, Namespace, "peerpods-webhook")
	_, port, _ := net.SplitHostPort(webhookAddress)
	i.Webhook = stand.Start(t, stand.Daemon{
		Path: stand.Binary(t, "peerpods-webhook"), Log: i.node.log("peerpods-webhook"),
		Args: []string{"-kubeconfig", robot.Kubeconfig, "-webhook-port", port, "-health-probe-bind-address", healthAddress, "-metrics-bind-address", "0"},
		Env:  []string{"POD_NAMESPACE=" + Namespace},
	})
}

// AwaitReady waits until all that can be killed is ready, and the node
// advertises VMs.
func (i *Outrigger) AwaitReady(t testing.TB) {
	t.Helper()
	for name, address := range map[string]string{
		"the webhook": healthAddress, "the adaptor": i.node.IP + ":8000", "the controller": i.node.IP + ":8081",
	} {
		i.cluster.await(t, name+" to be ready", func(ctx context.Context) error { return answersOK(ctx, "http://"+address+"/readyz") })
	}
	limit := i.options.Settings["PEERPODS_LIMIT_PER_NODE"]
	if strings.HasPrefix(limit, "-") {
		return
	}
	i.cluster.await(t, "the node to advertise VMs", func(ctx context.Context) error {
		body, err := i.cluster.read(ctx, "/api/v1/nodes/"+i.node.Name)
		if err == nil && !strings.Contains(string(body), `"kata.peerpods.io/vm":"`+limit+`"`) {
			err = fmt.Errorf("it does not advertise kata.peerpods.io/vm: %s", limit)
		}
		return err
	})
}

func answersOK(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	request.Close = true
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", url, r.Status)
	}
	return nil
}
