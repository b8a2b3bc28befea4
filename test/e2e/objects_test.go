// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/test/deployed"
)

type object = map[string]any

// pod is the manifest of a pod in a VM with one container, main, which a case
// then completes.
type pod struct {
	images           images
	name             string
	meta, spec, main object
}

// pod returns one that runs a script with busybox, and podtool if the script does, or what
// the image says if there is no script.
func (s *suite) pod(name, script string) *pod {
	p := &pod{
		images: s.images,
		name:   name,
		meta:   object{"name": name, "labels": object{"app": name}, "annotations": object{}},
		main:   object{"name": "main", "image": s.images.forScript(script), "imagePullPolicy": "IfNotPresent"},
		spec:   object{"runtimeClassName": *runtimeClass, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
	}
	if script != "" {
		p.main["command"] = []string{"sh", "-c", script}
	}
	p.spec["containers"] = []any{p.main}
	return p
}

// container lays YAML over the container.
func (p *pod) container(text string) *pod { return p.merge(p.main, text) }

// with lays YAML over the pod's spec.
func (p *pod) with(text string) *pod { return p.merge(p.spec, text) }

func (p *pod) merge(into object, text string) *pod {
	var more object
	if err := yaml.Unmarshal([]byte(text), &more); err != nil {
		panic(err) // of a case's own text
	}
	for key, value := range more {
		into[key] = value
	}
	return p
}

func (p *pod) image(ref string) *pod {
	p.main["image"] = ref
	return p
}

// beside adds a container like main.
func (p *pod) beside(name, script, text string) *pod {
	p.spec["containers"] = append(p.spec["containers"].([]any), p.another(name, script, text))
	return p
}

// before adds an init container.
func (p *pod) before(name, script, text string) *pod {
	all, _ := p.spec["initContainers"].([]any)
	p.spec["initContainers"] = append(all, p.another(name, script, text))
	return p
}

func (p *pod) another(name, script, text string) object {
	c := object{"name": name, "image": p.images.forScript(script), "imagePullPolicy": "IfNotPresent", "command": []string{"sh", "-c", script}}
	p.merge(c, text)
	return c
}

func (p *pod) annotate(key, value string) *pod {
	p.meta["annotations"].(object)[key] = value
	return p
}

func (p *pod) manifest() object {
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": p.meta, "spec": p.spec}
}

// template is for what makes pods.
func (p *pod) template() object {
	return object{"metadata": object{"labels": p.meta["labels"], "annotations": p.meta["annotations"]}, "spec": p.spec}
}

func configMap(name string, data map[string]string) object {
	return object{"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": name}, "data": data}
}

func secret(name string, data map[string]string) object {
	return object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": name}, "stringData": data}
}

