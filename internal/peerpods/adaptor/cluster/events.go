// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/internal/kubeapi"
	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// component is the source of our Events.
const component = "cloud-api-adaptor"

// Types of Events.
const (
	normal  = "Normal"
	warning = "Warning"
)

// Reasons that belong to no provider.
const (
	reasonClaimFailed   = "ClaimFailed"
	reasonSecretMissing = "PullSecretMissing"
	reasonSecretDenied  = "PullSecretForbidden"
	reasonSecretInvalid = "PullSecretInvalid"
	reasonSecretTooBig  = "PullSecretsTooLarge"
)

const (
	// maxMessage is what the API server takes (core/v1 Event validation).
	maxMessage = 1024
	// maxWaiting Events wait while the API server is unreachable.
	maxWaiting = 256
	// maxEventAge is how old an Event may be and still be news.
	maxEventAge = 10 * time.Minute
	// sameWithin is the time within which Events of one pod and reason are
	// deduplicated.
	sameWithin = time.Hour
	// maxSeries bounds the memory of the recorder.
	maxSeries = 1024
	// quotedLines is how much of a console stands in an Event.
	quotedLines = 3
)

// A pod that fails again and again writes podBurst Events at once and then one
// each podInterval; all pods of the node together eventRate a second.
const (
	podBurst    = 10
	podInterval = 20 * time.Second
	eventRate   = 10
	eventBurst  = 50
)

// happening is an Event to be written.
type happening struct {
	rec                   adaptor.Record
	kind, reason, message string
	at                    time.Time
}

// series is one Event object, which counts its repetitions.
type series struct {
	namespace, name string
	count           int
	last            time.Time
}

// recorder writes Events one by one in the background, so that no sandbox waits
// for them.
type recorder struct {
	cluster *Cluster
	waiting chan happening
	dropped atomic.Int64
	all     *rate.Limiter

	// These belong to run.
	series map[string]*series
	pods   map[string]*rate.Limiter
}

func newRecorder(c *Cluster) *recorder {
	return &recorder{
		cluster: c, waiting: make(chan happening, maxWaiting),
		all:    rate.NewLimiter(eventRate, eventBurst),
		series: map[string]*series{}, pods: map[string]*rate.Limiter{},
	}
}

// about returns what is known of an instance besides its name.
func about(rec *adaptor.Record) string {
	text := rec.InstanceID
	for _, more := range []string{rec.InstanceType, rec.Zone} {
		if more != "" {
			text += ", " + more
		}
	}
	return text
}

// observe emits the Events that the pod's owner should see.
func (r *recorder) observe(change adaptor.Change) {
	rec := change.Sandbox
	switch change.Kind {
	case adaptor.ChangeDone:
		if change.Step == "create-instance" {
			text := fmt.Sprintf("%s made instance %s (%s) in %s", r.cluster.opts.Provider, rec.InstanceName, about(&rec), rounded(change.Took))
			if rec.PoolVM != "" {
				text = fmt.Sprintf("took VM %s (%s) of a pool in %s", rec.PoolVM, about(&rec), rounded(change.Took))
			}
			r.emit(&rec, normal, claims.ReasonInstanceCreated, text)
		}
	case adaptor.ChangeStarted:
		if change.Err == nil {
			r.emit(&rec, normal, claims.ReasonReady, fmt.Sprintf("the pod's VM is ready, %s after it was asked for", rounded(change.Took)))
		}
	case adaptor.ChangeAttested:
		if change.Err != nil {
			r.warn(&rec, claims.ReasonAttestationRefused, claims.AttestationMessage(change.Attestation, change.Err))
		} else {
			r.emit(&rec, normal, claims.ReasonAttested, claims.AttestationMessage(change.Attestation, nil))
		}
	case adaptor.ChangeFailed:
		if !interrupted(change.Err) {
			r.warn(&rec, claims.Reason(change.Err), describe(change.Err))
		}
	case adaptor.ChangeStuck:
		if !errors.Is(change.Err, errRelease) {
			r.warn(&rec, "Removal"+claims.Reason(change.Err), "the pod's VM is not removed yet, it is tried again: "+describe(change.Err))
		}
	}
}

func rounded(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Millisecond)
}

// describe returns what failed, why, and what to do, within what an Event holds.
func describe(err error) string {
	text, end := err.Error(), ""
	if step, ok := errors.AsType[*adaptor.StepError](err); ok {
		text = fmt.Sprintf("step %s: %v", step.Step, step.Err)
		if step.Console != "" {
			lines := strings.Split(strings.TrimSpace(step.Console), "\n")
			lines = lines[max(0, len(lines)-quotedLines):]
			end = "; the VM's console ends with: " + claims.Cut(strings.Join(lines, " | "), 300)
		}
	}
	if hint := claims.Hint(err); hint != "" {
		end = "; " + claims.Cut(hint, 300) + end
	}
	return claims.Cut(text, maxMessage-100-len(end)) + end
}

