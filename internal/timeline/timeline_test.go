// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/protocol/guest"
	pb "github.com/outrigger/outrigger/internal/protocol/timeline"
)

var update = flag.Bool("update", false, "write the golden files")

var zero = time.Unix(1_700_000_000, 0).UTC()

// step is one that begins and ends so many milliseconds after zero.
func step(where, name string, start, end int, detail string) Step {
	return Step{name, where, zero.Add(time.Duration(start) * time.Millisecond), zero.Add(time.Duration(end) * time.Millisecond), detail}
}

func names(t Timeline) (all []string) {
	for _, s := range t.Steps {
		all = append(all, s.Name)
	}
	return all
}

func start() Timeline {
	t := Timeline{Uncertainty: 1200 * time.Microsecond}
	return t.With(
		step(Node, "connect", 400, 2000, ""), step(Node, "create-instance", 10, 400, ""), step(Node, "provider-call", 12, 399, ""),
		step(Node, "ready", 2000, 2001, ""), step(Guest, "kernel", 300, 1200, ""), step(Guest, "agent", 1500, 1800, "until it serves"),
		step(Guest, "download-layer", 2100, 2400, "1/2 4000 KiB, registry 200 ms, <decompress> 90 ms"), step(Guest, "runtime-start", 2450, 2500, "app"))
}

func TestStepsAreInOrder(t *testing.T) {
	want := []string{"create-instance", "provider-call", "kernel", "connect", "agent", "ready", "download-layer", "runtime-start"}
	if diff := cmp.Diff(want, names(start())); diff != "" {
		t.Error(diff)
	}
	late := start().With(step(Guest, "runtime-start", 2500+60_001, 62_600, "somebody's, later"), step(Node, "call-start-container", 2500+60_000, 62_501, ""))
	if got := names(late); len(got) != len(want)+2 {
		t.Errorf("what begins a minute after the rest belongs to it: %v", got)
	}
	late = start().With(step(Guest, "runtime-start", 2500+60_001, 62_600, "somebody's, later"))
	if diff := cmp.Diff(want, names(late)); diff != "" {
		t.Error(diff)
	}
}

// TestHostileGuest: whatever a guest says, the node's steps stay and a terminal is safe.
func TestHostileGuest(t *testing.T) {
	hostile := &pb.Timeline{Steps: []*pb.Step{
		{Name: "good", Where: Guest, StartNano: 10, EndNano: 20, Detail: "\x1b[2Jclear\u202e\n" + strings.Repeat("ü", 500)},
		{Name: "\x1b]0;title", Where: Guest}, {Name: "", Where: Guest}, {Name: strings.Repeat("a", 33), Where: Guest},
		{Name: "backwards", StartNano: 20, EndNano: 10}, {Name: "for-ever", StartNano: math.MinInt64, EndNano: math.MaxInt64},
		{Name: "node-like", Where: Node, StartNano: 10, EndNano: 20},
	}}
	for range 10 * maxSteps {
		hostile.Steps = append(hostile.Steps, &pb.Step{Name: "flood", StartNano: 11, EndNano: 12})
	}
	placed := Timeline{Steps: OfGuest(hostile.Steps, Clock{Offset: time.Duration(zero.UnixNano())})}
	if len(placed.Steps) > maxSteps {
		t.Errorf("%d steps of a guest", len(placed.Steps))
	}
	for _, s := range placed.Steps {
		if s.Where != Guest {
			t.Errorf("a guest's step %s is the %s's", s.Name, s.Where)
		}
		if len(s.Detail) > maxDetail || strings.ContainsAny(s.Detail, "\x1b\u202e\n") || !utf8.ValidString(s.Detail) {
			t.Errorf("detail %q", s.Detail)
		}
	}
	all := placed.Plausible(zero, zero.Add(time.Second)).With(step(Node, "connect", 0, 5, ""))
	if got := names(all); got[0] != "connect" || len(got) > maxSteps+1 {
		t.Errorf("the node's step is lost among %d, the first of them %v", len(got), got[:3])
	}
	for _, not := range []string{"backwards", "for-ever"} {
		if strings.Contains(strings.Join(names(all), " "), not) {
			t.Errorf("%s is left", not)
		}
	}
	if !strings.Contains(all.Missing, "2 steps of the guest are not between") {
		t.Errorf("missing: %q", all.Missing)
	}
	for _, form := range Forms {
		var out bytes.Buffer
		if err := Write(&out, form, "p", all, 80); err != nil || bytes.ContainsAny(out.Bytes(), "\x1b\u202e") {
			t.Errorf("%s: %v, %.200q", form, err, out.String())
		}
	}
}

