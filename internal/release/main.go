// SPDX-License-Identifier: Apache-2.0

// Command release writes a release of the Cluster API provider: the folder that
// clusterctl reads, which is also what is attached to a release elsewhere.
//
//	go run ./internal/release -version v0.1.0 -prefix registry.example.com/outrigger \
//	    -kustomize PROGRAM -output dist bin/capi-manager ...
//
// The programs are those whose modules the bill of materials lists.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
)

func main() {
	var o Options
	flag.StringVar(&o.Version, "version", "", "version of the release, vX.Y.Z")
	flag.StringVar(&o.Prefix, "prefix", "", "registry and folder of the images")
	flag.StringVar(&o.Kustomize, "kustomize", "kustomize", "path of kustomize")
	flag.StringVar(&o.Output, "output", "dist", "folder to write infrastructure-outrigger/VERSION to")
	flag.StringVar(&o.Root, "root", ".", "folder of the sources")
	flag.Parse()
	o.Programs = flag.Args()
	folder, err := Make(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
	fmt.Println(folder)
}

// Options of a release.
type Options struct {
	Version, Prefix         string
	Kustomize, Output, Root string
	Programs                []string
}

func (o Options) validate() error {
	var errs []error
	if !version.MatchString(o.Version) {
		errs = append(errs, fmt.Errorf("version %q is not vX.Y.Z: set VERSION, as in make release VERSION=v0.1.0", o.Version))
	}
	if o.Prefix == "" {
		errs = append(errs, errors.New("there is no registry for the images: set PREFIX=REGISTRY/FOLDER"))
	}
	if len(o.Programs) == 0 {
		errs = append(errs, errors.New("name the programs of the release"))
	}
	return errors.Join(errs...)
}
