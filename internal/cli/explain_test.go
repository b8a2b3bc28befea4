// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/cli/agentpolicy"
)

const explainedPod = `
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - {name: web, image: web, readinessProbe: {exec: {command: [cat, /ready]}}, securityContext: {runAsUser: 7}}
`

const endless = "package agent_policy\nReadStreamRequest if { count([1 | some a in numbers.range(1, 100000); some b in numbers.range(1, 100000); a * b == 7.5]) == 1 }"

// explained writes the Pod's policy as policy.rego, initdata.toml and pod.yaml, and with a second container as two.rego.
func explained(t *testing.T) (folder string) {
	t.Helper()
	folder = t.TempDir()
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(explainedPod), pod); err != nil {
		t.Fatal(err)
	}
	resolve := func(context.Context, string) (*agentpolicy.Image, error) {
		return &agentpolicy.Image{Pinned: "web@sha256:0", Config: v1.Config{Cmd: []string{"/web"}}}, nil
	}
	generate := func() string {
		text, err := agentpolicy.Generate(t.Context(), pod, agentpolicy.Options{Resolve: resolve})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	text := generate()
	var out bytes.Buffer
	for file, form := range map[string]string{"policy.rego": "policy", "initdata.toml": "initdata", "pod.yaml": "pod"} {
		out.Reset()
		if err := (&App{Stdout: &out}).printPolicy(form, text, pod); err != nil {
			t.Fatal(err)
		}
		writeFile(t, folder, file, out.String())
	}
	second := pod.Spec.Containers[0].DeepCopy()
	second.Name = "log"
	pod.Spec.Containers = append(pod.Spec.Containers, *second)
	writeFile(t, folder, "two.rego", generate())
	return folder
}

func writeFile(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyExplain: what a policy allows ends with 0, what it refuses with 1 and why, and a question that is none with 125.
func TestPolicyExplain(t *testing.T) {
	folder := explained(t)
	many := strings.Repeat(`"EXTRA_VARIABLE=x", `, 100)
	for name, text := range map[string]string{
		"none.yaml": explainedPod, "none.toml": "algorithm = \"sha256\"\nversion = \"0.1.0\"\n[data]\n\"aa.toml\" = ''\n", "bad.rego": "package agent_policy\nA := b", "endless.rego": endless,
		"open.rego": "package agent_policy\ndefault AllowRequestsFailingPolicy := true", "old.rego": "package agent_policy\nExecProcessRequest { input.process.Args == [\"date\"] }",
		"create.json": `{"container_id": "c", "OCI": {"Annotations": {"io.kubernetes.cri.container-name": "web"}, "Process": {"Args": ["/bin/sh"], "Cwd": "/", "User": {}, "Env": [` + many + `"LD_PRELOAD=/x"]}}}`,
		"bad.json":    "{",
	} {
		writeFile(t, folder, name, text)
	}
	t.Chdir(folder)
	for command, c := range map[string]struct {
		code int
		want string
	}{
		"pod.yaml -- cat /ready":                                 {0, "allows ExecProcessRequest"},
		"initdata.toml -- cat /ready":                            {0, "allows"},
		"pod.yaml -- sh -c date":                                 {1, `its rule ExecProcessRequest is false; it printed: command ["sh", "-c", "date"], want one of [["cat", "/ready"]]`},
		"two.rego -c log -- cat /ready":                          {0, "allows"},
		"two.rego -- cat /ready":                                 {125, "the pod has log, web"},
		"old.rego -- date":                                       {0, "allows"},
		"old.rego -c web -- date":                                {125, "does not say what its containers are"},
		"policy.rego --request ReadStreamRequest":                {1, "its rule ReadStreamRequest is false"},
		"policy.rego --request SetGuestDateTimeRequest":          {1, "no rule that says anything"},
		"policy.rego --request StatsContainerRequest":            {0, "allows"},
		"open.rego --request ReadStreamRequest":                  {0, "AllowRequestsFailingPolicy"},
		"policy.rego --request Nothing":                          {125, `no request "Nothing"`},
		"policy.rego --request CopyFile --input nowhere":         {125, "nowhere"},
		"policy.rego --request CopyFileRequest --input bad.json": {125, "not a JSON object"},
		"bad.rego --request ReadStreamRequest":                   {125, "bad.rego: the policy does not compile"},
		"none.yaml -- sh":                                        {125, "the Pod has no initdata"},
		"none.toml -- sh":                                        {125, "no policy.rego"},
		"policy.rego":                                            {125, "want either"},
		"policy.rego --request ReadStreamRequest -- sh":          {125, "want either"},
		"policy.rego -c web --request ReadStreamRequest":         {125, "--container is"},
		"policy.rego --input create.json -- sh":                  {125, "--input is"},
		"policy.rego date":                                       {125, "want one FILE"},
	} {
		t.Run(command, func(t *testing.T) {
			var out, errs buffer
			code := (&App{Stdout: &out, Stderr: &errs}).Run(append([]string{"policy", "explain"}, strings.Fields(command)...))
			if text := out.String() + errs.String(); code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("%d, %s; want %d, %s", code, text, c.code, c.want)
			}
		})
	}
	hurry, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if v, err := new(App).explainPolicy(hurry, "endless.rego", &question{request: "ReadStreamRequest"}, nil); err != nil || v.Allowed || !strings.Contains(v.Why, "no answer within") {
		t.Errorf("without end: %+v, %v", v, err)
	}
	var out buffer
	code := (&App{Stdout: &out, Stderr: &out}).Run(strings.Fields("policy explain policy.rego --request CreateContainerRequest --input create.json -o json"))
	var v verdict
	if err := json.Unmarshal([]byte(out.String()), &v); err != nil || code != 1 || v.Allowed || v.Request != "CreateContainerRequest" {
		t.Fatalf("%d, %v: %s", code, err, out.String())
	}
	for _, want := range []string{`arguments ["/bin/sh"], want ["/web"]`, "user 0, want 7", "variable LD_PRELOAD", "is not the one of digest"} {
		if !strings.Contains(v.Why, want) {
			t.Errorf("%s; want %s", v.Why, want)
		}
	}
}
