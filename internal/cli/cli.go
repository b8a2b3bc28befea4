// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line of outrigger: pods in their own VMs without
// a cluster.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/version"
)

// Exit codes of outrigger itself, those of docker and podman. Otherwise the
// code is the container's.
const (
	exitFailure       = 125 // outrigger failed
	exitNotExecutable = 126 // the command was found and cannot be run
	exitNotFound      = 127 // the command was not found
)

// exitError is an error with an exit code; without Err nothing is printed.
type exitError struct {
	Code int
	Err  error
}

func (e exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e exitError) Unwrap() error { return e.Err }

// exit returns nil for 0.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return exitError{Code: code}
}

// App is one invocation.
type App struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// OpenNetwork replaces the pods' network in tests; nil means the real one.
	OpenNetwork func(*node.Node) (node.Network, error)

	root     string
	images   string
	socket   string
	provider string
	adaptor  []string
}

// Main runs outrigger and returns its exit code.
func Main() int {
	app := &App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	return app.Run(os.Args[1:])
}

// Run runs one command line, without the program's name.
func (a *App) Run(args []string) int {
	// ttrpc logs late replies to calls that were given up; nobody can act on that.
	logrus.SetOutput(io.Discard)
	cmd := a.command()
	cmd.SetArgs(args)
	cmd.SetIn(a.Stdin)
	cmd.SetOut(a.Stdout)
	cmd.SetErr(a.Stderr)
	return a.report(cmd.ExecuteContextC(context.Background()))
}

func (a *App) report(cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	code := exitFailure
	if withCode, ok := errors.AsType[exitError](err); ok {
		code = withCode.Code
		if withCode.Err == nil {
			return code
		}
	}
	fmt.Fprintf(a.Stderr, "outrigger: %s\n", blame(cmd, explain(err)))
	return code
}

func (a *App) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "outrigger",
		Short: "Run containers in virtual machines of their own",
		Long: `outrigger runs a pod in a VM of its own, as a container runtime does with a Kata
shim and cloud-api-adaptor, but without a cluster. It starts what it needs with
the first pod and removes everything with the last.`,
		SilenceUsage: true, SilenceErrors: true, Version: version.String(),
		Args: noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.root, "root", defaultRoot(), "folder for state and sockets")
	fromEnvironment(flags, "root", "OUTRIGGER_ROOT")
	flags.StringVar(&a.images, "image-cache", "", "folder of the images that outrigger pull keeps; default: /var/cache/outrigger/images for root, else outrigger/images in the user's cache, ~/.cache")
	fromEnvironment(flags, "image-cache", "OUTRIGGER_IMAGE_CACHE")
	flags.StringVar(&a.socket, "socket", "", "hypervisor socket of a running cloud-api-adaptor; without it one is started")
	fromEnvironment(flags, "socket", "REMOTE_HYPERVISOR_ENDPOINT")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return configure(cmd) }
	root.SetFlagErrorFunc(wrongFlag)
	root.SetVersionTemplate("outrigger {{.Version}}\n")
	root.AddCommand(a.playCommand(), a.startCommand(), a.restartCommand(), a.attachCommand(), a.stopCommand(), a.killCommand(), a.waitCommand(), a.inspectCommand(), a.topCommand(), a.portCommand(), a.cpCommand())
	root.AddCommand(a.runCommand(), a.psCommand(), a.execCommand(), a.logsCommand(), a.consoleCommand(), a.statsCommand(),
		a.timelineCommand(), a.rmCommand(), a.poolCommand(), a.doctorCommand(), a.demoCommand(), a.versionCommand(), a.demoImageCommand(), a.imageCommand(), a.monitorCommand())
	root.AddCommand(a.pullCommand(), a.imagesCommand(), a.rmiCommand(), a.configCommand(), a.policyCommand(), a.verifyCommand())
	return root
}

func defaultRoot() string {
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" && os.Geteuid() != 0 {
		return filepath.Join(dir, "outrigger")
	}
	return node.DefaultRoot
}

// idLength is that of a pod's id, in hex digits.
const idLength = 32

// maxRoot is the longest root folder: a unix socket has 107 bytes (unix(7)),
// and that of an agent is ROOT/pools/NAME/pods/ID/agent.ttrpc.
const maxRoot = 107 - len("/pools/") - node.MaxPoolName - len("/pods//agent.ttrpc") - idLength

func (a *App) node() (*node.Node, error) {
	root, err := filepath.Abs(a.root)
	if err != nil {
		return nil, err
	}
	if len(root) > maxRoot {
		return nil, fmt.Errorf("--root %s: the path is too long for unix sockets; use at most %d bytes", root, maxRoot)
	}
	return &node.Node{Root: root, Provider: a.provider, AdaptorArgs: a.adaptor}, nil
}

func (a *App) network(n *node.Node) (node.Network, error) {
	if a.OpenNetwork != nil {
		return a.OpenNetwork(n)
	}
	return n.PodNetwork()
}

// troubleshooting has more on the errors that contain one of onPage. The site has no public address yet, so it is a
// path in the repository.
const troubleshooting = "docs/troubleshooting.md#outrigger-run-on-one-machine"

var onPage = []string{
	"no pod VM image", "is neither beside outrigger nor in PATH", "modprobe tun", "exists that is not ours", "choose another subnet", "VM of pod ",
	"the pod VM runs", "the registry refused the credentials", "plain HTTP only to registries", "does not trust the registry's certificate",
	"pods of provider ", "an adaptor with arguments ", "it was not pulled to this host", "is damaged; remove the image",
}

// explain adds advice to errors that users see.
func explain(err error) string {
	text := commandline.WithoutProtocol(err.Error())
	switch {
	case errors.Is(err, syscall.EACCES) && os.Geteuid() != 0, errors.Is(err, syscall.EPERM) && os.Geteuid() != 0:
		text += "\noutrigger needs root for VMs, interfaces and namespaces: run it with sudo, or name an adaptor that you may use with --socket"
	case errors.Is(err, syscall.ENOSPC):
		text += "\nmake room on that disk, or name a folder on another one with --root, for images with --image-cache"
	}
	on := slices.ContainsFunc(onPage, func(part string) bool { return strings.Contains(text, part) })
	if on && !strings.HasSuffix(text, troubleshooting) { // a monitor's has it already
		text += "\nmore: " + troubleshooting
	}
	return text
}

// Command returns the whole command line, for docs/reference.
func Command() *cobra.Command {
	return (&App{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}).command()
}

func (a *App) versionCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "version", Short: "Tell the version", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if output == "json" {
				return program.WriteJSON(a.Stdout, map[string]string{
					"version": version.Version, "commit": version.Commit, "go": runtime.Version(), "platform": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			fmt.Fprintln(a.Stdout, "outrigger "+version.String())
			return nil
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

func (a *App) demoImageCommand() *cobra.Command {
	var output, busybox string
	cmd := &cobra.Command{
		Use: "demo-image", Hidden: true, Args: cobra.NoArgs,
		Short: "Build the demo's container image from busybox-static",
		RunE: func(*cobra.Command, []string) error {
			if output == "" {
				return fmt.Errorf("--output is missing: the folder for the OCI layout")
			}
			return demoimage.Build(output, demoimage.Options{Busybox: busybox})
		},
	}
	cmd.Flags().StringVar(&output, "output", "", "folder for the OCI layout")
	cmd.Flags().StringVar(&busybox, "busybox", "", "static busybox (default /bin/busybox)")
	return cmd
}
