// SPDX-License-Identifier: Apache-2.0

package command

import (
	"bytes"
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/internal/program"
)

// run is one run with what is required set unless env says otherwise.
func run(args []string, env map[string]string) (int, string, string) {
	var out, errs bytes.Buffer
	all := map[string]string{"CLOUD_PROVIDER": "nimbus", "NODE_NAME": "n1"}
	maps.Copy(all, env)
	c := &Command{Stdout: &out, Stderr: &errs, Getenv: func(name string) string { return all[name] }}
	return c.Run(args), out.String(), errs.String()
}

func TestWrongFlagsAreNamed(t *testing.T) {
	for _, c := range []struct {
		args []string
		env  map[string]string
		want string
	}{
		{nil, map[string]string{"CLOUD_PROVIDER": ""}, "CLOUD_PROVIDER"},
		{nil, map[string]string{"NODE_NAME": ""}, "-node-name (NODE_NAME) is not set: -mode all"},
		{[]string{"-mode", "node"}, map[string]string{"NODE_NAME": ""}, "-node-name (NODE_NAME) is not set: -mode node"},
		{[]string{"-mode", "both"}, nil, "-mode"},
		{[]string{"-endpoint", "tcp://127.0.0.1:9000"}, nil, `-endpoint (CSI_ENDPOINT): invalid argument: endpoint "tcp://127.0.0.1:9000" is not a socket`},
		{[]string{"-endpoint", "csi.sock"}, nil, "-endpoint (CSI_ENDPOINT)"},
		{[]string{"-max-volumes-per-node", "-1"}, nil, "-max-volumes-per-node"},
		{[]string{"-call-timeout", "0s"}, nil, "-call-timeout"},
		{[]string{"-wrap", "tcp://127.0.0.1:9000"}, nil, "-wrap (CSI_WRAP): invalid argument"},
		{[]string{"-wrap", "/csi/csi.sock"}, nil, "-wrap (CSI_WRAP) and -endpoint (CSI_ENDPOINT) are both /csi/csi.sock"},
		{[]string{"-nonsense"}, nil, "-nonsense"},
		{[]string{"extra"}, nil, `unexpected argument "extra"`},
	} {
		code, out, errs := run(c.args, c.env)
		if code != program.ExitUsage || out != "" || !strings.Contains(errs, c.want) || !strings.HasPrefix(errs, "outrigger-csi: ") {
			t.Errorf("%v: exit %d, %q; want %d and %q", c.args, code, errs, program.ExitUsage, c.want)
		}
	}
}

func TestHelpAndVersion(t *testing.T) {
	code, out, errs := run([]string{"--help"}, nil)
	if code != program.ExitOK || errs != "" {
		t.Errorf("help: exit %d, %q", code, errs)
	}
	for _, want := range []string{"csi.outrigger.dev", "-mode", "-endpoint", "-vm-runtime-classes", "kata-remote", "-wrap", "-node-name", "-kubeconfig", "kubectl apply -k deploy/csi"} {
		if !strings.Contains(out, want) {
			t.Errorf("help does not say %q", want)
		}
	}
	if code, out, _ := run([]string{"-version"}, map[string]string{"CLOUD_PROVIDER": ""}); code != program.ExitOK || !strings.HasPrefix(out, "outrigger-csi version ") {
		t.Errorf("version: exit %d, %q", code, out)
	}
}

func TestNoCluster(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	code, _, errs := run(nil, nil)
	if code != program.ExitError || !strings.Contains(errs, "-kubeconfig") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// TestUnknownProvider: the flag is named.
func TestUnknownProvider(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: \"http://127.0.0.1:1\"}}]\ncontexts: [{name: c, context: {cluster: c}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-mode", "controller", "-kubeconfig", kubeconfig, "-cluster-id", "c1", "-metrics-bind-address", "0", "-health-probe-bind-address", "0"}
	code, _, errs := run(args, nil)
	if code != program.ExitUsage || !strings.Contains(errs, "-cloud-provider (CLOUD_PROVIDER) nimbus") {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// TestNode: its id is that of its instance, or its name where it has none with the provider.
func TestNode(t *testing.T) {
	node := func(name, providerID string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z1"}}, Spec: corev1.NodeSpec{ProviderID: providerID},
		}
	}
	api := fake.NewFakeClient(node("instance", "aws:///z1/i-1"), node("foreign", "gce://p/z1/vm"), node("bare", ""))
	for name, id := range map[string]string{"instance": "i-1", "foreign": "foreign", "bare": "bare"} {
		s := &settings{Provider: "aws", NodeName: name, MaxVolumes: 7}
		if got, err := s.node(t.Context(), api, slog.New(slog.DiscardHandler)); err != nil || got.ID != id || got.Zone != "z1" || got.MaxVolumes != 7 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	s := &settings{Provider: "aws", NodeName: "away"}
	if _, err := s.node(t.Context(), api, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "-node-name (NODE_NAME) away") {
		t.Error(err)
	}
}

// TestNodeWaits: before the Node is initialized, its name would be taken for its id.
func TestNodeWaits(t *testing.T) {
	taint := corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	api := fake.NewFakeClient(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{taint}}})
	read := make(chan struct{}, 100)
	reader := interceptor.NewClient(api, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			defer func() { read <- struct{}{} }()
			return c.Get(ctx, key, o, opts...)
		},
	})
	ids := make(chan string)
	go func() {
		s := &settings{Provider: "aws", NodeName: "n1"}
		o, err := s.node(t.Context(), reader, slog.New(slog.DiscardHandler))
		if err != nil {
			ids <- err.Error()
			return
		}
		ids <- o.ID
	}()
	<-read
	if err := api.Update(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Spec: corev1.NodeSpec{ProviderID: "aws:///z1/i-1"}}); err != nil {
		t.Fatal(err)
	}
	if id := <-ids; id != "i-1" {
		t.Errorf("the id is %q", id)
	}
}
