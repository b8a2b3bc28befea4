// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// modulePath is where everything is built from.
const modulePath = "github.com/outrigger/outrigger"

// Names of the program of images/node/kube, and which of them are run in pods.
var (
	kubePrograms = []string{"kubeadm", "kubectl", "kubelet"}
	podPrograms  = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler"}
)

// program is one to build: a package in a module's folder.
type program struct {
	name, module, pkg string
	ldflags           string
}

func (b *builder) buildPrograms(ctx context.Context) error {
	dir, err := moduleFolder(ctx)
	if err != nil {
		return err
	}
	kube, err := b.kubeModule(ctx, filepath.Join(dir, "images", "node", "kube"))
	if err != nil {
		return err
	}
	list := []program{
		{name: "node-agent", module: dir, pkg: "./cmd/node-agent", ldflags: "-X " + modulePath + "/internal/version.Version=" + b.Version},
		{name: "pause", module: dir, pkg: "./images/node/pause"},
		{name: "kube", module: kube, pkg: ".", ldflags: versionFlags(b.version)},
		{name: "node-network", module: dir, pkg: "./images/node/network"},
		{name: "coredns", module: filepath.Join(dir, "images", "node", "coredns"), pkg: "."},
	}
	for _, p := range list {
		b.Log("compiling %s", p.name)
		// Other flags would bring a second copy of all packages to Go's cache.
		args := []string{"build", "-trimpath", "-buildvcs=false", "-ldflags", strings.TrimSpace("-s -w " + p.ldflags), "-o", b.built(p.name), p.pkg}
		if _, err := run(ctx, p.module, []string{"CGO_ENABLED=0", "GOFLAGS=-mod=readonly"}, "go", args...); err != nil {
			return err
		}
	}
	return nil
}

// built returns the path of a program before it is in the image.
func (b *builder) built(name string) string { return filepath.Join(b.work, name) }

func moduleFolder(ctx context.Context) (string, error) {
	out, err := run(ctx, "", nil, "go", "list", "-m", "-f", "{{.Path}}\t{{.Dir}}")
	if err != nil {
		return "", err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(out), "\t")
	if path != modulePath {
		return "", fmt.Errorf("node images are built in a checkout of %s, this is %s", modulePath, path)
	}
	return dir, nil
}

const kubernetes = "k8s.io/kubernetes"

// versions are those of Kubernetes: its parts have the same with major version 0.
var versions = regexp.MustCompile(`^v1\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9a-z.-]+)?$`)

// ValidVersion reports whether a text is a version of Kubernetes, such as v1.36.3.
func ValidVersion(text string) bool { return versions.MatchString(text) }

// goMod is what is read of a go.mod.
type goMod struct {
	Require []struct{ Path, Version string }
	Replace []struct{ Old, New struct{ Path string } }
}

func readModule(ctx context.Context, file string) (*goMod, error) {
	out, err := run(ctx, "", nil, "go", "mod", "edit", "-json", file)
	if err != nil {
		return nil, err
	}
	var m goMod
	return &m, json.Unmarshal([]byte(out), &m)
}

// kubeModule sets the version of Kubernetes, and returns the folder of the module of its
// programs: own, or for another version a copy of it.
func (b *builder) kubeModule(ctx context.Context, own string) (string, error) {
	m, err := readModule(ctx, filepath.Join(own, "go.mod"))
	if err != nil {
		return "", err
	}
	for _, r := range m.Require {
		if r.Path == kubernetes {
			b.version = cmp.Or(b.Kubernetes, r.Version)
		}
	}
	if b.Kubernetes == "" || b.version == "" {
		return own, nil
	}
	return b.moduleOfVersion(ctx, own)
}

// moduleOfVersion copies the module, and has it require b.version alone: whatever else
// that needs has the version which Kubernetes was released with.
func (b *builder) moduleOfVersion(ctx context.Context, own string) (string, error) {
	copied := b.built("kube-module")
	if err := os.CopyFS(copied, os.DirFS(own)); err != nil {
		return "", err
	}
	out, err := run(ctx, copied, nil, "go", "mod", "download", "-json", kubernetes+"@"+b.version)
	if err != nil {
		return "", fmt.Errorf("find Kubernetes %s: %w", b.version, err)
	}
	var found struct{ GoMod string }
	if err := json.Unmarshal([]byte(out), &found); err != nil {
		return "", err
	}
	upstream, err := readModule(ctx, found.GoMod)
	if err != nil {
		return "", err
	}
	file := filepath.Join(copied, "go.mod")
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(file, []byte(moduleText(string(text), upstream, b.version)), 0o600); err != nil {
		return "", err
	}
	b.Log("looking for the modules of Kubernetes %s", b.version)
	// Requirements and checksums of what is imported are added.
	_, err = run(ctx, copied, []string{"CGO_ENABLED=0", "GOFLAGS=-mod=mod"}, "go", "list", "-deps", ".")
	return copied, err
}

// moduleText returns a go.mod that requires a version of Kubernetes. Upstream's, which
// has the parts of Kubernetes in folders beside it, says which there are: other modules
// find them under their own names. What stands before the requirements of own remains.
func moduleText(own string, upstream *goMod, version string) string {
	head, _, _ := strings.Cut(own, "\nrequire (")
	text := []string{head, "require " + kubernetes + " " + version, ""}
	for _, r := range upstream.Replace {
		if strings.HasPrefix(r.New.Path, "./") {
			text = append(text, fmt.Sprintf("replace %s => %[1]s v0.%s", r.Old.Path, strings.TrimPrefix(version, "v1.")))
		}
	}
	return strings.Join(text, "\n") + "\n"
}

func versionFlags(version string) string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	var flags []string
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, value := range []string{"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X "+pkg+"."+value)
		}
	}
	return strings.Join(flags, " ")
}
