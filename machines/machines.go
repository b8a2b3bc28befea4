// SPDX-License-Identifier: Apache-2.0

// Package machines makes an infrastructure provider of Cluster API of a
// provider: the manager of the kinds OutriggerCluster and OutriggerMachine,
// with the provider linked in.
//
//	func main() { machines.Main("mycloud", config.New("mycloud", open)) }
//
// The program takes the flags and variables of capi-manager, and the variables
// of the provider. A provider MUST have the capabilities Lister and Getter: a machine
// that was made in the moment a manager ended is found by its tags.
//
// The tutorial is docs/capi-tutorial.md. What a provider needs of Cluster API
// is this function; the reconciler behind it is not a library
// (docs/adr/0012-the-reconciler-of-machines-is-no-library.md).
package machines

import (
	"cmp"
	"io"
	"os"

	"github.com/outrigger/outrigger/internal/machines/command"
	"github.com/outrigger/outrigger/provider"
)

// Options are for [Run]. What is not set is the process's own.
type Options struct {
	// Name is the provider's, such as mycloud. It is in the providerIDs of all
	// machines, outrigger://mycloud/ID: it must never change.
	Name  string
	Cloud provider.CloudProvider
	// Args are the arguments without the program's name.
	Args           []string
	Stdout, Stderr io.Writer
	// Getenv returns the manager's variables; the provider reads its own.
	Getenv func(string) string
}

// Main is the main function of an infrastructure provider. It does not return.
func Main(name string, cloud provider.CloudProvider) {
	os.Exit(Run(Options{Name: name, Cloud: cloud, Args: os.Args[1:]}))
}

// Run is Main with options and returns the exit code: 0, 1 when the manager
// could not start or go on, 2 for wrong flags and settings.
func Run(o Options) int {
	provider.AddCloudProvider(o.Name, o.Cloud)
	c := &command.Command{Stdout: cmp.Or[io.Writer](o.Stdout, os.Stdout), Stderr: cmp.Or[io.Writer](o.Stderr, os.Stderr), Getenv: o.getenv}
	return c.Run(o.Args)
}

// getenv has the provider chosen unless somebody chooses another, such as none.
func (o Options) getenv(name string) string {
	get := o.Getenv
	if get == nil {
		get = os.Getenv
	}
	if name == "CLOUD_PROVIDER" {
		return cmp.Or(get(name), o.Name)
	}
	return get(name)
}
