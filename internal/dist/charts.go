// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"

	"github.com/outrigger/outrigger/internal/filetree"
)

// charts are the folders of the charts.
func charts() []string { return []string{"deploy/chart", "deploy/ccm-operator/chart"} }

// defaultPrefix is the registry of the images in charts and CRDs of a checkout.
const defaultPrefix = "localhost/outrigger"

// makeCharts packs the charts as `helm package` does, which writes the time of
// the day into its archives.
func (b *builder) makeCharts(context.Context) error {
	for _, folder := range charts() {
		if err := b.makeChart(filepath.Join(b.Root, folder)); err != nil {
			return fmt.Errorf("%s: %w", folder, err)
		}
	}
	return nil
}

var (
	chartName       = regexp.MustCompile(`(?m)^name: (\S+)$`)
	chartVersion    = regexp.MustCompile(`(?m)^version: .*$`)
	chartAppVersion = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

func (b *builder) makeChart(folder string) error {
	definition, err := os.ReadFile(filepath.Join(folder, "Chart.yaml"))
	if err != nil {
		return err
	}
	name := chartName.FindSubmatch(definition)
	if name == nil || !chartVersion.Match(definition) || !chartAppVersion.Match(definition) {
		return errors.New("there is no name, version or appVersion in Chart.yaml")
	}
	// The images' tag is the appVersion unless the values say another.
	definition = chartVersion.ReplaceAllLiteral(definition, []byte("version: "+b.source.semver()))
	definition = chartAppVersion.ReplaceAllLiteral(definition, fmt.Appendf(nil, "appVersion: %q", b.source.version))
	values, err := os.ReadFile(filepath.Join(folder, "values.yaml"))
	if err != nil {
		return err
	}
	t := filetree.Tree{}
	if err := t.Copy("", folder); err != nil {
		return err
	}
	t.File("Chart.yaml", definition)
	values = bytes.ReplaceAll(values, []byte(defaultPrefix), []byte(b.Prefix))
	if b.Prefix != defaultPrefix { // else whoever installs it names one, or is told how
		values = bytes.Replace(values, []byte(`prefix: ""`), []byte("prefix: "+b.Prefix), 1)
	}
	t.File("values.yaml", values)
	archive := path.Join(b.fresh, "charts", fmt.Sprintf("%s-%s.tgz", name[1], b.source.semver()))
	return writeTarGz(t.Under(string(name[1])), archive, b.source.date)
}
