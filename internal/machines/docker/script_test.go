// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
	"github.com/outrigger/outrigger/internal/machines/reconciler"
	"github.com/outrigger/outrigger/provider"
)

// script is an engine that replies what it is told, for faults that the real one
// has only when two are at the same thing at the same time.
type script struct {
	mu    sync.Mutex
	calls []string
	// answer is a status and a body for a method and a path without its version.
	answer func(method, path string) (int, string)
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := r.URL.Path
	if strings.HasPrefix(path, "/v1.") {
		path = path[strings.Index(path[1:], "/")+1:]
	}
	s.calls = append(s.calls, r.Method+" "+path)
	status, body := s.answer(r.Method, path)
	header := http.Header{"Content-Type": {"application/json"}, "Api-Version": {"1.41"}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

func scripted(t *testing.T, answer func(method, path string) (int, string)) (*Backend, *script) {
	t.Helper()
	s := &script{answer: answer}
	engine, err := client.New(client.WithHost("tcp://engine:2375"), client.WithHTTPClient(&http.Client{Transport: s}), client.WithAPIVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	b := &Backend{cfg: Config{NodeImage: "node:1"}, engine: engine, tasks: newTasks()}
	t.Cleanup(func() { b.Close() })
	return b, s
}

// TestAddressRace: two managers have given two containers the same address. The
// one that came second has never run and is made again.
func TestAddressRace(t *testing.T) {
	labels := `{"infrastructure.outrigger.dev/key": "k", "infrastructure.outrigger.dev/cluster-key": "c"}`
	b, s := scripted(t, func(method, path string) (int, string) {
		switch {
		case path == "/containers/json":
			return 200, `[{"Id": "id", "Names": ["/m"], "Labels": ` + labels + `}]`
		case path == "/containers/id/json":
			return 200, `{"Id": "id", "Name": "/m", "Config": {"Labels": ` + labels + `}, "State": {"Status": "created"}}`
		case path == "/containers/id/start":
			return 500, `{"message": "Address already in use"}`
		case path == "/volumes":
			return 200, `{"Volumes": [{"Name": "v", "Labels": ` + labels + `}]}`
		}
		return 200, `{}`
	})
	infra := &infrav1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	_, err := b.EnsureMachine(t.Context(), &reconciler.MachineScope{Infra: infra, Key: "k", ClusterKey: "c"})
	if !errors.Is(err, provider.ErrUnavailable) || !reasonIs(err, ReasonAddressTaken) {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want := []string{"POST /containers/id/start", "DELETE /containers/id", "GET /volumes", "DELETE /volumes/v"}
	if diff := cmp.Diff(want, s.calls[len(s.calls)-4:]); diff != "" {
		t.Error(diff)
	}
}

// TestProviderIDOfAnother: it is never believed, whether the machine has a
// container of its own or not, and nothing is asked of the engine but lists.
func TestProviderIDOfAnother(t *testing.T) {
	own := identity{key: "k", name: "m"}.unique()
	labels := `"Labels": {"infrastructure.outrigger.dev/key": "k", "infrastructure.outrigger.dev/cluster-key": "c"}`
	for _, there := range []bool{false, true} {
		b, s := scripted(t, func(method, path string) (int, string) {
			switch {
			case !there:
				return 200, `[]`
			case path == "/containers/json":
				return 200, `[{"Id": "id", "Names": ["/` + own + `"], ` + labels + `}]`
			}
			return 200, `{"Id": "id", "Name": "/` + own + `", "Config": {` + labels + `}, "State": {"Status": "running", "Running": true}}`
		})
		for id, want := range map[string]string{
			"docker:////other-0123456789": reconciler.ReasonInfrastructureOfAnother, "aws:///i-1": reconciler.ReasonInfrastructureOfAnother, "docker:////": reconciler.ReasonInfrastructureOfAnother,
			providerPrefix + own: map[bool]string{true: "", false: reconciler.ReasonInstanceGone}[there],
		} {
			infra := &infrav1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
			infra.Spec.ProviderID = id
			state, err := b.EnsureMachine(t.Context(), &reconciler.MachineScope{Infra: infra, Key: "k", ClusterKey: "c"})
			if err != nil || state.Reason != want || state.Provisioned != (want != reconciler.ReasonInfrastructureOfAnother) {
				t.Errorf("%s, its own there %v: %+v, %v; want %q", id, there, state, err, want)
			}
		}
		for _, call := range s.calls {
			if !strings.HasPrefix(call, "GET ") {
				t.Error(call)
			}
		}
	}
}

// TestMachineSize: a machine has what the engine's host has, or less.
func TestMachineSize(t *testing.T) {
	b, s := scripted(t, func(_, _ string) (int, string) {
		return 200, `{"NCPU": 8, "MemTotal": 17179869184, "Architecture": "aarch64", "OSType": "linux"}`
	})
	half, more := resource.MustParse("500m"), resource.MustParse("64Gi")
	for want, limits := range map[string]infrav1.DockerResources{"8 16Gi": {}, "500m 16Gi": {CPU: &half, Memory: &more}} {
		template := &infrav1.DockerMachineTemplate{}
		template.Spec.Template.Spec.Resources = limits
		size, err := b.MachineSize(t.Context(), template, nil)
		if got := size.Capacity.Cpu().String() + " " + size.Capacity.Memory().String(); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		if size.NodeInfo != (infrav1.NodeInfo{Architecture: "arm64", OperatingSystem: "linux"}) {
			t.Errorf("%+v", size.NodeInfo)
		}
	}
	s.answer = func(_, _ string) (int, string) { return 500, `{"message": "no space left"}` }
	if _, err := b.MachineSize(t.Context(), &infrav1.DockerMachineTemplate{}, nil); !reasonIs(err, ReasonDiskFull) {
		t.Error(err)
	}
}

// TestCreateRace: another manager was faster with the container, whose name is
// the same; that is not an error of the user's.
func TestCreateRace(t *testing.T) {
	b, _ := scripted(t, func(method, path string) (int, string) {
		switch {
		case path == "/containers/json":
			return 200, `[]`
		case path == "/networks":
			return 200, `[{"Id": "n", "Name": "n", "Labels": {"infrastructure.outrigger.dev/cluster-key": "c", "infrastructure.outrigger.dev/pinned": "true"}, "IPAM": {"Config": [{"Subnet": "10.0.0.0/24", "Gateway": "10.0.0.1"}]}}]`
		case path == "/containers/create":
			return 409, `{"message": "Conflict. The container name is already in use"}`
		case strings.HasSuffix(path, "/json") && strings.HasPrefix(path, "/containers/"):
			return 200, `{"Id": "id", "Config": {"Labels": {"infrastructure.outrigger.dev/cluster-key": "c"}}}`
		}
		return 200, `{}`
	})
	infra := &infrav1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	_, err := b.EnsureMachine(t.Context(), &reconciler.MachineScope{Infra: infra, Key: "k", ClusterKey: "c"})
	if !errors.Is(err, provider.ErrUnavailable) {
		t.Error(err)
	}
}

// TestLabelsAreWhole: an engine's filter takes a part of a value for the whole.
func TestLabelsAreWhole(t *testing.T) {
	b, _ := scripted(t, func(method, path string) (int, string) {
		return 200, `[{"Id": "id", "Labels": {"infrastructure.outrigger.dev/key": "key-and-more"}}]`
	})
	if list, err := b.containers(t.Context(), labelKey, "key"); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
}

// TestInventory: what is a machine's can be listed and removed, the load balancer
// and what is another cluster's is not listed.
func TestInventory(t *testing.T) {
	label := func(key, cluster, role string) string {
		return fmt.Sprintf(`"Labels": {"infrastructure.outrigger.dev/key": %q, "infrastructure.outrigger.dev/cluster-key": %q, "infrastructure.outrigger.dev/role": %q}`, key, cluster, role)
	}
	b, s := scripted(t, func(method, path string) (int, string) {
		switch path {
		case "/containers/json":
			return 200, `[{"Id": "a", "Created": 60, ` + label("k", "c", roleWorker) + `}, {"Id": "lb", ` + label("c", "c", roleLoadBalancer) + `}, {"Id": "b", ` + label("k", "c2", roleWorker) + `}]`
		case "/containers/a/json":
			return 200, `{"Id": "a", "Config": {` + label("k", "c", roleWorker) + `}}`
		case "/volumes":
			return 200, `{"Volumes": [{"Name": "v", "CreatedAt": "1970-01-01T00:02:00Z", ` + label("k", "c", roleWorker) + `}, {"Name": "w", ` + label("k", "c2", roleWorker) + `}]}`
		case "/volumes/v":
			return 409, `{"message": "volume is in use"}`
		}
		return 200, `{}`
	})
	owned, err := b.Owned(t.Context(), &reconciler.ClusterScope{Key: "c"})
	want := []reconciler.Owned{
		{ID: "container a", Key: "k", Created: time.Unix(60, 0)},
		{ID: "volume v", Key: "k", Created: time.Unix(120, 0).UTC()},
	}
	if diff := cmp.Diff(want, owned); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
	if err := b.Remove(t.Context(), nil, "container a"); err != nil {
		t.Error(err)
	}
	if err := b.Remove(t.Context(), nil, "volume v"); !errors.Is(err, provider.ErrUnavailable) {
		t.Errorf("a volume whose container is being removed: %v", err)
	}
	if err := b.Remove(t.Context(), nil, "network n"); !errors.Is(err, provider.ErrInvalidArgument) {
		t.Errorf("something else: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := s.calls[len(s.calls)-2:]; !cmp.Equal(got, []string{"DELETE /containers/a", "DELETE /volumes/v"}) {
		t.Error(got)
	}
}

// TestVolumeOfALostContainer: a container that somebody has removed during its
// bootstrap takes half of that with it, so the journal in the volume goes too.
func TestVolumeOfALostContainer(t *testing.T) {
	b, s := scripted(t, func(method, path string) (int, string) {
		switch path {
		case "/containers/json":
			return 200, `[]`
		case "/networks":
			return 200, `[{"Id": "n", "Name": "n", "Labels": {"infrastructure.outrigger.dev/cluster-key": "c", "infrastructure.outrigger.dev/pinned": "true"}, "IPAM": {"Config": [{"Subnet": "10.0.0.0/24", "Gateway": "10.0.0.1"}]}}]`
		case "/volumes":
			return 200, `{"Volumes": [{"Name": "old", "Labels": {"infrastructure.outrigger.dev/key": "k"}}]}`
		case "/containers/create":
			return 201, `{"Id": "id"}`
		}
		return 200, `{}`
	})
	infra := &infrav1.DockerMachine{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	if _, err := b.EnsureMachine(t.Context(), &reconciler.MachineScope{Infra: infra, Key: "k", ClusterKey: "c"}); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var got []string
	for _, call := range s.calls {
		if strings.Contains(call, "volumes/") || strings.HasSuffix(call, "/create") {
			got = append(got, call)
		}
	}
	if diff := cmp.Diff([]string{"DELETE /volumes/old", "POST /volumes/create", "POST /containers/create"}, got); diff != "" {
		t.Error(diff)
	}
}