// TestDrawsAnything: no picture fails for lack of steps or for absurd times.
func TestDrawsAnything(t *testing.T) {
	far := Step{Name: "far", Where: Node, Start: time.Unix(0, 0), End: time.Unix(1<<33, 0)}
	for _, line := range []Timeline{{}, {Missing: "all"}, Timeline{}.With(step(Node, "point", 0, 0, "")), {Steps: []Step{far}}, Timeline{}.With(far, step(Node, "point", 9, 8, ""))} {
		for _, form := range Forms {
			if err := Write(io.Discard, form, "p", line, 10); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestMessagesAreTimelines(t *testing.T) {
	want := start()
	want.Missing = "something"
	got := FromProto(ToProto(want))
	equal := cmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) })
	if diff := cmp.Diff(want, got, equal); diff != "" {
		t.Error(diff)
	}
}

// clockGuest is a guest whose clock is behind, and whose replies take their time.
type clockGuest struct {
	guest.GuestService
	now func() int64
	err error
}

func (c clockGuest) Timeline(context.Context, *guest.TimelineRequest) (*guest.TimelineResponse, error) {
	return &guest.TimelineResponse{NowNano: c.now()}, c.err
}

func TestClocksAreCompared(t *testing.T) {
	began := zero
	c := compare(began, began.Add(10*time.Millisecond), int64(3*time.Second))
	if want := time.Duration(zero.UnixNano()) + 5*time.Millisecond - 3*time.Second; c.Offset != want || c.Uncertainty != 5*time.Millisecond {
		t.Errorf("%v, want %v to within 5 ms", c, want)
	}
	worse := Clock{1, time.Second}
	for _, got := range []Clock{c.Better(worse), worse.Better(c), Clock{}.Better(c), c.Better(Clock{})} {
		if got != c {
			t.Errorf("%v is better than %v", got, c)
		}
	}
	behind := 17 * time.Hour
	_, c, err := Ask(t.Context(), clockGuest{now: func() int64 { return time.Now().Add(-behind).UnixNano() }})
	if err != nil || (c.Offset-behind).Abs() > c.Uncertainty {
		t.Errorf("%v, %v: not %v to within its own uncertainty", c, err, behind)
	}
}

func TestOlderGuest(t *testing.T) {
	_, _, err := Ask(t.Context(), clockGuest{now: func() int64 { return 0 }, err: status.Error(codes.Unimplemented, "what?")})
	if got := WhyNot(err, "the agent"); got != "the agent is older than timelines, or not Outrigger's" {
		t.Error(got)
	}
	if got := WhyNot(errors.New("broke\x1b"), "the agent"); got != "the agent does not answer: broke " {
		t.Errorf("%q", got)
	}
}

// TestGolden: the pictures are those in testdata, which somebody has looked at; with
// -update they are written.
func TestGolden(t *testing.T) {
	line := start()
	line.Missing = "nothing & nobody"
	for _, form := range Forms {
		var out bytes.Buffer
		if err := Write(&out, form, "web", line, 80); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join("testdata", "start."+form)
		if *update {
			if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), out.String()); diff != "" {
			t.Errorf("%s: %s", form, diff)
		}
	}
}

func TestForms(t *testing.T) {
	for form, check := range map[string]func([]byte) error{
		"json": func(data []byte) error { return json.Unmarshal(data, new(map[string]any)) },
		"svg":  func(data []byte) error { return xml.Unmarshal(data, new(struct{ XMLName xml.Name })) },
		"text": func(data []byte) error {
			for row := range strings.Lines(string(data)) {
				if n := utf8.RuneCountInString(strings.TrimSuffix(row, "\n")); n > 80 {
					return errors.New("longer than 80 columns: " + row)
				}
			}
			return nil
		},
	} {
		var out bytes.Buffer
		if err := Write(&out, form, "web", start(), 80); err != nil || check(out.Bytes()) != nil {
			t.Errorf("%s: %v, %v\n%s", form, err, check(out.Bytes()), &out)
		}
	}
}
