// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/outrigger/outrigger/internal/machines/release"
)

// crds are the parts of the product that have CRDs, and the folder or the file
// of each.
func crds() map[string]string {
	return map[string]string{
		"peerpods":     "deploy/base/crd",
		"ccm-operator": "deploy/ccm-operator/crd/ccm.outrigger.dev_cloudcontrollermanagers.yaml",
		"cluster-api":  "config/default",
	}
}

// makeCRDs writes the CRDs of each part into one file.
func (b *builder) makeCRDs(ctx context.Context) error {
	for part, from := range crds() {
		data, err := b.definitions(ctx, filepath.Join(b.Root, from))
		if err != nil {
			return fmt.Errorf("%s: %w", from, err)
		}
		if err := writeBytes(filepath.Join(b.fresh, "crds", part+".yaml"), data); err != nil {
			return err
		}
	}
	return nil
}

// definitions returns a file, or the CRDs of what kustomize makes of a folder:
// those of Cluster API name the service of their conversion webhook.
func (b *builder) definitions(ctx context.Context, from string) ([]byte, error) {
	if info, err := os.Stat(from); err != nil || !info.IsDir() {
		return os.ReadFile(from)
	}
	if err := b.checkKustomize(PartCRDs); err != nil {
		return nil, err
	}
	components, err := b.run(ctx, nil, b.Kustomize, "build", from)
	if err != nil {
		return nil, err
	}
	var found []string
	for doc := range strings.SplitSeq(string(components), "\n---\n") {
		if strings.Contains("\n"+doc, "\nkind: CustomResourceDefinition\n") {
			found = append(found, strings.TrimSpace(doc)+"\n")
		}
	}
	return []byte(strings.Join(found, "---\n")), nil
}

func (b *builder) checkKustomize(part string) error {
	if _, err := exec.LookPath(b.Kustomize); err != nil {
		return fmt.Errorf("-kustomize: %w: run `make setup`, or leave the part %s out with -only", err, part)
	}
	return nil
}

// capiImages are those that the Cluster API provider's components name.
func capiImages() []string { return []string{"capi-manager", "cluster-loadbalancer"} }

// makeCAPI writes the folder that clusterctl reads, when the version is one that
// it takes.
func (b *builder) makeCAPI(ctx context.Context) error {
	if !b.source.isRelease() {
		b.Log("dist: the Cluster API provider is left out: clusterctl takes releases vX.Y.Z, and this is %s; give VERSION=vX.Y.Z", b.source.version)
		return nil
	}
	if err := b.checkKustomize(PartCAPI); err != nil {
		return err
	}
	if err := b.compile(ctx, "amd64", capiImages()...); err != nil {
		return err
	}
	var programs []string
	for _, program := range capiImages() {
		programs = append(programs, filepath.Join(b.programs("amd64"), program))
	}
	_, err := release.Make(release.Options{
		Version: b.source.version, Prefix: b.Prefix, Root: b.Root, Output: b.fresh, Kustomize: b.Kustomize, Programs: programs,
		Date: b.source.date,
	})
	return err
}
