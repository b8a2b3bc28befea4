// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/outrigger/outrigger/internal/filetree"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// makeKubectl makes an archive of the plugin of kubectl for each architecture,
// and the manifest with which krew installs them.
func (b *builder) makeKubectl(context.Context) error {
	sums := map[string]string{}
	for _, arch := range b.Architectures {
		t := filetree.Tree{}
		t.Program(kubectlName, filepath.Join(b.programs(arch), kubectlName))
		if err := b.addLicenses(t, ""); err != nil {
			return err
		}
		name := filepath.Join(b.fresh, b.kubectlArchive(arch))
		if err := writeTarGz(t, name, b.source.date); err != nil {
			return err
		}
		var err error
		if sums[arch], err = wholefile.SHA256(name); err != nil {
			return err
		}
	}
	manifest, err := yaml.Marshal(b.krewManifest(sums))
	if err != nil {
		return err
	}
	return writeBytes(filepath.Join(b.fresh, "outrigger.krew.yaml"), manifest)
}

func (b *builder) kubectlArchive(arch string) string {
	return fmt.Sprintf("%s_%s_linux_%s.tar.gz", kubectlName, b.source.fileVersion(), arch)
}

// krewManifest is what krew installs by (https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest/).
func (b *builder) krewManifest(sums map[string]string) map[string]any {
	var platforms []any
	for _, arch := range b.Architectures {
		platforms = append(platforms, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": "linux", "arch": arch}},
			"uri":      strings.TrimSuffix(b.URL, "/") + "/" + b.kubectlArchive(arch),
			"sha256":   sums[arch],
			"bin":      kubectlName,
		})
	}
	return map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]any{"name": "outrigger"},
		"spec": map[string]any{
			"version":          "v" + b.source.semver(),
			"homepage":         "https://" + modulePath,
			"shortDescription": "See what Outrigger does in a cluster",
			"description":      "Shows pods and the VMs that they run in, finds what is wrong and says how to\nmend it. It changes nothing in the cluster.\n",
			"platforms":        platforms,
		},
	}
}
