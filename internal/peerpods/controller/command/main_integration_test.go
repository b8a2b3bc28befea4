// SPDX-License-Identifier: Apache-2.0

//go:build integration

package command_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/internal/peerpods/controller"
	"github.com/outrigger/outrigger/internal/peerpods/controller/command"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// childVar makes this test binary peerpod-ctrl with the provider fake, which
// can be killed as the real one.
const childVar = "OUTRIGGER_TEST_PEERPOD_CTRL"

func TestMain(m *testing.M) {
	if os.Getenv(childVar) == "" {
		os.Exit(m.Run())
	}
	provider.AddCloudProvider("fake", config.New("fake", openFake))
	os.Exit(command.Main())
}

// fakeConfig are keys of ConfigMap and Secret.
type fakeConfig struct {
	Dir   string        `flag:"fake-dir" env:"FAKE_DIR" usage:"folder of the cloud"`
	Size  int64         `flag:"fake-size" env:"FAKE_SIZE" usage:"how many instances a cloud in memory has"`
	Token config.Secret `env:"FAKE_TOKEN" required:"true" usage:"expired is refused"`
}

func openFake(c fakeConfig) (provider.Provider, error) {
	cloud, err := fake.New(fake.Options{Dir: c.Dir})
	if err != nil {
		return nil, err
	}
	if c.Size > 0 {
		return newCrowd(cloud, int(c.Size)), nil
	}
	if c.Token == "expired" {
		for _, op := range []fake.Op{fake.OpList, fake.OpDelete, fake.OpGet} {
			cloud.Inject(fake.Unauthenticated(op).Repeated(-1))
		}
	}
	return cloud, nil
}

// crowd is a cloud that always lists the same instances.
type crowd struct {
	*fake.Cloud
	list []provider.Instance
}

func newCrowd(cloud *fake.Cloud, size int) crowd {
	c := crowd{cloud, make([]provider.Instance, size)}
	for n := range c.list {
		tags := map[string]string{provider.TagCluster: "c1", provider.TagKey: sandbox(n)}
		c.list[n] = provider.Instance{ID: instanceID(n), Key: sandbox(n), Tags: tags, Created: time.Unix(0, 0), State: provider.StateRunning}
	}
	return c
}

func (c crowd) ListInstances(context.Context, map[string]string) ([]provider.Instance, error) {
	return c.list, nil
}

func instanceID(n int) string { return fmt.Sprintf("fake-%06d", n) }

func sandbox(n int) string { return fmt.Sprintf("s%d", n) }

// create makes an instance as an adaptor does.
func create(ctx context.Context, c *fake.Cloud, cluster, pod, key string) (*provider.Instance, error) {
	tags := map[string]string{provider.TagCluster: cluster, provider.TagKey: key, provider.TagPod: pod}
	return c.CreateInstance(ctx, pod, key, noUserData{}, provider.InstanceTypeSpec{Tags: tags})
}

type noUserData struct{}

func (noUserData) Generate() (string, error) { return "", nil }

// latency is that of the node's calls to the cloud: there is time to be killed
// in.
const latency = 300 * time.Millisecond

// namespace is that of the manifests.
const namespace = "confidential-containers-system"

// world is a cluster with the CRD, a cloud and perhaps a controller.
type world struct {
	t      testing.TB
	plane  *cluster.ControlPlane
	client client.Client
	claims *claims.Claims
	dir    string
	cloud  *fake.Cloud
	// kubeconfig is that of the controller, which may do what its manifest
	// says and nothing else.
	kubeconfig string
	// restarted: an API server that has just started knows no roles for a
	// moment, and forbids what it allows then.
	restarted atomic.Bool
}

