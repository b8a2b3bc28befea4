// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var seed = Seed{Format: FormatCloudConfig, Hostname: "node-1", InstanceID: "i-1", ProviderID: "docker:////node-1-abc"}

func gzipped(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write([]byte(text))
	w.Close()
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestCloudConfig(t *testing.T) {
	got, err := Parse([]byte(`## template: jinja
#cloud-config
write_files:
- path: /etc/a
  content: |
    {{ ds.meta_data.local_hostname }} {{ds.meta_data["hostname"]}} {{ v1.instance_id }} {{ ds.meta_data.provider_id }}
  owner: root:root
  permissions: '0640'
- {path: /etc/b, content: aGVsbG8=, encoding: b64, append: true}
- {path: /etc/c, content: `+gzipped("zipped")+`, encoding: gzip+base64, permissions: "4755"}
bootcmd:
- [early]
runcmd:
- kubeadm init && echo done
- [ls, -l, "a b"]
ntp: {enabled: true}
users: []
`), seed)
	want := &Plan{
		Early: [][]string{{"early"}},
		Files: []File{
			{Path: "/etc/a", Content: []byte("node-1 node-1 i-1 docker:////node-1-abc\n"), Owner: "root:root", Mode: 0o640},
			{Path: "/etc/b", Content: []byte("hello"), Append: true, Mode: 0o644},
			{Path: "/etc/c", Content: []byte("zipped"), Mode: fs.ModeSetuid | 0o755},
		},
		Commands: [][]string{{"/bin/sh", "-c", "kubeadm init && echo done"}, {"ls", "-l", "a b"}},
		Ignored:  []string{"ntp", "users"},
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// TestTemplateIsAskedFor: without the header braces are text.
func TestTemplateIsAskedFor(t *testing.T) {
	got, err := Parse([]byte("#cloud-config\nruncmd: ['{{ v1.hostname }}']\n"), seed)
	if err != nil || got.Commands[0][2] != "{{ v1.hostname }}" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCloudConfigRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "begin with #cloud-config",
		"#!/bin/sh\n":                           "begin with #cloud-config",
		"#cloud-config\n- a\n":                  "mapping",
		"#cloud-config\n\ta: b:":                "mapping",
		"#cloud-config\nwrite_files: hunter2\n": "list of files",
		"#cloud-config\nwrite_files: [{path: etc/x, content: hunter2}]\n":                         "entry 0",
		"#cloud-config\nwrite_files: [{path: /, content: hunter2}]\n":                             "entry 0",
		"#cloud-config\nwrite_files: [{path: /x, permissions: rwx, content: hunter2}]\n":          "octal",
		"#cloud-config\nwrite_files: [{path: /x, encoding: rot13, content: hunter2}]\n":           "rot13",
		"#cloud-config\nwrite_files: [{path: /x, encoding: b64, content: hunter2!}]\n":            "base64",
		"#cloud-config\nwrite_files: [{path: /x, encoding: gz+b64, content: aHVudGVyMg==}]\n":     "gzip",
		"#cloud-config\nruncmd: hunter2\n":                                                        "list",
		"#cloud-config\nruncmd: [{a: hunter2}]\n":                                                 "entry 0",
		"#cloud-config\nruncmd: ['']\n":                                                           "entry 0",
		"## template: jinja\n#cloud-config\nruncmd: ['{{ ds.meta_data.public_keys }} hunter2']\n": "public_keys",
	} {
		_, err := Parse([]byte(text), seed)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q is quoted: %v", text, err)
		}
	}
}

func TestIgnition(t *testing.T) {
	ignition := Seed{Format: FormatIgnition}
	for name, text := range map[string]string{
		"2": `{"ignition": {"version": "2.3.0"}, "passwd": {"users": [{"name": "core"}]},
			"storage": {"directories": [{"filesystem": "root", "path": "/opt/d", "mode": 448}],
				"files": [{"filesystem": "root", "path": "/etc/a", "mode": 384, "user": {"id": 500}, "group": {"name": "root"}, "contents": {"source": "data:,a%20b%0A"}},
					{"path": "/etc/b", "append": true, "contents": {"source": "data:text/plain;charset=utf-8;base64,aGVsbG8="}}],
				"links": [{"path": "/etc/l", "target": "/etc/a"}]},
			"systemd": {"units": [{"name": "kubeadm.service", "enabled": true, "contents": "[Unit]\nDescription=x\n[Service]\nType=oneshot\nExecStartPre=-/bin/false\nExecStart=/etc/kubeadm.sh \\\n  now\n[Install]\nWantedBy=x\n"},
				{"name": "web.service", "enabled": true, "contents": "[Service]\nExecStart=/web\n"},
				{"name": "kubelet.service", "enabled": true, "dropins": [{"name": "10.conf", "contents": "[Service]\n"}]}]}}`,
		"3": `{"ignition": {"version": "3.4.0"}, "passwd": {"users": [{"name": "core"}]},
			"storage": {"directories": [{"path": "/opt/d", "mode": 448}],
				"files": [{"path": "/etc/a", "mode": 384, "user": {"id": 500}, "group": {"name": "root"}, "contents": {"source": "data:;base64,` + gzipped("a b\n") + `", "compression": "gzip"}},
					{"path": "/etc/b", "append": [{"source": "data:,hel"}, {"source": "data:,lo"}]}],
				"links": [{"path": "/etc/l", "target": "/etc/a"}]},
			"systemd": {"units": [{"name": "kubeadm.service", "enabled": true, "contents": "[Unit]\nDescription=x\n[Service]\nType=oneshot\nExecStartPre=-/bin/false\nExecStart=/etc/kubeadm.sh \\\n  now\n[Install]\nWantedBy=x\n"},
				{"name": "web.service", "enabled": true, "contents": "[Service]\nExecStart=/web\n"},
				{"name": "kubelet.service", "enabled": true, "dropins": [{"name": "10.conf", "contents": "[Service]\n"}]}]}}`,
	} {
		got, err := Parse([]byte(text), ignition)
		if err != nil {
			t.Errorf("version %s: %v", name, err)
			continue
		}
		unit := "[Unit]\nDescription=x\n[Service]\nType=oneshot\nExecStartPre=-/bin/false\nExecStart=/etc/kubeadm.sh \\\n  now\n[Install]\nWantedBy=x\n"
		want := &Plan{
			Files: []File{
				{Path: "/opt/d", Mode: 0o700, Dir: true},
				{Path: "/etc/a", Mode: 0o600, Owner: "500:root", Content: []byte("a b\n")},
				{Path: "/etc/b", Mode: 0o644, Append: true, Content: []byte("hello")},
				{Path: "/etc/l", Target: "/etc/a"},
				{Path: "/etc/systemd/system/kubeadm.service", Mode: 0o644, Content: []byte(unit)},
				{Path: "/etc/systemd/system/web.service", Mode: 0o644, Content: []byte("[Service]\nExecStart=/web\n")},
				{Path: "/etc/systemd/system/kubelet.service.d/10.conf", Mode: 0o644, Content: []byte("[Service]\n")},
			},
			Commands: [][]string{{"/bin/sh", "-c", "/bin/false || true"}, {"/bin/sh", "-c", "/etc/kubeadm.sh    now"}},
			Ignored:  []string{"start of web.service", "passwd"},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("version %s:\n%s", name, diff)
		}
	}
}

func TestIgnitionRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "JSON",
		"{}":                                 "version",
		`{"ignition": {"version": "1.0.0"}}`: "version",
		`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "x"}]}}`:                                                          "path",
		`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/x", "contents": {"source": "https://a/hunter2"}}]}}`:            "data URL",
		`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/x", "contents": {"source": "data:;base64,hunter2!"}}]}}`:        "base64",
		`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/x", "contents": {"source": "data:,%zz"}}]}}`:                    "damaged",
		`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/x", "contents": {"source": "data:,a", "compression": "xz"}}]}}`: "xz",
		`{"ignition": {"version": "3.4.0"}, "storage": {"links": [{"path": "/x", "target": "/y", "hard": true}]}}`:                           "links",
		`{"ignition": {"version": "3.4.0"}, "systemd": {"units": [{"name": "../x", "contents": "hunter2"}]}}`:                                "name",
		`{"ignition": {"version": "3.4.0"}, "storage": {"directories": [{"path": "/"}]}}`:                                                    "directories",
	} {
		_, err := Parse([]byte(text), Seed{Format: FormatIgnition})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

func TestUnknownFormat(t *testing.T) {
	if _, err := Parse(nil, Seed{Format: "kickstart"}); err == nil || !strings.Contains(err.Error(), "kickstart") {
		t.Error(err)
	}
}

// FuzzParse: whatever comes, there is an answer.
func FuzzParse(f *testing.F) {
	f.Add([]byte("#cloud-config\nruncmd: [a]\n"), false)
	f.Add([]byte(`{"ignition": {"version": "3.4.0"}, "storage": {"files": [{"path": "/x"}]}}`), true)
	f.Fuzz(func(t *testing.T, data []byte, ignition bool) {
		s := seed
		if ignition {
			s.Format = FormatIgnition
		}
		plan, err := Parse(data, s)
		if (plan == nil) == (err == nil) {
			t.Errorf("plan %v, error %v", plan, err)
		}
	})
}
