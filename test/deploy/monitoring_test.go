// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	sigsyaml "sigs.k8s.io/yaml"
)

// dashboards and ruleFiles are all that there are, by the folder of deploy whose metrics they show.
var (
	dashboards = []string{
		"deploy/components/monitoring/outrigger-pods.json", "deploy/components/monitoring/outrigger-pools.json", "deploy/components/monitoring/outrigger-nodes.json",
		"config/prometheus/outrigger-machines.json", "deploy/ccm-operator/monitoring/dashboard/outrigger-operator.json",
	}
	ruleFiles = map[string]string{
		"outrigger": "deploy/components/monitoring/rules.yaml", "machines": "config/prometheus/rules.yaml", "ccm-operator": "deploy/ccm-operator/monitoring/alerts/rules.yaml",
	}
)

// dashboard is what is tested of one.
type dashboard struct {
	Title, UID, Description string
	Templating              struct {
		List []struct{ Name, Label, Type, Query string }
	}
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ UID string }
		FieldConfig              struct {
			Defaults struct{ Unit string }
		}
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T, path string) *dashboard {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return &d
}

func (d *dashboard) queries() []string {
	var all []string
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	return all
}

// rules is the part of a PrometheusRule that Prometheus reads.
type rules struct {
	Groups []struct {
		Name  string
		Rules []struct {
			Alert, Expr         string
			Labels, Annotations map[string]string
		}
	} `json:"groups"`
}

func readRules(t *testing.T, path string) (r rules, spec []byte) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	var object struct {
		Spec json.RawMessage `json:"spec"`
	}
	if err := sigsyaml.Unmarshal(text, &object); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if err := sigsyaml.UnmarshalStrict(object.Spec, &r); err != nil && r.Groups == nil {
		t.Fatalf("%s: %v", path, err)
	}
	return r, object.Spec
}

// units are those of Grafana that are used, by their ids.
var units = []string{"short", "s", "ops", "percentunit", "bytes", "bool"}

// variable finds $name; those of Grafana itself begin with two underscores.
var variable = regexp.MustCompile(`\$\{?([a-z][a-z_]*)`)

func TestDashboardsAreWhole(t *testing.T) {
	uids := map[string]bool{}
	for _, path := range dashboards {
		d := readDashboard(t, path)
		if uids[d.UID] || d.Title == "" || d.Description == "" || d.UID+".json" != filepath.Base(path) {
			t.Errorf("%s: title, description or uid is missing, or the uid is taken", path)
		}
		uids[d.UID] = true
		ids, places, used := map[int]bool{}, map[[2]int]bool{}, map[string]bool{}
		for _, p := range d.Panels {
			if ids[p.ID] || p.Title == "" || len(strings.Fields(p.Description)) < 4 || !slices.Contains(units, p.FieldConfig.Defaults.Unit) || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d %q has no title, description, unit or query, or its id is taken: %+v", path, p.ID, p.Title, p)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				if place := [2]int{x, p.GridPos.Y}; places[place] || x >= 24 {
					t.Errorf("%s: panel %q lies on another, or beside the grid", path, p.Title)
				} else {
					places[place] = true
				}
			}
			for _, target := range p.Targets {
				if target.RefID == "" || target.Expr == "" || target.LegendFormat == "" {
					t.Errorf("%s: panel %q has a query without id, expression or legend", path, p.Title)
				}
				for _, v := range variable.FindAllStringSubmatch(target.Expr, -1) {
					used[v[1]] = true
				}
			}
			for _, v := range variable.FindAllStringSubmatch(p.Datasource.UID, -1) {
				used[v[1]] = true
			}
		}
		d.checkVariables(t, path, used)
	}
	for _, of := range []string{"pods", "pools", "nodes", "machines", "operator"} {
		if !uids["outrigger-"+of] {
			t.Errorf("there is no dashboard of %s", of)
		}
	}
}