func (w *world) restart(t testing.TB) {
	w.restarted.Store(true)
	w.plane.Restart(t)
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, plane: cluster.StartControlPlane(t, cluster.ControlPlaneOptions{
		// On in OpenShift: it asks for more rights where objects have owners.
		APIServer: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	}), dir: t.TempDir()}
	w.plane.Kubectl(t, "apply", "-k", filepath.Join(stand.Root(), "deploy/base/crd"))
	w.plane.Kubectl(t, "wait", "--for=condition=Established", "crd/peerpods.confidentialcontainers.org", "--timeout=60s")
	w.plane.Kubectl(t, "create", "namespace", namespace)
	w.plane.Kubectl(t, "apply", "-n", namespace, "-f", filepath.Join(stand.Root(), "deploy/base/controller/rbac.yaml"))
	w.kubeconfig = w.plane.ServiceAccount(t, namespace, "peerpod-ctrl").Kubeconfig
	rest := w.plane.RESTConfig()
	rest.QPS = -1
	var err error
	if w.client, err = client.New(rest, client.Options{Scheme: controller.Scheme()}); err != nil {
		t.Fatal(err)
	}
	api, err := claims.NewREST(rest)
	if err != nil {
		t.Fatal(err)
	}
	w.claims = &claims.Claims{API: api}
	if w.cloud, err = fake.New(fake.Options{Dir: w.dir, Latency: latency}); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) configure(keys map[string]string, token string) {
	w.t.Helper()
	cm := &corev1.ConfigMap{Data: keys}
	cm.Namespace, cm.Name = namespace, controller.ConfigMapName
	secret := &corev1.Secret{StringData: map[string]string{"FAKE_TOKEN": token}}
	secret.Namespace, secret.Name = namespace, controller.SecretName
	for _, o := range []client.Object{cm, secret} {
		o := o.DeepCopyObject().(client.Object)
		err := w.client.Create(w.t.Context(), o)
		if err != nil {
			o.SetResourceVersion("")
			err = w.client.Update(w.t.Context(), o)
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
}

// keys are those of the cloud in the world's folder.
func (w *world) keys() map[string]string {
	return map[string]string{"CLOUD_PROVIDER": "fake", "FAKE_DIR": w.dir}
}

// process is a running peerpod-ctrl.
type process struct {
	t    testing.TB
	cmd  *exec.Cmd
	done chan struct{}
	log  *logBuffer
}

// logBuffer is what it wrote.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// start starts a controller with short times.
func (w *world) start(t testing.TB, args ...string) *process {
	t.Helper()
	args = append([]string{
		"-kubeconfig", w.kubeconfig, "-metrics-bind-address", "0", "-health-probe-bind-address", "0", "-log-format", "text",
		"-sweep-period", "300ms", "-sweep-grace", "3s", "-settle-after", "2s", "-adopt-after", "1s",
	}, args...)
	p := &process{t: t, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{}), log: &logBuffer{}}
	p.cmd.Env = append(os.Environ(), childVar+"=1", "PEERPODS_NAMESPACE="+namespace, "CLUSTER_ID=c1")
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.cmd.Wait(); close(p.done) }()
	t.Cleanup(func() {
		p.kill()
		text := p.log.String()
		if strings.Contains(text, "forbidden") && !w.restarted.Load() {
			t.Error("the controller's role does not let it do all it wants")
		}
		if t.Failed() {
			t.Logf("controller, end of its log:\n%s", text[max(0, len(text)-6000):])
		}
	})
	return p
}

func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// exit waits until it ends by itself.
func (p *process) exit() (int, string) {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		p.t.Fatal("it goes on")
	}
	return p.cmd.ProcessState.ExitCode(), p.log.String()
}

// eventually polls until ask returns nothing to wait for.
func eventually(t testing.TB, ask func() string) {
	t.Helper()
	// An instance whose deletion was killed is deleted again after two minutes.
	deadline, what := time.Now().Add(6*time.Minute), ""
	for time.Now().Before(deadline) {
		if what = ask(); what == "" {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Fatal("still waiting: ", what)
}

func fetch(url string) string {
	resp, err := http.Get(url)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	var b strings.Builder
	fmt.Fprint(&b, resp.StatusCode, "\n")
	buf := new(bytes.Buffer)
	buf.ReadFrom(resp.Body)
	b.Write(buf.Bytes())
	return b.String()
}

// freePort returns a port that nobody listens on at the moment.
func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}
