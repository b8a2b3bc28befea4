// SPDX-License-Identifier: Apache-2.0

package checkrun

import (
	"context"
	"strings"
	"testing"
)

func TestOutcomes(t *testing.T) {
	for name, c := range map[string]struct {
		check  func(*Recorder)
		status string
		says   string
	}{
		"passes":               {func(r *Recorder) { r.Logf("a %s", "note") }, Passed, "a note"},
		"fails and goes on":    {func(r *Recorder) { r.Errorf("wrong"); r.Logf("more") }, Failed, "wrong|more"},
		"fails and ends":       {func(r *Recorder) { r.Fatalf("wrong"); r.Logf("more") }, Failed, "wrong"},
		"is skipped":           {func(r *Recorder) { r.Skipf("nothing to do"); r.Logf("more") }, Skipped, "nothing to do"},
		"fails, then skips":    {func(r *Recorder) { r.Errorf("wrong"); r.Skipf("rest") }, Failed, "wrong|rest"},
		"cleans up in reverse": {func(r *Recorder) { r.Cleanup(func() { r.Logf("1") }); r.Cleanup(func() { r.Logf("2") }); r.Fatalf("0") }, Failed, "0|2|1"},
	} {
		t.Run(name, func(t *testing.T) {
			got := Run(t.Context(), c.check)
			if says := strings.Join(got.Messages, "|"); got.Status != c.status || says != c.says {
				t.Errorf("%s %q, want %s %q", got.Status, says, c.status, c.says)
			}
		})
	}
}

func TestPanicFailsTheCheck(t *testing.T) {
	got := Run(t.Context(), func(r *Recorder) { r.Left("a machine"); r.Left("a machine"); panic("broken") })
	if got.Status != Failed || !strings.HasPrefix(got.Messages[0], "panic: broken") || len(got.Left) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestNothingIsRunAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got := Run(ctx, func(*Recorder) { t.Error("the check was run") })
	if got.Status != Failed || !strings.HasPrefix(got.Messages[0], "not run:") {
		t.Errorf("%+v", got)
	}
}
