// SPDX-License-Identifier: Apache-2.0

// Package release writes a release of an infrastructure provider of Cluster
// API: the folder that clusterctl reads, which is also what is attached to a
// release elsewhere.
package release

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider/config"
)

// Introduction is what the help begins with.
const Introduction = `capi-release writes a release of an infrastructure provider of Cluster API into
OUTPUT/infrastructure-NAME/VERSION: the components that kustomize makes of
ROOT/config/default, ROOT/metadata.yaml, ROOT/templates/cluster*.yaml, a bill of
materials of the named programs (SPDX 2.3) and checksums. It refuses what clusterctl
or Cluster API's core would stumble over. Equal sources give equal files.

  capi-release -name mycloud -version v0.1.0 -prefix registry.example.com/mycloud \
      -image localhost/mycloud/manager:latest bin/manager

SOURCE_DATE_EPOCH is the time that the bill of materials has.

`

// Run runs the command capi-release with these arguments and returns the exit code.
func Run(args []string, stdout, stderr io.Writer) int {
	var o Options
	p := program.Program{Name: "capi-release", Settings: config.Bind(&o), Rest: &o.Programs, Getenv: os.Getenv}
	err := p.Load(flag.NewFlagSet("", flag.ContinueOnError), args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(stdout, Introduction)
		p.Settings.WriteHelp(stdout)
		return program.ExitOK
	}
	var folder string
	if err == nil {
		folder, err = Make(o)
	}
	if err == nil {
		fmt.Fprintln(stdout, folder)
	}
	return program.Exit("capi-release", stderr, err)
}

// Settings returns the program's settings.
func Settings() *config.Settings { return config.Bind(new(Options)) }

// Options of a release. What has a tag is a setting of capi-release.
type Options struct {
	Name    string `flag:"name" default:"outrigger" usage:"what clusterctl calls the provider; a name"`
	Version string `flag:"version" usage:"version of the release, vX.Y.Z"`
	Prefix  string `flag:"prefix" usage:"registry and folder of the images"`
	// Images are those of config/default that this release has built.
	Images    images `flag:"image" usage:"image in config/default that becomes PREFIX/its last part:VERSION; may be repeated"`
	License   string `flag:"license" default:"Apache-2.0" usage:"SPDX identifier of the programs' licence"`
	Kustomize string `flag:"kustomize" default:"kustomize" usage:"path of kustomize, or of kubectl"`
	Output    string `flag:"output" default:"dist" usage:"folder to write infrastructure-NAME/VERSION to"`
	Root      string `flag:"root" default:"." usage:"folder of the sources"`
	Programs  []string
	// Date is that of the sources; zero is SOURCE_DATE_EPOCH.
	Date time.Time
}

type images []string

func (i *images) UnmarshalText(text []byte) error {
	*i = append(*i, string(text))
	return nil
}

// ours are the images of Outrigger's own config/default.
var ours = []string{"localhost/outrigger/capi-manager:latest", "outrigger/cluster-loadbalancer:latest"}

func (o *Options) complete() {
	if o.Name == "" {
		o.Name = "outrigger"
	}
	if o.License == "" {
		o.License = "Apache-2.0"
	}
	if o.Name == "outrigger" && len(o.Images) == 0 {
		o.Images = slices.Clone(ours)
	}
}

// name is one that clusterctl takes: a part of labels and of folders.
var name = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$`)

func (o *Options) validate() error {
	var errs []error
	if !name.MatchString(o.Name) {
		errs = append(errs, fmt.Errorf("-name %q is not one that clusterctl takes: want lower-case letters, digits and -, at most 48", o.Name))
	}
	if !version.MatchString(o.Version) {
		errs = append(errs, fmt.Errorf("-version %q is not vX.Y.Z: set VERSION, as in make release VERSION=v0.1.0", o.Version))
	}
	if o.Prefix == "" {
		errs = append(errs, errors.New("there is no registry for the images: give -prefix, as in make release PREFIX=REGISTRY/FOLDER"))
	}
	if len(o.Images) == 0 {
		errs = append(errs, errors.New("name the image of the manager in config/default with -image"))
	}
	if len(o.Programs) == 0 {
		errs = append(errs, errors.New("name the programs of the release"))
	}
	return errors.Join(errs...)
}

// provider returns the provider's label, which is also the folder of its releases.
func (o *Options) provider() string { return "infrastructure-" + o.Name }

// image returns the name that an image of config/default has in this release.
func (o *Options) image(was string) string {
	base := was[strings.LastIndex(was, "/")+1:]
	base, _, _ = strings.Cut(base, ":")
	return o.Prefix + "/" + base + ":" + o.Version
}
