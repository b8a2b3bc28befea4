// SPDX-License-Identifier: Apache-2.0

package tracing

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/timeline"
)

func life(t *Tracer, at time.Time, err error) {
	rec := adaptor.Record{ID: "s1", PodName: "p", PodNamespace: "n", Provider: "fake"}
	last := adaptor.Change{Kind: adaptor.ChangeDone, Sandbox: rec, Step: "create-instance", At: at.Add(3 * time.Second), Took: 2 * time.Second}
	if err != nil {
		last.Kind, last.Err = adaptor.ChangeFailed, err
	}
	for _, change := range []adaptor.Change{
		{Kind: adaptor.ChangeDone, Sandbox: rec, Step: "reserve", At: at.Add(10 * time.Millisecond), Took: 10 * time.Millisecond},
		last,
		{Kind: adaptor.ChangeStarted, Sandbox: rec, At: at.Add(3 * time.Second), Took: 2 * time.Second, Err: err},
		{Kind: adaptor.ChangeTimeline, Sandbox: rec, Timeline: timeline.Timeline{Steps: []timeline.Step{
			{Name: "kernel", Where: timeline.Guest, Start: at.Add(time.Second), End: at.Add(2 * time.Second)}, {Name: "unheard-of", Where: timeline.Guest},
		}}},
		{Kind: adaptor.ChangeStopping, Sandbox: rec, At: at.Add(5 * time.Second)},
		{Kind: adaptor.ChangeGone, Sandbox: rec, At: at.Add(6 * time.Second)},
	} {
		t.Observe(change)
	}
}

func TestOneTraceForTheStart(t *testing.T) {
	for _, err := range []error{nil, errors.New("no more")} {
		kept := tracetest.NewInMemoryExporter()
		tracer, newErr := newTracer("node1", sdktrace.WithSyncer(kept))
		if newErr != nil {
			t.Fatal(newErr)
		}
		at := time.Unix(1e9, 0)
		life(tracer, at, err)
		took, traces := map[string]time.Duration{}, map[trace.TraceID]bool{}
		failed := 0
		for _, span := range kept.GetSpans() {
			took[span.Name] = span.EndTime.Sub(span.StartTime)
			if span.Status.Code == codes.Error {
				failed++
			}
			if span.Name == "reserve" || span.Name == "kernel" {
				traces[span.SpanContext.TraceID()] = true
				if !span.Parent.IsValid() {
					t.Errorf("step %s has no parent", span.Name)
				}
			}
		}
		want := map[string]time.Duration{
			"reserve": 10 * time.Millisecond, "kernel": time.Second, "create-instance": 2 * time.Second,
			"start sandbox": 3 * time.Second, "remove sandbox": time.Second,
		}
		if diff := cmp.Diff(want, took); diff != "" {
			t.Error(diff)
		}
		if len(traces) != 1 {
			t.Errorf("node and guest have %d traces", len(traces))
		}
		if err != nil != (failed == 2) {
			t.Errorf("%d spans failed with error %v", failed, err)
		}
		if len(tracer.steps)+len(tracer.stopping)+len(tracer.started) > 0 {
			t.Error("what is over is kept")
		}
	}
}

// TestCollectorGetsThem sends to the address that the environment names.
func TestCollectorGetsThem(t *testing.T) {
	got := make(chan int, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/v1/traces" {
			got <- len(body)
		}
	}))
	defer collector.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.URL)
	tracer, err := New(t.Context(), "node1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	life(tracer, time.Now(), nil)
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := <-got; n == 0 {
		t.Error("nothing was sent")
	}
}

func TestWantedOnlyWithACollector(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, false},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318/v1/traces"}, true},
		{map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "true"}, false},
	} {
		if got := Wanted(func(name string) string { return c.env[name] }); got != c.want {
			t.Errorf("%v: %t", c.env, got)
		}
	}
}
