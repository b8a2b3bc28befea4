// SPDX-License-Identifier: Apache-2.0

// Package daemon has what the programs operator and config-sync share: they find
// the cluster, log, answer probes, and reconcile one singleton request, whatever
// enqueued it.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/nodes/operator/failure"
	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

// Command completes the command of a daemon, whose agent is how it names itself to the
// cluster. settings are those of its flags, by [commandline.Settings]; complete returns what
// else is wrong with them; run works until the command's context ends.
func Command(c *cobra.Command, getenv func(string) string, agent string, settings []any, complete func() error, run func(context.Context, *rest.Config, *slog.Logger) error) *cobra.Command {
	wrong := commandline.Settings(c.Flags(), settings...)
	kubeconfig := c.Flags().String("kubeconfig", "", "`file` with the cluster's address and credentials; else KUBECONFIG, else those of the pod")
	c.Args, c.SilenceUsage, c.SilenceErrors = cobra.NoArgs, true, true
	c.RunE = func(c *cobra.Command, _ []string) error {
		if err := errors.Join(wrong(), complete()); err != nil {
			return program.UsageError(err)
		}
		logger := (&controllers.Log{Format: "text"}).Install(c.ErrOrStderr())
		api, err := Cluster(*kubeconfig, getenv, agent)
		if err != nil {
			return err
		}
		return run(c.Context(), api, logger)
	}
	return c
}

// CheckNamespace returns what is wrong with a flag that names a namespace.
func CheckNamespace(flag, name string) error {
	if reasons := validation.IsDNS1123Label(name); len(reasons) > 0 {
		return fmt.Errorf("--%s %q: %s", flag, name, strings.Join(reasons, "; "))
	}
	return nil
}

// Cluster returns how the cluster is reached: as the file says or else, by the
// variable KUBECONFIG or as a pod, as the surroundings do. Name is who asks.
func Cluster(file string, getenv func(string) string, name string) (*rest.Config, error) {
	var api *rest.Config
	var err error
	if file = cmp.Or(file, getenv("KUBECONFIG")); file != "" {
		api, err = clientcmd.BuildConfigFromFlags("", file)
	} else if api, err = rest.InClusterConfig(); err == nil {
		err = useNodesAddress(api, addressFile)
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w: run in a pod with a service account, or set --kubeconfig or KUBECONFIG", err)
	}
	api.UserAgent = name + "/" + version.Version
	// A bundle is some thirty requests, at once.
	api.QPS, api.Burst = 50, 100
	return api, nil
}

// NewManager returns a manager that takes part in the election of a leader on a control
// plane of this topology. It is ready when its caches have synced.
func NewManager(ctx context.Context, api *rest.Config, log *slog.Logger, o manager.Options, elect Election, t configv1.TopologyMode) (manager.Manager, error) {
	if err := elect.Check(ctx, api); err != nil {
		return nil, err
	}
	elect.Apply(&o, t)
	mgr, err := controllers.NewManager(api, log, o)
	if err != nil {
		return nil, err
	}
	return mgr, mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the cluster's objects have not been read yet")
		}
		return nil
	})
}

// Detect returns which of these kinds a cluster has and, of OpenShift (it has
// ClusterOperators), the control plane's topology.
func Detect(ctx context.Context, api *rest.Config, scheme *runtime.Scheme, kinds ...schema.GroupVersionKind) (there map[schema.GroupVersionKind]bool, topology configv1.TopologyMode, err error) {
	c, err := client.New(api, client.Options{Scheme: scheme})
	if err != nil {
		return nil, "", fmt.Errorf("reach the cluster at %s: %w", api.Host, err)
	}
	there = map[schema.GroupVersionKind]bool{}
	for _, kind := range kinds {
		_, err := c.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
		if err != nil && !apimeta.IsNoMatchError(err) {
			return nil, "", fmt.Errorf("reach the cluster at %s: %w", api.Host, err)
		}
		there[kind] = err == nil
	}
	var infra configv1.Infrastructure
	if there[configv1.GroupVersion.WithKind("ClusterOperator")] {
		if err := c.Get(ctx, All, &infra); err != nil && !apierrors.IsNotFound(err) && !apimeta.IsNoMatchError(err) {
			return nil, "", fmt.Errorf("read Infrastructure %s: %w", All.Name, err)
		}
	}
	return there, infra.Status.ControlPlaneTopology, nil
}

