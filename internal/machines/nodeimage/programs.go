// SPDX-License-Identifier: Apache-2.0

package nodeimage

import (
	"context"
	"fmt"
	"path/filepath"
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
