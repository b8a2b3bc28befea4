// SPDX-License-Identifier: Apache-2.0

package render

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
	"github.com/outrigger/outrigger/internal/nodes/operator/bundles"
)

const (
	infra = `apiVersion: config.openshift.io/v1
kind: Infrastructure
metadata: {name: cluster}
spec: {cloudConfig: {name: cloud-provider-config, key: config}, platformSpec: {type: %P, aws: {}}}
status: {infrastructureName: c-x1, platform: %P, platformStatus: {type: %P, aws: {region: eu-1}}, etcdDiscoveryDomain: ""}
`
	images = `apiVersion: v1
kind: ConfigMap
metadata: {name: images, namespace: ns}
data:
  images.json: '{"cloudControllerManagerAWS": "r/aws:1", "cloudControllerManagerAzure": "r/azure:1", "cloudControllerManagerIBM": "r/ibm:1"}'
`
	config = `apiVersion: v1
kind: ConfigMap
metadata: {name: cloud-provider-config, namespace: openshift-config}
data: {config: "[Global]\n", other: x}
`
)

func infrastructure(platform string) string { return strings.ReplaceAll(infra, "%P", platform) }

// stand has files, and the rendering that reads them.
type stand struct {
	t *testing.T
	Bootstrap
}

func newStand(t *testing.T) *stand {
	t.Helper()
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	s := &stand{t: t}
	s.Bundles, s.DestDir = set, filepath.Join(t.TempDir(), "dest")
	s.InfrastructureFile, s.ImagesFile, s.CloudConfigFile = s.file(infrastructure("AWS")), s.file(images), s.file(config)
	return s
}

