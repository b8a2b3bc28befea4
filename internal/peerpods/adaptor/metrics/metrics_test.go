// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

func scrape(t *testing.T, m *Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("code %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

func TestChangesAreCounted(t *testing.T) {
	m := New("fake")
	wantLines(t, scrape(t, m), // rate() does not count the first of a series that begins with one
		`outrigger_adaptor_errors_total{class="quota exceeded",provider="fake",step="create-instance"} 0`,
		`outrigger_adaptor_start_duration_seconds_count{provider="fake",result="error"} 0`,
		`outrigger_adaptor_start_duration_seconds_count{provider="fake",result="ok"} 0`,
	)
	quota := &adaptor.StepError{Step: "create-instance", Err: fmt.Errorf("%w: no more", provider.ErrQuota)}
	for _, change := range []adaptor.Change{
		{Kind: adaptor.ChangeDone, Step: "tunnel", Took: 30 * time.Millisecond},
		{Kind: adaptor.ChangeFailed, Step: "create-instance", Err: quota},
		{Kind: adaptor.ChangeStarted, Took: 3 * time.Second},
		{Kind: adaptor.ChangeStarted, Err: quota},
		{Kind: adaptor.ChangeStuck, Err: provider.ErrUnavailable},
		{Kind: adaptor.ChangeTimeline, Timeline: timeline.Timeline{Steps: []timeline.Step{
			{Name: "kernel", Where: timeline.Guest, Start: time.Unix(1, 0), End: time.Unix(3, 0)}, {Name: "a-label-of-the-guests-choice", Where: timeline.Guest},
		}}},
	} {
		m.Observe(change)
	}
	if text := scrape(t, m); strings.Contains(text, "of-the-guests-choice") {
		t.Error("a guest makes labels")
	}
	wantLines(t, scrape(t, m),
		`outrigger_adaptor_guest_step_duration_seconds_sum{provider="fake",step="kernel"} 2`,
		`outrigger_adaptor_step_duration_seconds_count{provider="fake",result="ok",step="tunnel"} 1`,
		`outrigger_adaptor_step_duration_seconds_bucket{provider="fake",result="ok",step="tunnel",le="0.025"} 0`,
		`outrigger_adaptor_errors_total{class="quota exceeded",provider="fake",step="create-instance"} 1`,
		`outrigger_adaptor_errors_total{class="unavailable",provider="fake",step="remove"} 1`,
		`outrigger_adaptor_start_duration_seconds_sum{provider="fake",result="ok"} 3`,
	)
}

type service struct{ err error }

func (s service) States() map[adaptor.State]int { return map[adaptor.State]int{adaptor.StateReady: 4} }
func (s service) Carried(context.Context) (adaptor.Carried, error) {
	return adaptor.Carried{Sandboxes: 4, Clients: 5, Calls: 600}, s.err
}

type inCluster struct{}

func (inCluster) Away() bool           { return true }
func (inCluster) Backlog() int         { return 2 }
func (inCluster) DroppedEvents() int64 { return 3 }

func TestWhatIsAskedAtEachScrape(t *testing.T) {
	m := New("fake")
	m.Watch(service{})
	m.WatchCluster(inCluster{})
	wantLines(t, scrape(t, m),
		`outrigger_adaptor_sandboxes{state="ready"} 4`, `outrigger_adaptor_sandboxes{state="stopping"} 0`,
		`outrigger_adaptor_relay_up 1`, `outrigger_adaptor_relay_clients 5`, `outrigger_adaptor_relay_calls 600`,
		`outrigger_adaptor_apiserver_away 1`, `outrigger_adaptor_peerpods_behind 2`, `outrigger_adaptor_events_dropped_total 3`,
	)
	m = New("fake")
	m.Watch(service{errors.New("gone")})
	text := scrape(t, m)
	wantLines(t, text, `outrigger_adaptor_relay_up 0`, `outrigger_adaptor_sandboxes{state="ready"} 4`)
	if strings.Contains(text, "relay_calls ") {
		t.Error("calls of a relay that does not answer")
	}
}

// onlyLister has one capability of a cloud that has more.
type onlyLister struct {
	provider.Provider
	provider.Lister
}

func TestMeasuredProviderKeepsTheCapabilities(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := New("fake")
	for _, p := range []provider.Provider{cloud, onlyLister{cloud, cloud}, m.Provider(onlyLister{cloud, cloud})} {
		if diff := cmp.Diff(provider.Capabilities(p), provider.Capabilities(m.Provider(p))); diff != "" {
			t.Error(diff)
		}
	}
}

func TestCallsAreMeasured(t *testing.T) {
	cloud, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	m := New("fake")
	p := m.Provider(cloud)
	instance, err := p.CreateInstance(t.Context(), "p", "k1", cloudinit.CloudConfig{}, provider.InstanceTypeSpec{})
	if err != nil {
		t.Fatal(err)
	}
	getter, ok := provider.As[provider.Getter](p)
	if !ok {
		t.Fatal("no Getter")
	}
	if got, err := getter.GetInstance(t.Context(), instance.ID); err != nil || got.ID != instance.ID {
		t.Errorf("%v, %v", got, err)
	}
	cloud.Inject(fake.Quota())
	if _, err := p.CreateInstance(t.Context(), "p", "k2", cloudinit.CloudConfig{}, provider.InstanceTypeSpec{}); !errors.Is(err, provider.ErrQuota) {
		t.Errorf("error %v", err)
	}
	if _, err := m.Provider(onlyLister{cloud, cloud}).(provider.Getter).GetInstance(t.Context(), "x"); !errors.Is(err, provider.ErrUnimplemented) {
		t.Errorf("a capability that is not there: %v", err)
	}
	wantLines(t, scrape(t, m),
		`outrigger_adaptor_provider_call_duration_seconds_count{call="CreateInstance",class="ok",provider="fake"} 1`,
		`outrigger_adaptor_provider_call_duration_seconds_count{call="CreateInstance",class="quota exceeded",provider="fake"} 1`,
		`outrigger_adaptor_provider_call_duration_seconds_count{call="GetInstance",class="ok",provider="fake"} 1`,
	)
}
