// SPDX-License-Identifier: Apache-2.0

package dist

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
)

// Parts of a distribution. Bills of materials, provenance and checksums are of
// the parts that are made.
const (
	PartArchive = "archive" // outrigger_VERSION_linux_amd64.tar.gz
	PartDeb     = "deb"     // outrigger_VERSION_amd64.deb
	PartKubectl = "kubectl" // kubectl-outrigger_VERSION_linux_ARCH.tar.gz
	PartImages  = "images"  // images/NAME.oci.tar
	PartCharts  = "charts"  // charts/NAME-VERSION.tgz
	PartCRDs    = "crds"    // crds/PART.yaml
	PartCAPI    = "capi"    // infrastructure-outrigger/VERSION/
)

// Parts lists what Options.Parts may hold, in the order in which it is made.
func Parts() []string {
	return []string{PartArchive, PartDeb, PartKubectl, PartImages, PartCharts, PartCRDs, PartCAPI}
}

// architectures are those of container images and of kubectl-outrigger.
var architectures = [...]string{"amd64", "arm64"}

// Options say what to make of what.
type Options struct {
	Root          string   // folder of the sources
	Output        string   // folder to make; a distribution that is there is replaced
	Cache         string   // folder for the Debian packages of the guest image
	Version       string   // of the programs; empty is what `git describe` says
	Prefix        string   // registry of the images and a folder in it
	Architectures []string // of images and kubectl-outrigger; empty is all
	Parts         []string // those to make; empty is all
	Key           string   // file of a private key to sign with; empty signs nothing
	Password      Password // of Key
	Kustomize     string   // program for the Cluster API provider's components
	URL           string   // where the files will be found, for the manifest of the plugin
	Builder       string   // a URI that names who builds, for the provenance
	// Log gets one line for each stage, and the summary.
	Log func(format string, args ...any)
}

func (o *Options) complete() {
	if len(o.Architectures) == 0 {
		o.Architectures = architectures[:]
	}
	if len(o.Parts) == 0 {
		o.Parts = Parts()
	}
	if o.Password == nil {
		o.Password = func() ([]byte, error) { return nil, nil }
	}
	slices.Sort(o.Architectures)
	o.Architectures = slices.Compact(o.Architectures)
}

// validate reports everything that is wrong at once.
func (o *Options) validate() error {
	var errs []error
	if platform := runtime.GOOS + "/" + runtime.GOARCH; platform != "linux/amd64" {
		errs = append(errs, fmt.Errorf("a distribution is made on linux/amd64, where the guest image is, and not on %s", platform))
	}
	for _, arch := range o.Architectures {
		if !slices.Contains(architectures[:], arch) {
			errs = append(errs, fmt.Errorf("-arch %q: want %s", arch, strings.Join(architectures[:], " or ")))
		}
	}
	for _, part := range o.Parts {
		if !slices.Contains(Parts(), part) {
			errs = append(errs, fmt.Errorf("-only %q: want some of %s", part, strings.Join(Parts(), ", ")))
		}
	}
	for flag, value := range map[string]string{"-output": o.Output, "-prefix": o.Prefix, "-root": o.Root, "-cache": o.Cache} {
		if value == "" {
			errs = append(errs, fmt.Errorf("%s is empty", flag))
		}
	}
	return errors.Join(errs...)
}

// wants reports whether one of the parts is to be made.
func (o *Options) wants(parts ...string) bool {
	return slices.ContainsFunc(parts, func(part string) bool { return slices.Contains(o.Parts, part) })
}