func (s *stand) file(text string) string {
	s.t.Helper()
	name := filepath.Join(s.t.TempDir(), "file.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return name
}

// tree are the files below the folder, and folders that are empty.
func (s *stand) tree() (all []string) {
	s.t.Helper()
	err := filepath.WalkDir(s.DestDir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(s.DestDir, path)
		if entries, _ := os.ReadDir(path); d.IsDir() && len(entries) == 0 {
			all = append(all, name+"/")
		}
		if !d.IsDir() {
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return all
}

// TestB1StaticPodsAndConfiguration of both platforms that have them.
func TestB1StaticPodsAndConfiguration(t *testing.T) {
	for platform, name := range map[string]string{"AWS": "aws", "Azure": "azure"} {
		s := newStand(t)
		s.InfrastructureFile = s.file(infrastructure(platform))
		written, err := s.Write()
		if err != nil {
			t.Fatal(err)
		}
		pod := "bootstrap/" + name + "-cloud-controller-manager-pod.yaml"
		if diff := cmp.Diff([]string{pod, "config/cloud.conf"}, s.tree()); diff != "" || len(written) != 2 {
			t.Errorf("%s: %s", platform, diff)
		}
		text, err := os.ReadFile(filepath.Join(s.DestDir, pod))
		if err != nil {
			t.Fatal(err)
		}
		var p corev1.Pod
		if err := yaml.UnmarshalStrict(text, &p); err != nil {
			t.Fatal(err)
		}
		checkPod(t, &p, "r/"+name+":1", name)
		if conf, err := os.ReadFile(filepath.Join(s.DestDir, "config/cloud.conf")); err != nil || string(conf) != "[Global]\n" {
			t.Errorf("%q, %v", conf, err)
		}
		if strings.Contains(string(text), "status") || strings.Contains(string(text), "creationTimestamp") {
			t.Error(string(text))
		}
	}
}

func checkPod(t *testing.T, p *corev1.Pod, image, provider string) {
	t.Helper()
	c := p.Spec.Containers[0]
	if p.Namespace != "kube-system" || !p.Spec.HostNetwork || c.Name != "cloud-controller-manager" || c.Image != image {
		t.Errorf("namespace %s, container %s, image %s", p.Namespace, c.Name, c.Image)
	}
	for _, flag := range []string{
		"--cloud-provider=" + provider, "--kubeconfig=/etc/kubernetes/secrets/kubeconfig", "--cloud-config=/etc/kubernetes/configs/cloud.conf",
		"--controllers=cloud-node", "--leader-elect=false",
	} {
		if !slices.Contains(c.Args, flag) {
			t.Errorf("%s is not among %v", flag, c.Args)
		}
	}
	at := map[string]string{}
	for _, v := range p.Spec.Volumes {
		for _, m := range c.VolumeMounts {
			if m.Name == v.Name {
				at[v.HostPath.Path] = m.MountPath
			}
		}
	}
	want := map[string]string{"/etc/kubernetes/bootstrap-secrets": "/etc/kubernetes/secrets", "/etc/kubernetes/bootstrap-configs": "/etc/kubernetes/configs"}
	if diff := cmp.Diff(want, at); diff != "" {
		t.Error(diff)
	}
}

// TestB1NoFlagForNoConfiguration: a manager does not start with a flag for a
// missing file.
func TestB1NoFlagForNoConfiguration(t *testing.T) {
	for _, platform := range []string{"AWS", "Azure"} {
		s := newStand(t)
		s.InfrastructureFile = s.file(strings.Replace(infrastructure(platform), "name: cloud-provider-config,", "", 1))
		var warnings []string
		s.Warn = func(message string) { warnings = append(warnings, message) }
		written, err := s.Write()
		if err != nil || len(written) != 1 {
			t.Fatalf("%v, %v", written, err)
		}
		if (len(warnings) == 1) != (platform == "Azure") {
			t.Errorf("%s: warnings %q", platform, warnings)
		}
		if text, err := os.ReadFile(written[0]); err != nil || strings.Contains(string(text), "--cloud-config") || !strings.Contains(string(text), "--kubeconfig=") {
			t.Errorf("%s: %v\n%s", platform, err, text)
		}
	}
}

// TestB1Warnings: what is written and of no use is said; it is not an error.
func TestB1Warnings(t *testing.T) {
	for platform, want := range map[string]string{
		"AWS": "", "Azure": "the manager of Azure may not take this configuration", "Moon": "no bundle has static Pods for platform Moon",
	} {
		s := newStand(t)
		s.InfrastructureFile = s.file(infrastructure(platform))
		var said string
		s.Warn = func(message string) { said += message }
		s.mustWrite()
		if said == "" != (want == "") || !strings.Contains(said, want) {
			t.Errorf("%s: %q, want %q", platform, said, want)
		}
	}
}

// TestB1WhatIsNotThereIsNotWritten: both folders are made anyway.
func TestB1WhatIsNotThereIsNotWritten(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *stand)
		want   []string
	}{
		"platform without pods":   {func(s *stand) { s.InfrastructureFile = s.file(infrastructure("GCP")) }, []string{"bootstrap/", "config/cloud.conf"}},
		"platform without bundle": {func(s *stand) { s.InfrastructureFile = s.file(infrastructure("BareMetal")) }, []string{"bootstrap/", "config/cloud.conf"}},
		"platform nobody knows":   {func(s *stand) { s.InfrastructureFile = s.file(infrastructure("Moon")) }, []string{"bootstrap/", "config/cloud.conf"}},
		"no configuration named": {func(s *stand) {
			s.InfrastructureFile, s.CloudConfigFile = s.file(strings.Replace(infrastructure("GCP"), "name: cloud-provider-config,", "", 1)), ""
		}, []string{"bootstrap/", "config/"}},
		"an empty configuration":    {func(s *stand) { s.CloudConfigFile = s.file(strings.Replace(config, `"[Global]\n"`, `""`, 1)) }, []string{"bootstrap/aws-cloud-controller-manager-pod.yaml", "config/"}},
		"key cloud.conf wins":       {func(s *stand) { s.CloudConfigFile = s.file(strings.Replace(config, "other: x", "cloud.conf: won", 1)) }, []string{"bootstrap/aws-cloud-controller-manager-pod.yaml", "config/cloud.conf"}},
		"written over a former one": {func(s *stand) { s.mustWrite() }, []string{"bootstrap/aws-cloud-controller-manager-pod.yaml", "config/cloud.conf"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			test.change(s)
			s.mustWrite()
			if diff := cmp.Diff(test.want, s.tree()); diff != "" {
				t.Error(diff)
			}
			if name == "key cloud.conf wins" {
				if conf, _ := os.ReadFile(filepath.Join(s.DestDir, "config/cloud.conf")); string(conf) != "won" {
					t.Errorf("%q", conf)
				}
			}
		})
	}
}

func (s *stand) mustWrite() {
	s.t.Helper()
	if _, err := s.Write(); err != nil {
		s.t.Fatal(err)
	}
}

// TestB1BadInput is told with the flag's name, and nothing is written.
func TestB1BadInput(t *testing.T) {
	for name, test := range map[string]struct {
		change func(s *stand)
		want   []string
	}{
		"nothing given":        {func(s *stand) { s.InfrastructureFile, s.ImagesFile = "", "" }, []string{"error reading --cluster-infrastructure-file: ", "error reading --images-file: "}},
		"folders":              {func(s *stand) { s.ImagesFile = t.TempDir() }, []string{"error reading --images-file: \"", "is not a regular file"}},
		"empty files":          {func(s *stand) { s.InfrastructureFile, s.CloudConfigFile = s.file(""), s.file("") }, []string{"error reading --cluster-infrastructure-file: \"", "is empty"}},
		"no cloud config file": {func(s *stand) { s.CloudConfigFile = "" }, []string{"error reading --cloud-config-file: missing, and the Infrastructure names the ConfigMap cloud-provider-config"}},
		"all at once":          {func(s *stand) { s.ImagesFile, s.CloudConfigFile = s.file(""), s.file("") }, []string{"--images-file", "--cloud-config-file"}},
		"another kind":         {func(s *stand) { s.InfrastructureFile = s.file(images) }, []string{`--cluster-infrastructure-file: it is the kind "ConfigMap" of "v1"; want Infrastructure of config.openshift.io/v1`}},
		"key twice":            {func(s *stand) { s.InfrastructureFile = s.file(infrastructure("AWS") + "kind: Infrastructure\n") }, []string{`key "kind" already set`}},
		"wrong type": {func(s *stand) {
			s.InfrastructureFile = s.file(strings.Replace(infrastructure("AWS"), "key: config", "key: [1]", 1))
		}, []string{"--cluster-infrastructure-file: ", "cloudConfig.key"}},
		"no status": {func(s *stand) {
			s.InfrastructureFile = s.file(infrastructure("AWS")[:strings.Index(infrastructure("AWS"), "status:")])
		}, []string{"platform status is not populated on infrastructure"}},
		"no type":              {func(s *stand) { s.InfrastructureFile = s.file(infrastructure(`""`)) }, []string{"no platform provider found on infrastructure"}},
		"images without data":  {func(s *stand) { s.ImagesFile = s.file(images[:strings.Index(images, "\ndata:")]) }, []string{"unable to find Data field in provided ConfigMap"}},
		"images without key":   {func(s *stand) { s.ImagesFile = s.file(strings.Replace(images, "images.json:", "x.json:", 1)) }, []string{`unable to find images key "images.json" in ConfigMap ns/images`}},
		"images broken":        {func(s *stand) { s.ImagesFile = s.file(strings.Replace(images, "'{", "'", 1)) }, []string{"unable to decode images content from ConfigMap ns/images: "}},
		"images unknown field": {func(s *stand) { s.ImagesFile = s.file(images + "spec: {}\n") }, []string{`json: unknown field "spec"`}},
		"two manifests":        {func(s *stand) { s.ImagesFile = s.file(images + "---\n" + images) }, []string{"error reading --images-file: ", "has several manifests; want one"}},
		"image with a newline": {func(s *stand) { s.ImagesFile = s.file(strings.Replace(images, "r/aws:1", `r/aws:1\n`, 1)) }, []string{`cloudControllerManagerAWS: "r/aws:1\n" is not an image`}},
		"image missing":        {func(s *stand) { s.ImagesFile = s.file(strings.Replace(images, "cloudControllerManagerAWS", "x", 1)) }, []string{"aws: missed images in config: cloudControllerManagerAWS"}},
		"config without data":  {func(s *stand) { s.CloudConfigFile = s.file(config[:strings.Index(config, "\ndata:")]) }, []string{"--cloud-config-file: unable to find Data field in provided ConfigMap"}},
		"config without key":   {func(s *stand) { s.CloudConfigFile = s.file(strings.Replace(config, "{config:", "{x:", 1)) }, []string{"key config specified in infra resource does not exist in source configmap openshift-config/cloud-provider-config"}},
		"no destination":       {func(s *stand) { s.DestDir = "" }, []string{"--dest-dir: missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStand(t)
			dest := s.DestDir
			test.change(s)
			_, err := s.Write()
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("the error is %v, want %q", err, want)
				}
			}
			if _, err := os.Stat(dest); !os.IsNotExist(err) {
				t.Errorf("something was written: %v", err)
			}
		})
	}
}

