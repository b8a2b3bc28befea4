// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

func TestMain(m *testing.M) { Main(m) }

// toy is a provider on a cloud of one map, with a deliberate mistake.
type toy struct {
	cloud   *toyCloud
	mistake string
}

type toyCloud struct {
	mu    sync.Mutex
	world *World
	next  int
	keys  map[string]string // id to key
}

func (c *toyCloud) call(action string, do func()) error {
	f := c.world.Called(action)
	if f == nil || f.After {
		c.mu.Lock()
		do()
		c.mu.Unlock()
	}
	if f != nil {
		return fmt.Errorf("%w: %s", provider.ErrUnavailable, f.Code)
	}
	return nil
}

func (p toy) CreateInstance(_ context.Context, _, key string, _ cloudinit.CloudConfigGenerator, spec provider.InstanceTypeSpec) (*provider.Instance, error) {
	var made *provider.Instance
	err := p.cloud.call("Create", func() { made = p.create(key, spec.Tags) })
	if err != nil {
		return nil, err
	}
	return made, nil
}

func (p toy) create(key string, tags map[string]string) *provider.Instance {
	for id, k := range p.cloud.keys {
		if k == key && p.mistake != "doubles" {
			return &provider.Instance{ID: id, Key: key}
		}
	}
	p.cloud.next++
	id := fmt.Sprint("i-", p.cloud.next)
	p.cloud.keys[id] = key
	p.cloud.world.Add(KindInstance, id, tags)
	if p.mistake == "untagged" {
		tags = nil
	}
	p.cloud.world.Add(KindDisk, id, tags)
	return &provider.Instance{ID: id, Key: key}
}

func (p toy) DeleteInstance(_ context.Context, id string) error {
	return p.cloud.call("Delete", func() {
		delete(p.cloud.keys, id)
		p.cloud.world.Remove(KindInstance, id)
		if p.mistake != "leaks" {
			p.cloud.world.Remove(KindDisk, id)
		}
		if p.mistake == "foreign" {
			p.cloud.world.Remove(KindInstance, "foreign")
		}
	})
}

func (p toy) ListInstances(_ context.Context, match map[string]string) ([]provider.Instance, error) {
	var list []provider.Instance
	err := p.cloud.call("List", func() {
		for id, key := range p.cloud.keys {
			if key == match[provider.TagKey] {
				list = append(list, provider.Instance{ID: id, Key: key})
			}
		}
	})
	return list, err
}

func (toy) Teardown() error       { return nil }
func (toy) ConfigVerifier() error { return nil }

func toyStand(mistake string) func(testing.TB, *rand.Rand) Stand {
	settle := 20 * time.Second
	if mistake != "" {
		settle = time.Second // it never does
	}
	return func(testing.TB, *rand.Rand) Stand {
		w := NewWorld()
		w.AddForeign(KindInstance, "foreign", ForeignTags(ScheduleKeys()[0]))
		cloud := &toyCloud{world: w, keys: map[string]string{}}
		return Stand{
			World: w, Open: func() (provider.Provider, error) { return toy{cloud, mistake}, nil },
			Faults: []Fault{LostReply("Create"), LostReply("Delete"), Refused("*", 503, "Unavailable")},
			Settle: settle,
		}
	}
}

func TestSchedules(t *testing.T) { RunSchedules(t, 200, toyStand("")) }

// TestSchedulesSeeMistakes runs each broken provider in a process of its own,
// since its schedules fail.
func TestSchedulesSeeMistakes(t *testing.T) {
	for mistake, sign := range map[string]string{
		"leaks": "leaked: disk", "doubles": "two instances of one key", "foreign": "somebody else's", "untagged": "lack some of the owner's",
	} {
		t.Run(mistake, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$")
			cmd.Env = append(os.Environ(), "CLOUDSIM_MISTAKE="+mistake)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), sign) {
				t.Errorf("%v, want a failure that says %q:\n%s", err, sign, out)
			}
		})
	}
}

func TestBroken(t *testing.T) {
	mistake := os.Getenv("CLOUDSIM_MISTAKE")
	if mistake == "" {
		t.Skip("the other half of TestSchedulesSeeMistakes, which runs it")
	}
	RunSchedules(t, 50, toyStand(mistake))
}

func TestHandler(t *testing.T) {
	w, done := NewWorld(), 0
	next := http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { done++; fmt.Fprint(out, "done") })
	refuse := func(out http.ResponseWriter, _ *http.Request, f Fault) { http.Error(out, f.Code, f.Status) }
	s := httptest.NewServer(w.Handler(next, func(r *http.Request) string { return strings.Trim(r.URL.Path, "/") }, refuse))
	defer s.Close()
	get := func() string {
		answer, err := http.Get(s.URL + "/Act")
		if err != nil {
			return "dropped"
		}
		defer answer.Body.Close()
		return answer.Status
	}
	w.Script(Refused("A*", 429, "Throttling").Skipping(1), LostReply("Act"), Unreachable("Act"))
	// The first fault lets a call through, which the second then strikes.
	for i, want := range []string{"dropped", "429 Too Many Requests", "dropped", "200 OK", "200 OK"} {
		if got := get(); got != want {
			t.Errorf("call %d: %s, want %s", i, got, want)
		}
	}
	if calls := w.Calls()["Act"]; calls != 5 || done != 3 {
		t.Errorf("%d calls counted and %d done, want 5 and 3", calls, done)
	}
}

func TestDialLoopback(t *testing.T) {
	_, err := DialLoopback(t.Context(), "tcp", "192.0.2.1:80")
	if err == nil || !strings.Contains(err.Error(), "loopback") {
		t.Errorf("dialled an address that is not loopback: %v", err)
	}
	if _, err := http.Get("http://192.0.2.1/"); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the standard transport dialled: %v", err)
	}
}
