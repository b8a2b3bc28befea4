// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/util/contract"
	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/sbom"
)

// version is one that clusterctl takes.
var version = regexp.MustCompile(`^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[0-9A-Za-z.-]+)?$`)

// Make writes a release and returns its folder. One that was there is replaced
// once the new one is complete.
func Make(o Options) (folder string, err error) {
	o.complete()
	if err := o.validate(); err != nil {
		return "", err
	}
	files, err := o.files()
	if err != nil {
		return "", err
	}
	base := filepath.Join(o.Output, o.provider())
	if err := os.MkdirAll(base, 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(base, ".making-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	if err := os.Chmod(fresh, 0o755); err != nil {
		return "", err
	}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(fresh, name), data, 0o644); err != nil {
			return "", err
		}
	}
	folder = filepath.Join(base, o.Version)
	if err := os.RemoveAll(folder); err != nil {
		return "", err
	}
	return folder, os.Rename(fresh, folder)
}

func (o *Options) files() (map[string][]byte, error) {
	metadata, err := o.metadata()
	if err != nil {
		return nil, err
	}
	components, err := o.components()
	if err != nil {
		return nil, err
	}
	sbom, err := o.bill()
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{
		"metadata.yaml": metadata, "infrastructure-components.yaml": components, "sbom.spdx.json": sbom,
	}
	templates, err := filepath.Glob(filepath.Join(o.Root, "templates", "cluster*.yaml"))
	if err != nil {
		return nil, err
	}
	for _, t := range templates {
		if files[filepath.Base(t)], err = os.ReadFile(t); err != nil {
			return nil, err
		}
	}
	files["sha256sums.txt"] = checksums(files)
	return files, nil
}

// metadata returns metadata.yaml, which has to know the version.
func (o *Options) metadata() ([]byte, error) {
	path := filepath.Join(o.Root, "metadata.yaml")
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var m clusterctlv1.Metadata
	if err := yaml.UnmarshalStrict(data, &m); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	parts := version.FindStringSubmatch(o.Version)
	for _, s := range m.ReleaseSeries {
		if strconv.Itoa(int(s.Major)) == parts[1] && strconv.Itoa(int(s.Minor)) == parts[2] {
			return data, nil
		}
	}
	return nil, fmt.Errorf("%s has no series %s.%s, so clusterctl would refuse %s: add it, with its contract", path, parts[1], parts[2], o.Version)
}

func (o *Options) bill() ([]byte, error) {
	created := o.Date
	if created.IsZero() {
		var err error
		if created, err = sbom.SourceDate(os.Getenv("SOURCE_DATE_EPOCH")); err != nil {
			return nil, err
		}
	}
	d := sbom.New(o.provider()+"-"+o.Version, created)
	for _, path := range o.Programs {
		content, err := os.ReadFile(path)
		if err == nil {
			err = d.AddProgram(sbom.Program{Name: filepath.Base(path), Version: o.Version, License: o.License}, content)
		}
		if err != nil {
			return nil, fmt.Errorf("bill of materials: %s: %w: build it first, such as with `make build`", path, err)
		}
	}
	return d.Encode()
}

// components returns the objects that clusterctl installs, with the images of
// this release.
func (o *Options) components() ([]byte, error) {
	command := "build"
	if filepath.Base(o.Kustomize) == "kubectl" {
		command = "kustomize"
	}
	cmd := exec.Command(o.Kustomize, command, filepath.Join(o.Root, "config", "default"))
	var problem bytes.Buffer
	cmd.Stderr = &problem
	data, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kustomize build config/default: %w: %s", err, bytes.TrimSpace(problem.Bytes()))
	}
	for _, was := range o.Images {
		if bytes.Count(data, []byte(was)) != 1 {
			return nil, fmt.Errorf("config/default does not have the image %q once", was)
		}
		data = bytes.Replace(data, []byte(was), []byte(o.image(was)), 1)
	}
	return data, check(data, o.provider())
}

// checksums returns a file in the format of sha256sum.
func checksums(files map[string][]byte) []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(files[name]), name)
	}
	return out.Bytes()
}

// contracts are those that the CRDs have to name a version for.
var contracts = []string{clusterv1.GroupVersion.Group + "/v1beta1", clusterv1.GroupVersion.Group + "/v1beta2"}

// check returns what clusterctl and core would reject in components, before
// users see it.
func check(components []byte, provider string) error {
	var errs []error
	namespaces, deployments := 0, 0
	for doc := range strings.SplitSeq(string(components), "\n---\n") {
		var o unstructured.Unstructured
		if err := yaml.Unmarshal([]byte(doc), &o.Object); err != nil {
			return fmt.Errorf("components: %w", err)
		}
		if o.GetLabels()[clusterv1.ProviderNameLabel] != provider {
			errs = append(errs, fmt.Errorf("%s %s lacks the label %s=%s", o.GetKind(), o.GetName(), clusterv1.ProviderNameLabel, provider))
		}
		switch o.GetKind() {
		case "Namespace":
			namespaces++
		case "Deployment":
			deployments++
			errs = append(errs, checkDeployment(o))
		case "CustomResourceDefinition":
			errs = append(errs, checkCRD(o))
		}
	}
	if namespaces != 1 || deployments != 1 {
		errs = append(errs, fmt.Errorf("there are %d Namespaces and %d Deployments, not one of each", namespaces, deployments))
	}
	return errors.Join(errs...)
}

func checkDeployment(o unstructured.Unstructured) error {
	containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
	for _, c := range containers {
		if m, ok := c.(map[string]any); ok && m["name"] == "manager" {
			return nil
		}
	}
	return fmt.Errorf("the Deployment %s has no container manager", o.GetName())
}

// checkCRD: core computes the name of a CRD, and finds the version that has the
// contract's shape by label.
func checkCRD(o unstructured.Unstructured) error {
	group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
	if want := contract.CalculateCRDName(group, kind); o.GetName() != want {
		return fmt.Errorf("the CRD of %s is called %s, not %s", kind, o.GetName(), want)
	}
	served := map[string]bool{}
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	for _, v := range versions {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		served[name], _ = m["served"].(bool)
	}
	for _, c := range contracts {
		for v := range strings.SplitSeq(o.GetLabels()[c], "_") {
			if !served[v] {
				return fmt.Errorf("label %s of CRD %s says %q, which is not a version that is served", c, o.GetName(), v)
			}
		}
	}
	return nil
}
