// SPDX-License-Identifier: Apache-2.0

// Package tracing sends a trace of each sandbox's start and removal to an
// OpenTelemetry collector, over OTLP and HTTP. The collector's address and all
// else are the variables of the OpenTelemetry specification (OTEL_*).
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/timeline"
	"github.com/outrigger/outrigger/internal/version"
)

// Wanted reports whether the environment names a collector.
func Wanted(getenv func(string) string) bool {
	return getenv("OTEL_SDK_DISABLED") != "true" &&
		(getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
}

// Tracer is an [adaptor.Observer]. It makes a trace when a start or a removal
// is over, from the times of its steps.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer

	mu sync.Mutex
	// steps by sandbox id, until the sandbox is started; stopping likewise.
	steps    map[string][]adaptor.Change
	stopping map[string]adaptor.Change
	// started are the contexts of starts whose guests have not reported their steps yet.
	started map[string]context.Context
}

// New connects to the collector that the environment names. A collector that
// does not answer costs spans, nothing else.
func New(ctx context.Context, node string, log *slog.Logger) (*Tracer, error) {
	exporter, err := otlptracehttp.New(ctx)
	if err != nil {
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_ENDPOINT: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces", "error", err) }))
	return newTracer(node, sdktrace.WithBatcher(exporter))
}

func newTracer(node string, to sdktrace.TracerProviderOption) (*Tracer, error) {
	about, err := resource.New(context.Background(),
		resource.WithAttributes(
			attribute.String("service.name", "cloud-api-adaptor"), attribute.String("service.version", version.Version),
			attribute.String("k8s.node.name", node)),
		resource.WithFromEnv(), // OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	provider := sdktrace.NewTracerProvider(to, sdktrace.WithResource(about))
	return &Tracer{
		provider: provider, tracer: provider.Tracer("github.com/outrigger/outrigger/internal/peerpods/adaptor"),
		steps: map[string][]adaptor.Change{}, stopping: map[string]adaptor.Change{}, started: map[string]context.Context{},
	}, nil
}

// Close sends what is left.
func (t *Tracer) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// Observe implements [adaptor.Observer].
func (t *Tracer) Observe(change adaptor.Change) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id := change.Sandbox.ID
	switch change.Kind {
	case adaptor.ChangeDone, adaptor.ChangeFailed:
		t.steps[id] = append(t.steps[id], change)
	case adaptor.ChangeStarted:
		t.started[id] = t.start(change, t.steps[id])
		delete(t.steps, id)
	case adaptor.ChangeTimeline:
		t.guest(t.started[id], change.Timeline)
		delete(t.started, id)
	case adaptor.ChangeStopping:
		t.stopping[id] = change
	case adaptor.ChangeGone:
		t.stop(t.stopping[id], change)
		delete(t.stopping, id)
		delete(t.steps, id)
		delete(t.started, id)
	}
}

// start makes the trace of CreateVM and StartVM together, and returns its context.
func (t *Tracer) start(change adaptor.Change, steps []adaptor.Change) context.Context {
	began := change.At.Add(-change.Took)
	if len(steps) > 0 {
		began = steps[0].At.Add(-steps[0].Took)
	}
	ctx, root := t.tracer.Start(context.Background(), "start sandbox", trace.WithTimestamp(began), trace.WithAttributes(about(&change.Sandbox)...))
	for _, step := range steps {
		_, span := t.tracer.Start(ctx, step.Step, trace.WithTimestamp(step.At.Add(-step.Took)))
		fail(span, step.Err)
		span.End(trace.WithTimestamp(step.At))
	}
	fail(root, change.Err)
	root.End(trace.WithTimestamp(change.At))
	return ctx
}

// guest adds the steps of guest and relay to the trace of the start.
func (t *Tracer) guest(start context.Context, reported timeline.Timeline) {
	if start == nil {
		return // by an earlier process
	}
	for _, step := range reported.Steps {
		if !slices.Contains(timeline.Names, step.Name) {
			continue // a part of the adaptor's, or unheard of
		}
		_, span := t.tracer.Start(start, step.Name, trace.WithTimestamp(step.Start), trace.WithAttributes(
			attribute.String("where", step.Where), attribute.String("detail", step.Detail)))
		span.End(trace.WithTimestamp(step.End))
	}
}

func (t *Tracer) stop(began, over adaptor.Change) {
	if began.At.IsZero() {
		return // by an earlier process
	}
	_, span := t.tracer.Start(context.Background(), "remove sandbox", trace.WithTimestamp(began.At), trace.WithAttributes(about(&over.Sandbox)...))
	span.End(trace.WithTimestamp(over.At))
}

func fail(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
	}
}

func about(rec *adaptor.Record) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("sandbox", rec.ID),
		attribute.String("provider", rec.Provider),
		attribute.String("instance", rec.InstanceID),
		attribute.String("k8s.pod.name", rec.PodName),
		attribute.String("k8s.namespace.name", rec.PodNamespace),
		attribute.String("k8s.pod.uid", rec.PodUID),
	}
}
