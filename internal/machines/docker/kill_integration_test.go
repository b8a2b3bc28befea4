// SPDX-License-Identifier: Apache-2.0

//go:build integration

package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/test/dockerd"
)

// reaper has managers die at each of their calls to the engine that change
// something: once before it, and once after it, when nobody gets the answer.
type reaper struct {
	engine http.RoundTripper

	mu    sync.Mutex
	names map[string]string // of containers and networks, by id
	died  map[string]bool
	story []string
}

// mortal is one manager's way to the engine.
type mortal struct {
	*reaper
	dead chan struct{}
}

var (
	errDead = errors.New("the manager is dead")
	version = regexp.MustCompile(`^/v[0-9.]+`)
	id      = regexp.MustCompile(`[0-9a-f]{64}`)
)

// step is the name of a call; empty if it changes nothing.
func (r *reaper) step(req *http.Request) string {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return ""
	}
	path := version.ReplaceAllString(req.URL.Path, "")
	path = id.ReplaceAllStringFunc(path, func(found string) string { return r.names[found] })
	if strings.HasSuffix(path, "/archive") && req.ContentLength <= 0 { // how long it will be is not known
		path += " with an image"
	}
	return strings.TrimSpace(req.Method + " " + path + " " + req.URL.Query().Get("name"))
}

func (m *mortal) RoundTrip(req *http.Request) (*http.Response, error) {
	if m.ended() {
		return nil, errDead
	}
	m.mu.Lock()
	step := m.step(req)
	if m.dies("before " + step) {
		m.mu.Unlock()
		return nil, errDead
	}
	m.mu.Unlock()
	answer, err := m.engine.RoundTrip(req)
	if step == "" || err != nil {
		return answer, err
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body.Close()
	answer.Body = io.NopCloser(bytes.NewReader(body))
	m.mu.Lock()
	defer m.mu.Unlock()
	var made struct{ ID string }
	if json.Unmarshal(body, &made) == nil && made.ID != "" {
		m.names[made.ID] = "ID of " + step
	}
	if err == nil && m.dies("after "+step) {
		return nil, errDead
	}
	return answer, err
}

func (m *mortal) ended() bool {
	select {
	case <-m.dead:
		return true
	default:
		return false
	}
}

// dies reports whether this is the end: nobody has died here yet.
func (m *mortal) dies(where string) bool {
	if strings.HasSuffix(where, " ") || m.died[where] || m.ended() {
		return false
	}
	m.died[where] = true
	m.story = append(m.story, where)
	close(m.dead)
	return true
}

// open starts a manager.
func (r *reaper) open(t *testing.T) (*Backend, *mortal) {
	t.Helper()
	m := &mortal{reaper: r, dead: make(chan struct{})}
	engine, err := client.New(client.WithHost("tcp://engine:2375"), client.WithHTTPClient(&http.Client{Transport: m}), client.WithAPIVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	return &Backend{cfg: Config{NodeImage: "test/node", LoadBalancerImage: balancerImage, AdvertiseHost: "127.0.0.1"}, engine: engine, tasks: newTasks()}, m
}

// TestKilledAtEachStep: a cluster with a control plane and a worker comes and
// goes, and at each step of that a manager dies.
func TestKilledAtEachStep(t *testing.T) {
	d := dockerd.StartDaemon(t, dockerd.Options{})
	importImages(t, d.Engine)
	before := inventory(t, d.Engine)
	socket := strings.TrimPrefix(d.Host, "unix://")
	direct := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer direct.CloseIdleConnections()
	r := &reaper{engine: direct, names: map[string]string{}, died: map[string]bool{}}
	watcher := open(t, testConfig(d.Engine))
	b, m := r.open(t)
	defer func() { b.Close() }()
	// until has managers try, one after the other.
	until := func(what string, try func(context.Context) (bool, error)) {
		t.Helper()
		eventually(t, what, func(ctx context.Context) (bool, string) {
			done, err := try(ctx)
			if m.ended() { // whatever it thinks, nobody hears of it
				b.Close()
				b, m = r.open(t)
				done, err = false, errDead
			}
			return done && err == nil, fmt.Sprint(done, err)
		})
	}
	w := newWorld("default", "kill")
	until("the cluster", func(ctx context.Context) (bool, error) {
		state, err := b.EnsureCluster(ctx, w.clusterScope())
		if err == nil && !m.ended() {
			w.infra.Spec.ControlPlaneEndpoint = state.Endpoint
		}
		return state.Provisioned, err
	})
	for _, name := range []string{"cp", "worker"} {
		s := w.add(name, name == "cp")
		specOf(s).PreLoadImages = []string{balancerImage}
		s.Bootstrap = []byte(userData + "- test -e /var/lib/imported\n")
		s.Bootstrap = bytes.Replace(s.Bootstrap, []byte("write_files:\n"), []byte("write_files:\n"+
			`- {path: /etc/node-agent/settings.json, content: '{"importImage": ["/bin/busybox", "cp", "-t", "/var/lib/imported"]}'}`+"\n"+
			"- {path: /var/lib/imported/folder, content: x}\n"), 1)
		until(name, func(ctx context.Context) (bool, error) {
			if _, err := b.EnsureCluster(ctx, w.clusterScope()); err != nil {
				return false, err
			}
			state, err := b.EnsureMachine(ctx, s)
			if list, looking := watcher.containers(ctx, labelKey, s.Key); looking != nil || len(list) > 1 {
				t.Fatalf("containers of %s: %v, %v", name, list, looking)
			}
			if state.Provisioned && !m.ended() {
				specOf(s).ProviderID = state.ProviderID
			}
			return state.Provisioned, err
		})
		if ran, err := d.ReadFile(specOf(s).ProviderID[len(providerPrefix):], "/var/lib/ran"); err != nil || ran != "ran\n" {
			t.Errorf("%s has run its bootstrap so often: %q, %v", name, ran, err)
		}
	}
	answers(t, endpointOf(w), "cp")
	for _, s := range w.machines {
		until("the deletion of "+s.Infra.GetName(), func(ctx context.Context) (bool, error) {
			return b.DeleteMachine(ctx, &reconciler.MachineScope{Infra: s.Infra, Key: s.Key, ClusterKey: s.ClusterKey, Began: s.Began})
		})
	}
	until("the deletion of the cluster", func(ctx context.Context) (bool, error) {
		return b.DeleteCluster(ctx, &reconciler.ClusterScope{Infra: w.infra, Key: w.key()})
	})
	if diff := cmp.Diff(before, inventory(t, d.Engine)); diff != "" {
		t.Errorf("the engine before (-) and after (+):\n%s", diff)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	story := strings.Join(r.story, "\n")
	t.Logf("managers died\n%s", story)
	for _, kind := range []string{"POST /networks/create", "DELETE /networks", "POST /volumes/create", "DELETE /volumes", "POST /containers/create", "/start", "PUT /containers", "/archive with an image", "/kill", "DELETE /containers"} {
		for _, when := range []string{"before ", "after "} {
			if !regexp.MustCompile("(?m)^" + when + ".*" + kind).MatchString(story) {
				t.Errorf("nobody died %s%s", when, kind)
			}
		}
	}
}
