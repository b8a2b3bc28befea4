// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/containerd/containerd/api/types"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/version"
)

// Name is the program's, from which follows the runtime type
// io.containerd.outrigger.v2. A symlink of another name serves another type.
const Name = "containerd-shim-outrigger-v2"

// arguments are those of containerd's contract with shims.
type arguments struct {
	namespace string
	id        string
	address   string
	bundle    string
	debug     bool
	version   bool
	info      bool
	action    string
}

// Flags returns the program's flags.
func Flags() *flag.FlagSet { return new(arguments).flags(io.Discard) }

func (a *arguments) flags(w io.Writer) *flag.FlagSet {
	flags := flag.NewFlagSet(Name, flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&a.namespace, "namespace", "", "containerd's `namespace` of the container")
	flags.StringVar(&a.id, "id", "", "`id` of the container")
	flags.StringVar(&a.address, "address", "", "containerd's gRPC `socket`")
	flags.String("publish-binary", "", "containerd's `program`; not needed, events go to its ttrpc socket")
	flags.StringVar(&a.bundle, "bundle", "", "`folder` of the container; the working directory by default")
	flags.String("socket", "", "not needed; accepted for older containerds")
	flags.BoolVar(&a.debug, "debug", false, "log at debug level")
	flags.BoolVar(&a.version, "v", false, "print the version")
	flags.BoolVar(&a.info, "info", false, "print what containerd asks a runtime about itself, as protobuf")
	flags.Usage = func() {
		fmt.Fprintf(w, "%s is started by containerd, not by hand; see docs/shim.md.\n\nusage: %s -namespace NS -id ID -address SOCKET [flags] start|delete\n", Name, Name)
		flags.PrintDefaults()
	}
	return flags
}

func parse(args []string, w io.Writer) (*arguments, error) {
	a := &arguments{}
	flags := a.flags(w)
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if a.version || a.info {
		return a, nil
	}
	a.action = flags.Arg(0)
	switch {
	case flags.NArg() > 1:
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(1))
	case a.id == "":
		return nil, fmt.Errorf("-id is missing; containerd starts this program, see docs/shim.md")
	case a.namespace == "":
		return nil, fmt.Errorf("-namespace is missing")
	}
	return a, nil
}

// Main runs the program and returns its exit status.
func Main(args []string, stdout, stderr io.Writer) int {
	a, err := parse(args, stderr)
	switch {
	case err == flag.ErrHelp:
		return 0
	case err != nil:
		fmt.Fprintf(stderr, "%s: %v\n", Name, err)
		return 2
	}
	if err := a.run(stdout); err != nil {
		fmt.Fprintf(stderr, "%s: %v\n", Name, err)
		return 1
	}
	return 0
}

func (a *arguments) run(stdout io.Writer) error {
	switch {
	case a.version:
		_, err := fmt.Fprintf(stdout, "%s %s\n", Name, version.String())
		return err
	case a.info:
		return write(stdout, &types.RuntimeInfo{
			Name: "io.containerd.outrigger.v2", Version: &types.RuntimeVersion{Version: version.Version, Revision: version.Commit},
		})
	}
	switch a.action {
	case "start":
		address, err := a.start()
		if err == nil {
			_, err = io.WriteString(stdout, address)
		}
		return err
	case "delete":
		resp, err := a.delete(context.Background())
		if err != nil {
			return err
		}
		return write(stdout, resp)
	case "":
		return a.serve()
	}
	return fmt.Errorf("%q is neither start nor delete", a.action)
}

func write(w io.Writer, m proto.Message) error {
	data, err := proto.Marshal(m)
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

// folder returns the bundle, which containerd makes the working directory.
func (a *arguments) folder() (string, error) {
	if a.bundle != "" {
		return a.bundle, nil
	}
	return os.Getwd()
}