// create makes objects, pods or manifests, which are removed with the test.
func (s *suite) create(t *testing.T, all ...any) {
	t.Helper()
	list := object{"apiVersion": "v1", "kind": "List", "items": manifests(all)}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.describe(t, all)
		}
		if err := s.feed(data, "delete", "--ignore-not-found", "--cascade=foreground", s.timeout(), "-f", "-"); err != nil {
			t.Error(err)
		}
	})
	if err := s.feed(data, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

func manifests(all []any) (items []any) {
	for _, one := range all {
		if p, ok := one.(*pod); ok {
			one = p.manifest()
		}
		items = append(items, one)
	}
	return items
}

// apply changes objects that create made.
func (s *suite) apply(t *testing.T, one object) {
	t.Helper()
	data, err := json.Marshal(one)
	if err == nil {
		err = s.feed(data, "apply", "--server-side", "--force-conflicts", "-f", "-")
	}
	if err != nil {
		t.Fatal(err)
	}
}

// feed runs kubectl with an input.
func (s *suite) feed(input []byte, args ...string) error {
	cmd := s.Command(s.in(args)...)
	cmd.Stdin = bytes.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// describe shows why pods are not as they should be.
func (s *suite) describe(t *testing.T, all []any) {
	for _, one := range manifests(all) {
		if one.(object)["spec"] == nil {
			continue
		}
		name := one.(object)["metadata"].(object)["name"].(string)
		for _, args := range [][]string{
			{"describe", "pods", "-l", "app=" + name},
			{"logs", "-l", "app=" + name, "--all-containers", "--tail=30", "--prefix"},
			{"get", "peerpods", "-o", "wide"},
		} {
			out, err := s.TryKubectl(s.in(args)...)
			t.Logf("kubectl %s\n%s%v", strings.Join(args, " "), out, errText(err))
		}
		t.Logf("Outrigger's logs of pod %s\n%s", name, s.logsOfDaemons(name))
	}
}

// logsOfDaemons returns what adaptor and relay said of a pod's sandboxes.
func (s *suite) logsOfDaemons(pod string) string {
	logs, err := s.TryKubectl("-n", deployed.Namespace, "logs", "-l", "app.kubernetes.io/part-of=outrigger", "--all-containers", "--tail=400")
	said := []string{errText(err)}
	for _, of := range regexp.MustCompile(`sandbox=([0-9a-f]+) pod=`+pod+` `).FindAllStringSubmatch(logs, -1) {
		for line := range strings.Lines(logs) {
			if strings.Contains(line, of[1]) && !slices.Contains(said, line) {
				said = append(said, line)
			}
		}
	}
	return strings.Join(said, "")
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// start creates a pod, with what it needs, and waits until it is ready.
func (s *suite) start(t *testing.T, p *pod, more ...any) {
	t.Helper()
	s.create(t, append(more, p)...)
	s.ready(t, p.name)
}

func (s *suite) ready(t *testing.T, name string) {
	t.Helper()
	s.until(t, "pod/"+name, `{.status.phase} {.status.conditions[?(@.type=="Ready")].status}`, func(v string) bool {
		if strings.HasPrefix(v, "Failed") || strings.HasPrefix(v, "Succeeded") {
			t.Fatalf("pod %s ended: %s; its log: %s", name, v, clip(s.logs(t, name)))
		}
		return v == "Running True"
	})
}

// ended waits for the end of a pod and returns its phase.
func (s *suite) ended(t *testing.T, name string) string {
	t.Helper()
	return s.until(t, "pod/"+name, "{.status.phase}", func(v string) bool { return v == "Succeeded" || v == "Failed" })
}

// play creates a pod that runs to its end, well, and returns its log.
func (s *suite) play(t *testing.T, p *pod, more ...any) string {
	t.Helper()
	s.create(t, append(more, p)...)
	phase := s.ended(t, p.name)
	log := s.logs(t, p.name)
	if phase != "Succeeded" {
		t.Fatalf("pod %s: %s; its log: %s", p.name, phase, clip(log))
	}
	return log
}

func (s *suite) logs(t *testing.T, name string, args ...string) string {
	t.Helper()
	return s.kubectl(t, append([]string{"logs", name}, args...)...)
}

// delete removes a pod and waits until it is gone.
func (s *suite) delete(t *testing.T, name string) {
	t.Helper()
	s.kubectl(t, "delete", "pod", name, s.timeout())
}

// until follows an object, or those of a kind, and returns the value of a path, which must be one
// line, when it is right.
func (s *suite) until(t *testing.T, object, path string, right func(string) bool) string {
	t.Helper()
	var last string
	for end := time.Now().Add(patience); ; {
		value, ok := s.follow(t, object, path, time.Until(end), func(v string) bool { last = v; return right(v) })
		if ok {
			return value
		}
		if time.Now().After(end) {
			t.Fatalf("%s after %s: %s is %q", object, patience, path, last)
		}
	}
}

// dryRun returns what the server makes of a pod.
func (s *suite) dryRun(t *testing.T, p *pod) string {
	t.Helper()
	data, err := json.Marshal(p.manifest())
	if err != nil {
		t.Fatal(err)
	}
	cmd := s.Command(s.in([]string{"create", "--dry-run=server", "-o", "json", "-f", "-"})...)
	cmd.Stdin = bytes.NewReader(data)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, out); err != nil {
		t.Fatal(err)
	}
	return compact.String()
}

// follow is one watch: it ends when a value is right, by its time, or when the
// server ends it.
func (s *suite) follow(t *testing.T, object, path string, limit time.Duration, right func(string) bool) (string, bool) {
	t.Helper()
	args := append([]string{"get"}, strings.Fields(object)...)
	cmd := s.Command(s.in(append(args, "--watch", "-o", "jsonpath="+path+"{\"\\n\"}"))...)
	stderr := new(bytes.Buffer)
	cmd.Stderr = stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer finish(cmd)
	deadline := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	defer deadline.Stop()
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if right(lines.Text()) {
			return lines.Text(), true
		}
	}
	if strings.Contains(stderr.String(), "NotFound") {
		t.Fatalf("%s: %s", object, stderr)
	}
	return "", false
}

func finish(cmd *exec.Cmd) {
	cmd.Process.Kill()
	cmd.Wait()
}