// checkVariables wants those that are used to be there, and those that are there to be used.
func (d *dashboard) checkVariables(t *testing.T, path string, used map[string]bool) {
	t.Helper()
	there := map[string]bool{}
	for _, v := range d.Templating.List {
		there[v.Name] = true
		if !used[v.Name] || v.Label == "" || v.Query == "" {
			t.Errorf("%s: variable %s is not used, or has no label or query", path, v.Name)
		}
	}
	for name := range used {
		if !there[name] {
			t.Errorf("%s: $%s is used and is not a variable", path, name)
		}
	}
	for _, name := range []string{"datasource", "cluster", "namespace", "provider"} {
		if !there[name] {
			t.Errorf("%s: there is no variable %s", path, name)
		}
	}
}

// concrete puts values into a query, as Grafana does.
func concrete(query string) string {
	return variable.ReplaceAllString(strings.ReplaceAll(query, "$__rate_interval", "5m"), ".*")
}

// TestQueriesParse has Prometheus' own parser read each query of each dashboard, and all alerts.
func TestQueriesParse(t *testing.T) {
	promtool, n := tool(t, "promtool"), 0
	check := func(queries ...string) error {
		var recorded []string
		for _, q := range queries {
			n++
			text, err := json.Marshal(map[string]string{"record": fmt.Sprintf("query:%d", n), "expr": concrete(q)})
			if err != nil {
				return err
			}
			recorded = append(recorded, string(text))
		}
		file := filepath.Join(t.TempDir(), "queries.yaml")
		text := `{"groups": [{"name": "queries", "rules": [` + strings.Join(recorded, ",") + `]}]}`
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return err
		}
		_, stderr, err := execute(promtool, "check", "rules", "--lint-fatal", file)
		if err != nil {
			return fmt.Errorf("%w: %s", err, stderr)
		}
		return nil
	}
	for _, path := range dashboards {
		if err := check(readDashboard(t, path).queries()...); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n < 40 {
		t.Errorf("only %d queries were found", n)
	}
	for _, path := range ruleFiles {
		all, _ := readRules(t, path)
		for _, r := range all.Groups[0].Rules {
			if err := check(r.Expr); err != nil {
				t.Errorf("%s: %s: %v", path, r.Alert, err)
			}
		}
	}
	if err := check("up", `sum by (a (up)`); err == nil {
		t.Error("a query that is not one was accepted")
	}
}

var (
	// metricName matches those of this product, selected those with a selector.
	metricName = regexp.MustCompile(`\b(?:outrigger|peerpod_ctrl|capi_manager)_[a-z_]+\b`)
	selected   = regexp.MustCompile(`([a-z_]+)\{`)
	state      = regexp.MustCompile(`\bstate!?=("[a-z]+")`)
	// foreign are metrics of Prometheus, of Go's client and of controller-runtime.
	foreignMetrics = []string{"up", "process_resident_memory_bytes", "workqueue_depth", "controller_runtime_reconcile_total"}
)

// TestAlertsAndDashboardsUseMetricsThatExist looks for their names where metrics are defined.
func TestAlertsAndDashboardsUseMetricsThatExist(t *testing.T) {
	source := read(t, "internal/peerpods/adaptor/metrics") + read(t, "internal/peerpods/controller") + read(t, "internal/machines/command") + read(t, "internal/nodes")
	var queries []string
	for _, path := range dashboards {
		d := readDashboard(t, path)
		queries = append(queries, d.queries()...)
		for _, v := range d.Templating.List {
			queries = append(queries, v.Query)
		}
	}
	for _, path := range ruleFiles {
		all, _ := readRules(t, path)
		for _, r := range all.Groups[0].Rules {
			queries = append(queries, r.Expr)
		}
	}
	found, states := 0, 0
	for _, query := range queries {
		names := metricName.FindAllString(query, -1)
		for _, match := range selected.FindAllStringSubmatch(query, -1) {
			names = append(names, match[1])
		}
		for _, name := range names {
			found++
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				name = strings.TrimSuffix(name, part)
			}
			// Some are put together from a prefix and the rest.
			if !strings.Contains(source, `"`+name+`"`) && !strings.Contains(source, `"`+strings.TrimPrefix(name, "outrigger_adaptor_")+`"`) && !slices.Contains(foreignMetrics, name) {
				t.Errorf("there is no metric %s: %s", name, query)
			}
		}
		for _, of := range state.FindAllStringSubmatch(query, -1) {
			states++
			if !strings.Contains(source, of[1]+": pool.") {
				t.Errorf("VMs of a pool are never %s", of[1])
			}
		}
	}
	if found < 100 || states < 5 {
		t.Errorf("only %d names of metrics and %d states were found", found, states)
	}
}