func (r *recorder) warn(rec *adaptor.Record, reason, message string) {
	r.emit(rec, warning, reason, message)
}

// emit hands an Event to run.
func (r *recorder) emit(rec *adaptor.Record, kind, reason, message string) {
	if rec.PodName == "" || rec.PodNamespace == "" {
		return
	}
	select {
	case r.waiting <- happening{*rec, kind, reason, claims.Cut(message, maxMessage), r.cluster.opts.Now()}:
	default:
		r.dropped.Add(1)
	}
}

// run writes Events until ctx ends.
func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case h := <-r.waiting:
			r.deliver(ctx, h)
		}
	}
}

// deliver writes one Event, again and again while the API server is
// unreachable.
func (r *recorder) deliver(ctx context.Context, h happening) {
	for wait := r.cluster.opts.MinRetry; ; wait = min(2*wait, r.cluster.opts.MaxRetry) {
		err := r.cluster.noteReachable(r.try(ctx, h))
		switch {
		case err == nil:
			return
		case !unreachable(err), r.cluster.opts.Now().Sub(h.at) > maxEventAge:
			r.dropped.Add(1)
			r.cluster.opts.Log.Warn("an Event is lost", "pod", h.rec.PodName, "namespace", h.rec.PodNamespace, "reason", h.reason, "error", err)
			return
		}
		if poll.Sleep(ctx, wait) != nil {
			return
		}
	}
}

func (r *recorder) try(ctx context.Context, h happening) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	uid, err := r.cluster.podUID(ctx, &h.rec)
	if err != nil || uid == "" {
		return err // without a pod there is no object for the Event
	}
	key := uid + " " + h.kind + " " + h.reason
	known := r.series[key]
	if known != nil && h.at.Sub(known.last) < sameWithin {
		return r.countRepetition(ctx, key, known, h)
	}
	if !r.allowed(uid) {
		r.dropped.Add(1)
		return nil
	}
	return r.write(ctx, key, uid, h)
}

// countRepetition counts a repetition of an earlier Event and reports whether it is one.
func (r *recorder) countRepetition(ctx context.Context, key string, known *series, h happening) error {
	if known.last != h.at {
		known.count++
		known.last = h.at
	}
	if !r.allowed(strings.Fields(key)[0]) {
		return nil // the next one that is written has the count
	}
	patch := map[string]any{"count": known.count, "lastTimestamp": metav1.NewTime(h.at), "message": h.message}
	err := r.cluster.api.Patch(ctx, kubeapi.Path(kubeapi.Core, known.namespace, "events", known.name), patch)
	if apierrors.IsNotFound(err) { // Events live for an hour
		delete(r.series, key)
		return r.write(ctx, key, strings.Fields(key)[0], h)
	}
	return err
}

func (r *recorder) allowed(uid string) bool {
	if len(r.pods) > maxSeries {
		clear(r.pods)
	}
	if r.pods[uid] == nil {
		r.pods[uid] = rate.NewLimiter(rate.Every(podInterval), podBurst)
	}
	return r.pods[uid].Allow() && r.all.Allow()
}

func (r *recorder) write(ctx context.Context, key, uid string, h happening) error {
	// The same for each attempt to write it, and not that of another Event.
	name := fmt.Sprintf("%s.%x", claims.Cut(h.rec.PodName, 200), h.at.UnixNano())
	err := r.cluster.api.Create(ctx, kubeapi.Path(kubeapi.Core, h.rec.PodNamespace, "events"), r.event(name, uid, h), nil)
	if err != nil && !apierrors.IsAlreadyExists(err) { // it exists when the answer to an earlier try was lost
		return err
	}
	if len(r.series) > maxSeries {
		clear(r.series)
	}
	r.series[key] = &series{h.rec.PodNamespace, name, 1, h.at}
	return nil
}

// event returns a whole core/v1 Event.
func (r *recorder) event(name, uid string, h happening) map[string]any {
	node, at := r.cluster.opts.NodeName, metav1.NewTime(h.at)
	return map[string]any{
		"apiVersion": "v1", "kind": "Event",
		"metadata":       map[string]string{"namespace": h.rec.PodNamespace, "name": name},
		"involvedObject": map[string]string{"apiVersion": "v1", "kind": "Pod", "namespace": h.rec.PodNamespace, "name": h.rec.PodName, "uid": uid},
		"reason":         h.reason, "message": h.message, "type": h.kind,
		"source":         map[string]string{"component": component, "host": node},
		"firstTimestamp": at, "lastTimestamp": at, "count": 1,
		"reportingComponent": component, "reportingInstance": node,
	}
}
