// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"crypto/tls"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor/cluster"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/test/adaptortest"
)

// worker is a node with its adaptor.
type worker struct {
	t    testing.TB
	name string
	dir  string
	api  *apiServer
	lag  func()
	vms  vms

	fuse    *fuse
	conn    conn
	service *adaptor.Service
	cluster *cluster.Cluster
	stop    func()

	mu sync.Mutex
	// served are the addresses of the VMs of sandboxes.
	served map[string]string
}

func (w *worker) path(name string) string { return filepath.Join(w.dir, name) }

func newWorker(t testing.TB, name string, api *apiServer, lag func(), of vms) *worker {
	dir, err := os.MkdirTemp("/tmp", "osc")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &worker{t: t, name: name, dir: dir, api: api, lag: lag, vms: of, served: map[string]string{}}
	for _, folder := range []string{"network", "relay", "netns"} {
		if err := os.Mkdir(w.path(folder), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// open starts an adaptor on what the one before has left.
func (w *worker) open() {
	w.t.Helper()
	w.conn = w.vms.connect()
	w.fuse = &fuse{left: -1, died: w.keepJournal}
	log := slog.New(slog.DiscardHandler)
	var err error
	if w.cluster, err = cluster.New(cluster.Options{
		Config: &rest.Config{Host: "http://api", Transport: w.through(w.fuse), QPS: -1}, NodeName: w.name, Owner: w.name,
		Namespace: "system", Provider: "fake", ClusterID: "c1", Limit: -1, Log: log,
	}); err != nil {
		w.t.Fatal(err)
	}
	fuse := w.fuse
	w.service, err = adaptor.New(adaptor.Options{
		Provider: mortalCloud{w.conn, fuse, w.lag}, ProviderName: "fake", Cluster: w.cluster,
		Network: &adaptortest.Network{Dir: w.path("network")}, Relay: mortalRelay{&adaptortest.Relay{Dir: w.path("relay")}, w, fuse},
		VNIs: &adaptortest.VNIs{Min: 1}, MinVNI: 1, TLS: adaptor.TLS{Issue: w.vms.issue}, PodsDir: w.path("pods"),
		ClusterID: "c1", NodeName: w.name, Log: log, Hook: func(p adaptor.Point) { fuse.step(p.String()) },
		HandOver: func(ctx context.Context, address string, c *tls.Config, document []byte) error {
			return fuse.around("hand-over", func() error { w.lag(); return w.vms.handOver(ctx, address, c, document) })
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.service.Recover(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); w.cluster.Run(ctx) }()
	w.stop = func() { cancel(); <-done }
}

// keepJournal copies what is on disk now.
func (w *worker) keepJournal() {
	records, err := filepath.Glob(filepath.Join(w.path("pods"), "*", "sandbox.json"))
	err = errors.Join(err, os.RemoveAll(w.path("then")), os.Mkdir(w.path("then"), 0o700))
	for _, path := range records {
		data, bad := os.ReadFile(path)
		if errors.Is(bad, fs.ErrNotExist) {
			continue // just forgotten
		}
		to := filepath.Join(w.path("then"), filepath.Base(filepath.Dir(path)))
		err = errors.Join(err, bad, os.Mkdir(to, 0o700), os.WriteFile(filepath.Join(to, "sandbox.json"), data, 0o600))
	}
	if err != nil {
		w.t.Error(err)
	}
}

// through is the way to the API server.
func (w *worker) through(f *fuse) roundTripper {
	return func(r *http.Request) (response *http.Response, err error) {
		t := targetOf(r.URL.Path)
		what := r.Method + " " + t.namespace + "/" + t.resource
		if r.Method == http.MethodGet { // some are made under a lock, where nothing may take time
			if err := f.step(what); err != nil {
				return nil, err
			}
			return w.api.RoundTrip(r)
		}
		dead := f.around(what, func() error {
			w.lag()
			response, err = w.api.RoundTrip(r)
			return nil
		})
		if dead != nil {
			return nil, dead
		}
		return response, err
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// mortalRelay is the relay as an adaptor with a fuse sees it.
type mortalRelay struct {
	*adaptortest.Relay
	w    *worker
	fuse *fuse
}

func (r mortalRelay) Serve(ctx context.Context, req *relaypb.ServeRequest) error {
	return r.fuse.around("Serve", func() error {
		host, _, err := net.SplitHostPort(req.GetAddress())
		r.w.mu.Lock()
		r.w.served[req.GetId()] = host
		r.w.mu.Unlock()
		if err = errors.Join(err, r.w.vms.answers(ctx, req)); err != nil {
			return err
		}
		return r.Relay.Serve(ctx, req)
	})
}

func (r mortalRelay) Stop(ctx context.Context, id string) error {
	return r.fuse.around("Stop", func() error { return r.Relay.Stop(ctx, id) })
}

// kill ends the adaptor as SIGKILL does: what it does from here on reaches nobody, and its
// journal is what it was.
func (w *worker) kill() {
	w.t.Helper()
	w.fuse.kill()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.service.Close(ctx); err != nil {
		w.t.Error(err)
	}
	w.stop()
	if err := errors.Join(os.RemoveAll(w.path("pods")), os.Rename(w.path("then"), w.path("pods"))); err != nil {
		w.t.Error(err)
	}
}

// start runs a pod, as a shim does, and returns the address of its VM.
func (w *worker) start(sandbox, pod string) (string, error) {
	fuse := w.fuse
	_, err := w.service.CreateVM(context.Background(), &hypervisorpb.CreateVMRequest{Id: sandbox, NetworkNamespacePath: w.path("netns"),
		Annotations: map[string]string{"io.kubernetes.cri.sandbox-name": pod, "io.kubernetes.cri.sandbox-namespace": "ns"}})
	if err != nil {
		return "", err
	}
	if _, err = w.service.StartVM(context.Background(), &hypervisorpb.StartVMRequest{Id: sandbox}); err != nil {
		return "", err
	}
	if fuse.burnt() {
		return "", errDead // who asked has got no answer
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.served[sandbox], nil
}

func (w *worker) end(sandbox string) {
	w.t.Helper()
	if _, err := w.service.StopVM(context.Background(), &hypervisorpb.StopVMRequest{Id: sandbox}); err != nil {
		w.t.Error(err)
	}
}
