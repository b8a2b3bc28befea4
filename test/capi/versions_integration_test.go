// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// versionSpecs are the labels of specifications that need node images of two versions of
// Kubernetes; one more is below.
var versionSpecs = []string{
	"docker-cluster-upgrade", "docker-cluster-upgrade-three", "docker-cluster-upgrade-scale-in",
}

// TestUpstreamSpecsOnDockerOfTwoVersions runs them, from an older version to that of the
// other tests.
func TestUpstreamSpecsOnDockerOfTwoVersions(t *testing.T) {
	current, older := nodeArchive(t), imageFile(t, "OUTRIGGER_NODE_IMAGE_OLDER", "make test-capi-upstream")
	programs := t.TempDir()
	from, to := unpackKube(t, older, programs), unpackKube(t, current, programs)
	if from == to || to != nodeVersion {
		t.Fatalf("the images are of Kubernetes %s and %s, want an older one and %s", from, to, nodeVersion)
	}
	f, u := startDockerSpecs(t, older, current)
	folder := f.r.Folder("v0.1.0")
	byClass := readText(t, filepath.Join(folder, "cluster-template-topology.yaml"))
	addClass(t, folder, "outrigger-docker", "scale-in", byClass, scalesIn...)
	addOldNodes(t, folder, byClass, programs)
	u.env = append(u.env, "UPSTREAM_VERSION="+from, "UPSTREAM_VERSION_TO="+to)
	u.runAtEngine(t, f.engine, versionSpecs)
	t.Run("docker-kubeadm-join-old-nodes", func(t *testing.T) {
		if !allCapabilities(t) {
			t.Skip("the specification's last look at the machine is a privileged exec, for which the engine needs all capabilities: run it on a machine where root has them")
		}
		u.runAtEngine(t, f.engine, []string{"docker-kubeadm-join-old-nodes"})
	})
}

// allCapabilities reports whether root has all of the kernel's.
func allCapabilities(t *testing.T) bool {
	t.Helper()
	var last int
	if _, err := fmt.Sscan(readText(t, "/proc/sys/kernel/cap_last_cap"), &last); err != nil {
		t.Fatal(err)
	}
	var effective uint64
	_, line, _ := strings.Cut(readText(t, "/proc/self/status"), "CapEff:")
	if _, err := fmt.Sscanf(line, "%x", &effective); err != nil {
		t.Fatal(err)
	}
	return effective == 1<<(last+1)-1
}

// unpackKube writes the program of Kubernetes of a node image to VERSION/kube in a folder,
// and returns the version.
func unpackKube(t *testing.T, file, folder string) string {
	t.Helper()
	image, version := nodeImage(t, file)
	if err := os.MkdirAll(filepath.Join(folder, version), 0o755); err != nil {
		t.Fatal(err)
	}
	program, err := os.OpenFile(filepath.Join(folder, version, "kube"), os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	copyFrom(t, image, "usr/local/bin/kube", program)
	return version
}

// nodeImage returns the image in a file, and its version.
func nodeImage(t *testing.T, file string) (image v1.Image, version string) {
	t.Helper()
	manifest, err := tarball.LoadManifest(func() (io.ReadCloser, error) { return os.Open(file) })
	if err != nil || len(manifest) != 1 || len(manifest[0].RepoTags) != 1 {
		t.Fatalf("%s: %v, %v, want one image", file, manifest, err)
	}
	tag, err := name.NewTag(manifest[0].RepoTags[0])
	if err == nil {
		image, err = tarball.ImageFromPath(file, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return image, tag.TagStr()
}

// copyFrom copies a file of an image.
func copyFrom(t *testing.T, image v1.Image, name string, to io.Writer) {
	t.Helper()
	files := mutate.Extract(image)
	defer files.Close()
	r := tar.NewReader(files)
	for {
		h, err := r.Next()
		if err != nil {
			t.Fatalf("the image has no %s: %v", name, err)
		}
		if h.Name != name {
			continue
		}
		if _, err := io.Copy(to, r); err != nil {
			t.Fatal(err)
		}
		return
	}
}

// addOldNodes adds a class whose workers take the kubeadm of the control plane's version
// from a folder of the engine's host. The specification looks for it in a container with
// the Node's name. What it sets by a variable, which the maintainers' extension would add,
// the template has from the beginning.
func addOldNodes(t *testing.T, folder, byClass, programs string) {
	t.Helper()
	addClass(t, folder, "outrigger-docker", "old-nodes", byClass,
		"  variables:\n", "$0    - {name: kubeadmConfigTemplateAnnotations, required: false, schema: {openAPIV3Schema: {type: object, additionalProperties: {type: string}}}}\n",
		`(kind: DockerMachineTemplate\nmetadata: \{name: outrigger-docker-worker}\nspec:\n  template:\n    spec:) \{}`,
		"$1 {extraMounts: [{hostPath: "+programs+", containerPath: /opt/kube, readOnly: true}]}",
		`(?s)(kind: KubeadmConfigTemplate\nmetadata: \{name: outrigger-docker-worker)(}\nspec:\n  template:\n    spec:\n)(.*)local_hostname`,
		"${1}, annotations: {"+skipSkew+"}${2}"+oldNodes+"${3}instance_id")
}

const (
	skipSkew = "machineset.cluster.x-k8s.io/skip-preflight-checks: 'KubeadmVersionSkew,ControlPlaneVersionSkew'"
	oldNodes = `      preKubeadmCommands: ["sh -e /run/cluster-api/fetch-kubeadm.sh > /var/log/fetch-kubeadm.log 2>&1"]
      files:
        - path: /run/cluster-api/fetch-kubeadm.sh
          contentFormat: Template
          content: |
            version="{{ .controlPlane.version }}"
            echo "raw version from template: {{ .controlPlane.version }}"
            cp --remove-destination /opt/kube/{{ .controlPlane.version }}/kube /usr/local/bin/kubeadm
            kubeadm version -o short | grep -x {{ .controlPlane.version }}
`
)