// TestAlertsFire runs testdata/alerts: Prometheus' tester of rules, with series made up. Each alert fires in one
// of them and is silent in another.
func TestAlertsFire(t *testing.T) {
	promtool := tool(t, "promtool")
	for name, path := range ruleFiles {
		t.Run(name, func(t *testing.T) {
			all, spec := readRules(t, path)
			text, err := os.ReadFile(filepath.Join("testdata/alerts", name+".yaml"))
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			for file, data := range map[string][]byte{"rules.yaml": spec, "test.yaml": text} {
				if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if out, stderr, err := execute(promtool, "test", "rules", filepath.Join(dir, "test.yaml")); err != nil {
				t.Errorf("%v: %s%s", err, out, stderr)
			}
			for _, r := range all.Groups[0].Rules {
				fires, silent := tested(t, text, r.Alert)
				if !fires || !silent {
					t.Errorf("%s: a test where it fires %v, one where it does not %v", r.Alert, fires, silent)
				}
			}
		})
	}
}

// tested returns whether a file of tests has one where the alert fires, and one where it does not.
func tested(t *testing.T, text []byte, alert string) (fires, silent bool) {
	t.Helper()
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name     string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	if err := sigsyaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if a.Name == alert {
				fires, silent = fires || len(a.Expected) > 0, silent || len(a.Expected) == 0
			}
		}
	}
	return fires, silent
}

// TestRunbooks: each alert says how bad it is and what to do, and each section of the page is of an alert.
func TestRunbooks(t *testing.T) {
	const base = "https://github.com/outrigger/outrigger/blob/main/docs/runbooks.md#"
	sections := map[string]string{}
	for _, section := range strings.Split(page(t, "runbooks.md"), "\n## ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		sections[name] = text
	}
	for _, path := range ruleFiles {
		all, _ := readRules(t, path)
		for _, r := range all.Groups[0].Rules {
			if r.Annotations["runbook_url"] != base+strings.ToLower(r.Alert) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%s: summary, description or runbook_url is missing: %v", r.Alert, r.Annotations)
			}
			if !slices.Contains([]string{"warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s: severity %q", r.Alert, r.Labels["severity"])
			}
			if len(strings.Fields(sections[r.Alert])) < 30 || !strings.Contains(sections[r.Alert], "`kubectl ") {
				t.Errorf("runbooks.md says too little of %s", r.Alert)
			}
			delete(sections, r.Alert)
		}
	}
	for name := range sections {
		t.Errorf("runbooks.md: there is no alert %s", name)
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

// TestOperatorsAlertsUseLabelsThatExist looks for what stands in labels where it is defined.
func TestOperatorsAlertsUseLabelsThatExist(t *testing.T) {
	source := read(t, "internal/nodes/operator") + read(t, "internal/nodes/ccm")
	text, err := os.ReadFile(filepath.Join(root, "deploy/ccm-operator/monitoring/alerts/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	labels := regexp.MustCompile(`(?:reason|condition)!?=~?"(?:\.\*)?([A-Za-z]+)"`).FindAllStringSubmatch(string(text), -1)
	if len(labels) < 4 {
		t.Errorf("only the labels %q were found", labels)
	}
	for _, l := range labels {
		if !strings.Contains(source+read(t, "api/ccm"), l[1]+`"`) {
			t.Errorf("nothing is ever %s", l[1])
		}
	}
}
