// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/fake"
	"github.com/outrigger/outrigger/provider/plugin"
)

// tokenCloud fails calls unless its token is right.
type tokenCloud struct {
	*fake.Cloud
	token string
	stand *stand
}

func (c tokenCloud) ListInstances(ctx context.Context, match map[string]string) ([]provider.Instance, error) {
	if c.token == "expired" {
		return nil, fmt.Errorf("%w: the token has expired", provider.ErrUnauthenticated)
	}
	return c.Cloud.ListInstances(ctx, match)
}

func (c tokenCloud) Teardown() error {
	c.stand.mu.Lock()
	defer c.stand.mu.Unlock()
	c.stand.torn = append(c.stand.torn, c.token)
	return nil
}

type tokenConfig struct {
	Token config.Secret `env:"TOKEN" required:"true" usage:"token"`
	Size  int64         `flag:"size" env:"SIZE" default:"1" min:"1" usage:"size"`
	Zone  string        `env:"ZONE" label:"zone" usage:"zone"`
}

type stand struct {
	*Clouds
	fake  *fake.Cloud
	torn  []string
	loads int
	zone  string // of the provider that was opened last
	mu    sync.Mutex
	calls []Call
	woken chan string
}

func newStand(t *testing.T, interval time.Duration) *stand {
	t.Helper()
	c, err := fake.New(fake.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{fake: c, woken: make(chan string, 1000)}
	s.Clouds = New(Options{
		Owner: map[string]string{provider.TagCluster: "c1"}, ListInterval: interval, Retry: time.Hour,
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		Load:    s.load,
		Listed:  func(name string) { s.woken <- name },
		Observe: func(c Call) { s.mu.Lock(); defer s.mu.Unlock(); s.calls = append(s.calls, c) },
	})
	t.Cleanup(func() { s.Close() })
	return s
}

func (s *stand) load(_ context.Context, o plugin.Options) (*plugin.Loaded, error) {
	s.loads++
	if o.Name == "legacy" {
		return &plugin.Loaded{Name: o.Name, Carrier: plugin.GoPlugin, Cloud: legacy{}}, nil
	}
	if o.Name != "fake" && o.Name != "other" {
		return nil, fmt.Errorf("%w: Unsupported cloud provider: %s", provider.ErrNotFound, o.Name)
	}
	return &plugin.Loaded{Name: o.Name, Cloud: config.New(o.Name, func(c tokenConfig) (provider.Provider, error) {
		s.zone = c.Zone
		return tokenCloud{s.fake, c.Token.Reveal(), s}, nil
	})}, nil
}

type legacy struct{}

func (legacy) ParseCmd(*flag.FlagSet)                  {}
func (legacy) LoadEnv()                                {}
func (legacy) NewProvider() (provider.Provider, error) { return nil, errors.New("not reached") }

func (s *stand) set(keys ...string) ([]string, error) {
	m := map[string]string{}
	for _, pair := range keys {
		key, value, _ := strings.Cut(pair, "=")
		m[key] = value
	}
	return s.Configure(NewSettings("the ConfigMap", m))
}

func TestOldSettingsGoOnUntilNewOnesAreRight(t *testing.T) {
	s := newStand(t, time.Nanosecond)
	if _, err := s.set("TOKEN=a", "CLOUD_PROVIDER=fake"); err != nil {
		t.Fatal(err)
	}
	c, err := s.Get("")
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []struct{ keys, want string }{
		{"SIZE=much TOKEN=b", "SIZE"}, {"SIZE=2", "TOKEN"}, {"TOKEN=expired", "keeps its former settings"},
	} {
		changed, err := s.set(strings.Fields(wrong.keys)...)
		if err == nil || !strings.Contains(err.Error(), wrong.want) || !strings.Contains(err.Error(), "the ConfigMap") || len(changed) > 0 {
			t.Errorf("%s: %v, %v; want an error with %q", wrong.keys, changed, err, wrong.want)
		}
		if _, err := c.Fresh(t.Context(), time.Now()); err != nil {
			t.Errorf("after %s: %v", wrong.keys, err)
		}
	}
	if changed, err := s.set("TOKEN=c"); err != nil || len(changed) != 1 {
		t.Errorf("right again: %v, %v", changed, err)
	}
	if changed, err := s.set("TOKEN=c", "SOMEBODY_ELSES=x"); err != nil || len(changed) != 0 {
		t.Errorf("nothing new: %v, %v", changed, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(s.torn)
	if got := strings.Join(s.torn, " "); got != "a c expired" {
		t.Errorf("torn down: %s", got)
	}
	if s.loads != 1 {
		t.Errorf("loaded %d times", s.loads)
	}
}

// TestSettingsFromTheNode: what the ConfigMap does not say comes from the labels of
// this program's node; while these cannot be read it is tried again.
func TestSettingsFromTheNode(t *testing.T) {
	s := newStand(t, 0)
	labels, away := map[string]string{"zone": "z1"}, errors.New("the API server is away")
	asked := 0
	s.options.NodeLabels = func(context.Context) (map[string]string, error) { asked++; return labels, away }
	if _, err := s.set("CLOUD_PROVIDER=fake", "TOKEN=a"); !errors.Is(err, away) {
		t.Errorf("without labels: %v", err)
	}
	away = nil
	if _, err := s.set("CLOUD_PROVIDER=fake", "TOKEN=b"); err != nil || s.zone != "z1" {
		t.Errorf("%v, zone %s", err, s.zone)
	}
	asked = 0
	if _, err := s.set("CLOUD_PROVIDER=fake", "TOKEN=b", "ZONE=z2"); err != nil || s.zone != "z2" || asked != 0 {
		t.Errorf("%v, zone %s, asked %d times", err, s.zone, asked)
	}
}

func TestRunningCallsKeepTheirProvider(t *testing.T) {
	s := newStand(t, time.Nanosecond)
	s.set("TOKEN=a")
	c, err := s.Get("fake")
	if err != nil {
		t.Fatal(err)
	}
	block, gate := fake.Block(fake.OpDelete)
	s.fake.Inject(block)
	done := make(chan error)
	go func() { done <- c.Delete(context.Background(), "i-1") }()
	<-gate.Reached()
	if changed, err := s.set("TOKEN=b"); err != nil || len(changed) != 1 {
		t.Fatal(changed, err)
	}
	s.mu.Lock()
	torn := len(s.torn)
	s.mu.Unlock()
	if torn > 0 {
		t.Error("torn down under a call")
	}
	gate.Open()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestErrorsSayWhatToDo(t *testing.T) {
	s := newStand(t, time.Nanosecond)
	s.set("X=1")
	for name, want := range map[string][]string{
		"":       {"CLOUD_PROVIDER", "the ConfigMap"},
		"legacy": {"process environment", "provider/config.New", "Go plugin"},
		"nobody": {"Unsupported cloud provider: nobody"},
		"fake":   {"TOKEN", "required"},
	} {
		_, err := s.Get(name)
		for _, part := range want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("provider %q: %v; want it to say %q", name, err, part)
			}
		}
	}
	loads := s.loads
	s.Get("nobody")
	if s.loads != loads {
		t.Error("an error is not believed for a while")
	}
}

func TestSeveralProvidersAtOnce(t *testing.T) {
	s := newStand(t, time.Nanosecond)
	s.set("TOKEN=a")
	for _, name := range []string{"fake", "other"} {
		if c, err := s.Get(name); err != nil || c.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOneListServesAll(t *testing.T) {
	s := newStand(t, 50*time.Millisecond)
	s.set("TOKEN=a")
	c, err := s.Get("fake")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 100 {
		all.Go(func() {
			asked := time.Now()
			snapshot, err := c.Fresh(context.Background(), asked)
			if err != nil || !snapshot.Began.After(asked) {
				t.Errorf("%v, %v", snapshot, err)
			}
		})
	}
	all.Wait()
	if n := s.fake.Calls(fake.OpList); n > 3 {
		t.Errorf("%d lists for 100 who asked at once", n)
	}
}

func TestFailedListsPause(t *testing.T) {
	s := newStand(t, time.Millisecond)
	s.set("TOKEN=a")
	c, err := s.Get("fake")
	if err != nil {
		t.Fatal(err)
	}
	s.fake.Inject(fake.Throttled(fake.OpList).Repeated(3))
	for range 3 {
		if _, err := c.Fresh(t.Context(), time.Now()); !errors.Is(err, provider.ErrUnavailable) {
			t.Errorf("%v, want unavailable", err)
		}
	}
	if _, err := c.Fresh(t.Context(), time.Now()); err != nil {
		t.Error(err)
	}
	if len(s.woken) != 4 {
		t.Errorf("%d wake-ups for 4 lists", len(s.woken))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.calls) != 4 || s.calls[0].Operation != "list" || s.calls[0].Err == nil {
		t.Errorf("observed %+v", s.calls)
	}
}

// TestDistrustsTheList: what does not carry our tag is nobody's to delete.
func TestDistrustsTheList(t *testing.T) {
	list := []provider.Instance{
		{ID: "1", Key: "k", Tags: map[string]string{provider.TagCluster: "c1"}},
		{ID: "2", Key: "k", Tags: map[string]string{provider.TagCluster: "c2"}},
		{ID: "3", Key: "k"},
		{ID: "4", Tags: map[string]string{provider.TagCluster: "c1"}},
	}
	s := newSnapshot(time.Now(), list, map[string]string{provider.TagCluster: "c1"})
	if len(s.Instances) != 1 || s.OfID("1") == nil || len(s.OfKey("k")) != 1 || s.OfID("2") != nil {
		t.Errorf("%+v", s)
	}
}

func TestPluginVariables(t *testing.T) {
	env := map[string]string{plugin.EnableVariable: "true", plugin.PathVariable: "/p/aws.so", "AWS_KEY": "leak", "PATH": "/bin"}
	s := NewSettings("", map[string]string{plugin.PathVariable: "/p/gcp.so", "PATH": "/evil"})
	getenv := s.pluginEnv(func(name string) string { return env[name] })
	if got := getenv(plugin.PathVariable); got != "/p/gcp.so" {
		t.Errorf("path %q, want that of the ConfigMap", got)
	}
	if got := getenv("PATH"); got != "/bin" {
		t.Errorf("PATH %q, want the process's", got)
	}
	for name, want := range map[string]string{"gcp": "true", "aws": ""} {
		if got := onlyFor(name, "gcp", getenv)(plugin.EnableVariable); got != want {
			t.Errorf("provider %s: external plugins %q, want %q", name, got, want)
		}
	}
}
