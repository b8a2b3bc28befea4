// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// metricName matches those of this product in an expression.
var metricName = regexp.MustCompile(`\b(?:outrigger_adaptor|peerpod_ctrl)_[a-z_]+`)

// TestAlertsAndDashboardUseMetricsThatExist looks for their names where metrics
// are defined.
func TestAlertsAndDashboardUseMetricsThatExist(t *testing.T) {
	source := read(t, "internal/peerpods/adaptor/metrics") + read(t, "internal/peerpods/controller")
	found, states := 0, 0
	for _, file := range []string{"rules.yaml", "outrigger.json"} {
		text, err := os.ReadFile(filepath.Join(root, "deploy/components/monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range metricName.FindAllString(string(text), -1) {
			found++
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, part)
			}
			// Some are put together from a prefix and the rest.
			if !strings.Contains(source, `"`+name+`"`) && !strings.Contains(source, `"`+strings.TrimPrefix(name, "outrigger_adaptor_")+`"`) {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
		for _, state := range regexp.MustCompile(`state=("[a-z]+")`).FindAllStringSubmatch(string(text), -1) {
			states++
			if !strings.Contains(source, state[1]+": pool.") {
				t.Errorf("%s: VMs of a pool are never %s", file, state[1])
			}
		}
	}
	if found < 20 || states < 2 {
		t.Errorf("only %d names of metrics and %d states were found", found, states)
	}
}

// read returns all Go files of a folder, tests left out.
func read(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		all.Write(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestDashboardIsWhole(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "deploy/components/monitoring/outrigger.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] || p.Title == "" || len(p.Targets) == 0 || p.Targets[0].Expr == "" {
			t.Errorf("panel %d %q is not whole, or its id is taken", p.ID, p.Title)
		}
		ids[p.ID] = true
	}
	if board.Title == "" || len(ids) < 10 {
		t.Errorf("%q has %d panels", board.Title, len(ids))
	}
}

// TestOperatorsAlertsUseMetricsThatExist looks for names and for what stands in
// labels where they are defined.
func TestOperatorsAlertsUseMetricsThatExist(t *testing.T) {
	source := read(t, "internal/nodes/operator") + read(t, "internal/nodes/ccm")
	text, err := os.ReadFile(filepath.Join(root, "deploy/ccm-operator/monitoring/alerts/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`\boutrigger_[a-z_]+`).FindAllString(string(text), -1)
	labels := regexp.MustCompile(`(?:reason|condition)!?=~?"(?:\.\*)?([A-Za-z]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(names) < 8 || len(labels) < 4 {
		t.Errorf("only the metrics %q and the labels %q were found", names, labels)
	}
	for _, name := range names {
		if !strings.Contains(source, `"`+name+`"`) {
			t.Errorf("there is no metric %s", name)
		}
	}
	for _, l := range labels {
		if !strings.Contains(source+read(t, "api/ccm"), l[1]+`"`) {
			t.Errorf("nothing is ever %s", l[1])
		}
	}
}
