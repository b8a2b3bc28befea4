// SPDX-License-Identifier: Apache-2.0

package marks

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestProgramsNoteAtTheSameTime(t *testing.T) {
	m := Beside(filepath.Join(t.TempDir(), "made", "agent.sock"))
	var programs sync.WaitGroup
	for range 8 {
		programs.Go(func() {
			for range 8 {
				m.Note("step", Uptime(), strings.Repeat("d", 1000))
			}
		})
	}
	programs.Wait()
	steps := m.Read()
	if len(steps) != 64 {
		t.Fatalf("%d steps of 64", len(steps))
	}
	for _, s := range steps {
		if s.EndNano < s.StartNano || len(s.Detail) != MaxDetail {
			t.Errorf("%+v", s)
		}
	}
}

// TestBounds: neither years of restarts nor a damaged file make more of it.
func TestBounds(t *testing.T) {
	m := Marks{filepath.Join(t.TempDir(), "timeline")}
	for range 2000 {
		m.Add("step", 1, 2, strings.Repeat("d", MaxDetail))
	}
	if info, err := os.Stat(m.Path); err != nil || info.Size() > maxFile+200 {
		t.Errorf("%v, %v", info.Size(), err)
	}
	if n := len(m.Read()); n != MaxSteps {
		t.Errorf("%d steps", n)
	}
	if err := os.WriteFile(m.Path, []byte("\x00{\ngood 1 2 \"line\\n\"\nbad x 2 \"\"\nbad 1 2 no quotes\n[]"+strings.Repeat("x", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if steps := m.Read(); len(steps) != 1 || steps[0].Name != "good" || steps[0].Detail != "line\n" {
		t.Errorf("%v", steps)
	}
}

func TestNowhere(t *testing.T) {
	Marks{}.Note("step", 0, "")
	Marks{filepath.Join(os.DevNull, "no", "folder")}.Note("step", 0, "")
	if steps := (Marks{}).Read(); steps != nil {
		t.Error(steps)
	}
}

func TestProcessStart(t *testing.T) {
	if ago := Uptime() - ProcessStart(); ago < 0 || ago > 10*time.Minute {
		t.Errorf("this process was started %v ago", ago)
	}
}
