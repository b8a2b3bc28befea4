// SPDX-License-Identifier: Apache-2.0

package cloudsim

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
)

// Bench is a provider on a simulated cloud, to be measured.
type Bench struct {
	World    *World
	Provider provider.Provider
	Spec     provider.InstanceTypeSpec
	// Fill puts an instance with these tags into the cloud, as the provider
	// would have made it.
	Fill func(tags map[string]string)
	// Instances is how many the list has; 10,000 by default.
	Instances int
}

// Benchmark reports how many calls of the cloud's API an instance costs, and what
// a list costs against a plain fetch of the same replies. For the list the
// cloud's answers are played back: how long a cloud thinks is not ours.
func Benchmark(b *testing.B, o Bench) {
	creation, deletion := life(b, o)
	instances := cmp.Or(o.Instances, 10_000)
	for i := range instances {
		tags := OwnerTags(fmt.Sprint("bench-", i))
		tags[provider.TagCluster] = "bench"
		o.Fill(tags)
	}
	match := map[string]string{provider.TagCluster: "bench"}
	lister, ok := provider.As[provider.Lister](o.Provider)
	if !ok {
		b.Fatal("no provider.Lister")
	}
	list := func() {
		found, err := lister.ListInstances(b.Context(), match)
		if err != nil || len(found) != instances {
			b.Fatalf("the list has %d instances: %v", len(found), err)
		}
	}
	t := &tape{replies: map[string]*httptest.ResponseRecorder{}}
	o.World.setTape(t)
	defer o.World.setTape(nil)
	list()
	t.playing = true
	// One that has its connection, as the provider has: a handshake is as much as a megabyte.
	client := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DialContext: DialLoopback}
	defer client.CloseIdleConnections()
	t.fetch(b, client)
	var ours, plain []time.Duration
	for b.Loop() {
		ours, plain = append(ours, clock(list)), append(plain, clock(func() { t.fetch(b, client) }))
	}
	if t.missed > 0 {
		b.Errorf("%d requests had no reply on the tape: their cloud's time is in the list's", t.missed)
	}
	b.ReportMetric(creation, "calls/create")
	b.ReportMetric(deletion, "calls/delete")
	b.ReportMetric(float64(instances), "instances")
	b.ReportMetric(float64(len(t.order)), "list-calls")
	b.ReportMetric(float64(middle(ours).Microseconds())/1000, "list-ms")
	b.ReportMetric(float64(middle(ours))/float64(middle(plain)), "list/plain")
}

// life returns the calls of one creation and one deletion, on average.
func life(b *testing.B, o Bench) (creation, deletion float64) {
	const rounds = 10
	for i := range rounds + 1 {
		key := fmt.Sprint("life-", i)
		spec := o.Spec
		spec.Tags = OwnerTags(key)
		o.World.ResetCalls()
		made, err := o.Provider.CreateInstance(b.Context(), "pod-of-"+key, key, userData, spec)
		if err != nil {
			b.Fatal(err)
		}
		created := sum(o.World.Calls())
		o.World.ResetCalls()
		if err := o.Provider.DeleteInstance(context.WithoutCancel(b.Context()), made.ID); err != nil {
			b.Fatal(err)
		}
		if i > 0 { // the first also logs in, and reads the catalogue
			creation, deletion = creation+created/rounds, deletion+sum(o.World.Calls())/rounds
		}
	}
	return creation, deletion
}

func sum(calls map[string]int) (n float64) {
	for _, times := range calls {
		n += float64(times)
	}
	return n
}

// clock collects what others have left first: the garbage of a list would be the plain fetch's affair.
func clock(do func()) time.Duration {
	runtime.GC()
	begin := time.Now()
	do()
	return time.Since(begin)
}

func middle(values []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(values))[len(values)/2]
}

// tape has a cloud's replies, by requests except for what is in headers, such
// as signatures and times.
type tape struct {
	mu      sync.Mutex
	order   []*http.Request
	replies map[string]*httptest.ResponseRecorder
	playing bool
	missed  int
}

func (w *World) setTape(t *tape) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tape = t
}

// taped puts the tape, if there is one, before a server.
func (w *World) taped(next http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		t := w.tape
		w.mu.Unlock()
		if t == nil {
			next.ServeHTTP(out, r)
			return
		}
		t.serve(out, r, next)
	})
}

func (t *tape) serve(out http.ResponseWriter, r *http.Request, next http.Handler) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	key := fmt.Sprintf("%s %s %x", r.Method, r.RequestURI, sha256.Sum256(body))
	t.mu.Lock()
	reply := t.replies[key]
	t.mu.Unlock()
	if !t.playing || reply == nil {
		again := r.Clone(r.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		reply = httptest.NewRecorder()
		next.ServeHTTP(reply, again)
		t.keep(key, r, body, reply)
	}
	for name, values := range reply.Header() {
		out.Header()[name] = values
	}
	out.WriteHeader(reply.Code)
	_, _ = out.Write(reply.Body.Bytes()) // the caller may have gone
}

func (t *tape) keep(key string, r *http.Request, body []byte, reply *httptest.ResponseRecorder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.playing {
		t.missed++
		return
	}
	request, err := http.NewRequest(r.Method, "https://"+r.Host+r.RequestURI, bytes.NewReader(body))
	if err != nil {
		panic(err) // it was one
	}
	request.Header = r.Header.Clone()
	t.order, t.replies[key] = append(t.order, request), reply
}

// fetch asks for everything on the tape in its order and reads it.
func (t *tape) fetch(b *testing.B, client http.RoundTripper) {
	for _, request := range t.order {
		again := request.Clone(b.Context())
		again.Body, _ = request.GetBody()
		reply, err := client.RoundTrip(again)
		if err != nil {
			b.Fatal(err)
		}
		read, err := io.Copy(io.Discard, reply.Body)
		reply.Body.Close()
		if err != nil || read == 0 {
			b.Fatalf("%s %s: %d bytes, %v", request.Method, request.URL, read, err)
		}
	}
}
