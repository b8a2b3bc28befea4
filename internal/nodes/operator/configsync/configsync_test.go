// SPDX-License-Identifier: Apache-2.0

package configsync

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/outrigger/outrigger/internal/nodes/operator/cloudconfig"
)

// TestWhatWakes: nothing but what is read wakes a controller; above all no
// ConfigMap that merely is in the same namespace.
func TestWhatWakes(t *testing.T) {
	user := "user-ca"
	var userErr error
	w := &controller{
		ours: []types.NamespacedName{{Namespace: "clouds", Name: caName}, {Namespace: "clouds", Name: targetName}},
		user: func(context.Context) (string, error) { return user, userErr },
	}
	wakes := func(namespace, name string) bool {
		return len(w.configMap(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})) > 0
	}
	for name, want := range map[string]bool{
		"clouds/ccm-trusted-ca": true, "clouds/cloud-conf": true, "clouds/kube-root-ca.crt": false,
		"openshift-config/user-ca": true, "openshift-config/unrelated": false, "openshift-config/cloud-conf": false,
		"openshift-config-managed/kube-cloud-config": false,
	} {
		ns, n, _ := strings.Cut(name, "/")
		if got := wakes(ns, n); got != want {
			t.Errorf("%s wakes: %v; want %v", name, got, want)
		}
	}
	user = ""
	if wakes(userNamespace, "unrelated") {
		t.Error("without a reference an unrelated one wakes")
	}
	if userErr = errors.New("x"); !wakes(userNamespace, "unrelated") {
		t.Error("who does not know which one counts has to look")
	}
}

// TestTheCopyIsNeverOlder than what is mounted, wherever config-sync ends: else that
// would be taken back to an older one. One that cannot be made is not an obstacle.
func TestTheCopyIsNeverOlder(t *testing.T) {
	for _, refused := range []string{goodName, targetName} {
		api := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if o.GetName() == refused {
					return errors.New("refused")
				}
				return c.Create(ctx, o, opts...)
			},
		}).Build()
		name := func(n string) types.NamespacedName { return types.NamespacedName{Namespace: "clouds", Name: n} }
		r := &cloudConfig{client: api, own: name(targetName), good: name(goodName)}
		made := content{data: map[string]string{configKey: "x"}}
		if err := r.write(t.Context(), cloudconfig.AWS, nil, made); err == nil || !strings.Contains(err.Error(), refused) {
			t.Errorf("without %s: error %v", refused, err)
		}
		for _, n := range []string{goodName, targetName} {
			if is, err := readConfigMap(t.Context(), api, name(n)); err != nil || (is == nil) != (n == refused) {
				t.Errorf("without %s: %s is %v, error %v", refused, n, is, err)
			}
		}
	}
}

func TestBadFlags(t *testing.T) {
	for args, want := range map[string]string{
		"--namespace=A":                                  `--namespace "A": a lowercase RFC 1123 label`,
		"--namespace=":                                   `--namespace "": `,
		"--namespace=openshift-config":                   "--namespace openshift-config: that is where configurations come from",
		"--trusted-ca-bundle=ca.pem":                     `--trusted-ca-bundle "ca.pem": want an absolute path`,
		"--cloud-config-degraded-after=-1s":              "--cloud-config-degraded-after -1s: want 0 or more",
		"--trusted-ca-window=-1s --resync=0":             "flag --trusted-ca-window -1s: want 0 or more\nflag --resync 0: want more than 0",
		"--resync=soon":                                  `flag --resync "soon": want a duration`,
		"--leader-elect-lease-duration=1s":               "--leader-elect-lease-duration (1s) must exceed",
		"--kubeconfig=/nowhere/at/all":                   "find the cluster: stat /nowhere/at/all",
		"--kubeconfig=" + filepath.Join("/", "dev/null"): "find the cluster: ",
		"x": "unknown command",
	} {
		c := Command(func(string) string { return "" })
		c.SetArgs(strings.Fields(args))
		c.SetErr(io.Discard)
		if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", args, err, want)
		}
	}
}

func TestUnreachable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, file, "https://127.0.0.1:1")
	c := Command(func(name string) string { return map[string]string{"KUBECONFIG": file}[name] })
	c.SetArgs([]string{"--leader-elect=false"})
	c.SetErr(io.Discard)
	if err := c.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "reach the cluster at https://127.0.0.1:1: ") {
		t.Error(err)
	}
}

func writeKubeconfig(t *testing.T, file, server string) {
	t.Helper()
	text := "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\nclusters: [{name: x, cluster: {server: \"" + server + "\"}}]\nusers: [{name: x, user: {token: x}}]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