func TestB1BadDestination(t *testing.T) {
	s := newStand(t)
	s.DestDir = s.file("a file")
	if _, err := s.Write(); err == nil || !strings.Contains(err.Error(), "--dest-dir: ") {
		t.Errorf("the error is %v", err)
	}
}

func TestTextIsWhatOneWouldWrite(t *testing.T) {
	set, err := bundles.Set()
	if err != nil {
		t.Fatal(err)
	}
	b, err := set.Named("ibmcloud")
	if err != nil {
		t.Fatal(err)
	}
	objects, err := b.Resources(bundle.Values{Images: bundle.Images{"cloudControllerManagerIBM": "r/ibm:1"}})
	if err != nil {
		t.Fatal(err)
	}
	var text, list bytes.Buffer
	if err := WriteYAML(&text, objects); err != nil {
		t.Fatal(err)
	}
	if err := WriteJSON(&list, objects); err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"status:", "creationTimestamp", "null", "resources: {}"} {
		if strings.Contains(text.String(), not) {
			t.Errorf("%q is in\n%s", not, text.String())
		}
	}
	if got := strings.Count(text.String(), "---\n"); got != len(objects) {
		t.Errorf("%d documents", got)
	}
	var l struct{ Items []map[string]any }
	if err := json.Unmarshal(list.Bytes(), &l); err != nil || len(l.Items) != len(objects) {
		t.Errorf("%d items, %v", len(l.Items), err)
	}
}
