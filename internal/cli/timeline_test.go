// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	timelinepb "github.com/outrigger/outrigger/internal/protocol/timeline"
	"github.com/outrigger/outrigger/internal/timeline"
)

func TestTimelineOfAPod(t *testing.T) {
	s := newStand(t)
	now := time.Now().UnixNano()
	s.node.Timeline = &timelinepb.Timeline{UncertaintyNano: 1e6, Steps: []*timelinepb.Step{
		{Name: "create-instance", Where: timeline.Node, StartNano: now, EndNano: now + 1e9},
		{Name: "kernel", Where: timeline.Guest, StartNano: now + 2e8, EndNano: now + 8e8},
	}}
	code, _, stderr := s.run(s.sh("true", "--timeline", "--name", "front")...)
	if code != 0 || !strings.Contains(stderr, "front: ") || !strings.Contains(stderr, "guest kernel") || !strings.Contains(stderr, "node  call-create-container") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	code, _, stderr = s.run(s.sh("sleep 1000000", "--timeline", "--detach", "--network", "none", "--name", "back")...)
	if code != 0 || !strings.Contains(stderr, "guest kernel") {
		t.Errorf("exit code %d\n%s", code, stderr)
	}
	code, stdout, stderr := s.run("timeline", "back", "-o", "json")
	var out struct {
		Pod   string
		Steps []struct{ Name, Where string }
	}
	if err := json.Unmarshal([]byte(stdout), &out); err != nil || code != 0 || out.Pod != "back" || len(out.Steps) < 6 {
		t.Errorf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
	if code, stdout, _ := s.run("timeline", "back", "-o", "svg"); code != 0 || !strings.HasPrefix(stdout, "<svg ") {
		t.Errorf("exit code %d, %.100s", code, stdout)
	}
	s.node.Timeline = nil
	if code, stdout, _ := s.run("timeline", "back"); code != 0 || !strings.Contains(stdout, "note: the adaptor of this node is older than timelines") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}

func TestTimelineSaysWhatIsWrong(t *testing.T) {
	s := newStand(t)
	s.run(s.sh("true", "--rm=false", "--name", "gone")...)
	for want, args := range map[string][]string{
		"timeline needs a POD": {"timeline"}, `no such pod: "none"`: {"timeline", "none"},
		"pod gone is exited: its guest": {"timeline", "gone"}, `--output "png"`: {"timeline", "gone", "-o", "png"},
	} {
		if code, _, stderr := s.run(args...); code != 125 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit code %d, %s", args, code, stderr)
		}
	}
	code, _, stderr := s.run("--socket", filepath.Join(s.root, "nosuch.sock"), "timeline", "none")
	if code != 125 || !strings.Contains(stderr, `no such pod: "none"`) || !strings.Contains(stderr, "nosuch.sock (--socket): ") {
		t.Errorf("without an adaptor at the socket: exit code %d, %s", code, stderr)
	}
}