// CheckAddress returns what is wrong with a flag that names an address to listen at;
// 0 and nothing are none.
func CheckAddress(flag, address string) error {
	if address == "" || address == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return fmt.Errorf("--%s %q: want HOST:PORT, :PORT or 0", flag, address)
	}
	return nil
}

// addressFile has on OpenShift's nodes the address of the API server that kubelets
// use, as lines of a shell: the Service's needs a network, which there is none of
// before a cloud controller manager has initialized Nodes.
const addressFile = "/etc/kubernetes/apiserver-url.env"

// useNodesAddress takes the address of the file, if there is one, in place of the
// Service's.
func useNodesAddress(api *rest.Config, file string) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the API server's address: %w", err)
	}
	is := variables(string(text))
	host, port := is["KUBERNETES_SERVICE_HOST"], is["KUBERNETES_SERVICE_PORT"]
	if host == "" || port == "" {
		return fmt.Errorf("%s does not set KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT", file)
	}
	api.Host = "https://" + net.JoinHostPort(host, port)
	return nil
}

// variables reads lines NAME=VALUE, with the value perhaps in quotes.
func variables(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "export "), "=")
		all[name] = strings.Trim(value, `"'`)
	}
	return all
}

// Certificate is what a server shows: that of a mounted Secret, or one of its own
// while there is none. A Secret may be made, or renewed, while the server runs.
type Certificate struct {
	// Dir has tls.crt and tls.key; empty is none.
	Dir string

	once sync.Once
	own  tls.Certificate
	err  error
}

// Get implements the callback of [tls.Config].
func (c *Certificate) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.Dir != "" {
		is, err := tls.LoadX509KeyPair(filepath.Join(c.Dir, "tls.crt"), filepath.Join(c.Dir, "tls.key"))
		if err == nil {
			return &is, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("certificate in %s: %w", c.Dir, err)
		}
	}
	c.once.Do(c.make)
	return &c.own, c.err
}

func (c *Certificate) make() {
	cert, key, err := certutil.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err == nil {
		c.own, err = tls.X509KeyPair(cert, key)
	}
	c.err = err
}

// All is the name of the singleton request: that of OpenShift's objects.
var All = types.NamespacedName{Name: openshift.ClusterName}

// Everything maps any event to the singleton request.
func Everything(context.Context, client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: All}}
}

// RateLimiter returns an exponential backoff up to the longest time.
func RateLimiter(longest time.Duration) workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](failure.Again/2, longest)
}

// Periodically enqueues objects at the start and at intervals: of the singleton there may
// be no object at all.
func Periodically(every time.Duration, what handler.MapFunc) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go tick(ctx, every, func() {
			for _, r := range what(ctx, nil) {
				q.Add(r)
			}
		})
		return nil
	})
}

// pollFile is how often a mounted file is looked at. The kubelet itself takes a
// minute to replace it.
const pollFile = 5 * time.Second

// WhenReplaced enqueues the singleton when a file was replaced, made or removed, as
// mounted ConfigMaps are.
func WhenReplaced(file string) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		seen := stamp(file)
		go tick(ctx, pollFile, func() {
			if is := stamp(file); is != seen {
				seen = is
				q.Add(reconcile.Request{NamespacedName: All})
			}
		})
		return nil
	})
}

// tick calls now, and then from time to time until the context ends.
func tick(ctx context.Context, every time.Duration, call func()) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		call()
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// stamp changes with a file's content or its presence.
func stamp(file string) string {
	info, err := os.Stat(file)
	if err != nil {
		return err.Error()
	}
	return info.ModTime().String() + " " + info.Mode().String()
}
