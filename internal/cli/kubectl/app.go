// SPDX-License-Identifier: Apache-2.0

// Package kubectl is the command line of kubectl-outrigger: what Outrigger does
// in a cluster, as its users and operators see it with a kubeconfig. It is the
// program outrigger under another name; kubectl finds it in PATH and runs it as
// `kubectl outrigger`. It changes nothing in the cluster, except for the namespace of its connectivity test.
package kubectl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/internal/version"
)

// Program is the file name by which kubectl finds its plugin.
const Program = "kubectl-outrigger"

// SystemNamespace is where Outrigger is installed unless somebody chose
// another namespace.
const SystemNamespace = "confidential-containers-system"

const (
	// exitFailure is kubectl's.
	exitFailure = 1
	// exitCheckFailed is that of errors, since 1 says that there are but warnings.
	exitCheckFailed = 2
)

// exitCode ends the program without a message: what there is to say is said.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// App is one invocation.
type App struct {
	// Stdin is where the UI's keys come from.
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Getenv returns where provider plugins are.
	Getenv func(string) string
	Now    func() time.Time

	kubeconfig, context, namespace, system string
	all                                    bool // namespaces
	as                                     rest.ImpersonationConfig
	exec                                   exec // of tests
}

// Main runs the command line of this process and returns its exit code.
func Main() int {
	return (&App{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv, Now: time.Now}).Run(os.Args[1:])
}

// Run runs one command line, without the program's name.
func (a *App) Run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // what clears up after the first signal is ended by the second
	cmd := a.command()
	cmd.SetArgs(args)
	cmd.SetOut(a.Stdout)
	cmd.SetErr(a.Stderr)
	ran, err := cmd.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	if code := exitCode(0); errors.As(err, &code) {
		return int(code)
	}
	fmt.Fprintf(redact.Console(a.Stderr), "%s: %s\n", Program, explain(err))
	if ran.Name() == checkName {
		return exitCheckFailed
	}
	return exitFailure
}

// explain adds advice to errors that users see.
func explain(err error) string {
	switch {
	case apierrors.IsForbidden(err):
		return err.Error() + "\nask whoever administers the cluster for this right, or choose another --context"
	case apierrors.IsUnauthorized(err):
		return err.Error() + "\nlog in to the cluster again: the credentials of the kubeconfig are not valid"
	}
	return err.Error()
}

// Command returns the whole command line, for the reference.
func Command() *cobra.Command { return new(App).command() }

func (a *App) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-outrigger",
		Short: "See what Outrigger does in a cluster",
		Long: `kubectl-outrigger shows pods and the VMs that they run in, finds what is wrong
and says how to mend it. kubectl runs it as "kubectl outrigger". It changes
nothing in the cluster; only connectivity test makes a namespace, and removes it.`,
		Annotations:  map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl outrigger"},
		Version:      version.String(),
		SilenceUsage: true, SilenceErrors: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.kubeconfig, "kubeconfig", "", "kubeconfig file (env KUBECONFIG; else ~/.kube/config)")
	flags.StringVar(&a.context, "context", "", "context of the kubeconfig")
	flags.StringVarP(&a.namespace, "namespace", "n", "", "namespace of the pods; default: that of the context")
	flags.StringVar(&a.system, "system-namespace", SystemNamespace, "namespace where Outrigger is installed")
	flags.BoolVarP(&a.all, "all-namespaces", "A", false, "all namespaces, which is the default of all commands that are not about one pod")
	flags.StringVar(&a.as.UserName, "as", "", "user to impersonate, such as system:serviceaccount:NAMESPACE:NAME")
	flags.StringArrayVar(&a.as.Groups, "as-group", nil, "group to impersonate; may be given several times")
	flags.StringVar(&a.as.UID, "as-uid", "", "UID to impersonate")
	root.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
	root.AddCommand(a.statusCommand(), a.versionCommand(), a.connectivityCommand(), a.describeCommand(), a.topCommand(), a.uiCommand(), a.logsCommand(), a.timelineCommand(), a.gcCommand(), a.checkCommand(), a.bundleCommand(), a.migrateCommand(), a.verifyCommand())
	return root
}

// connect returns the cluster and the namespace of the pods.
func (a *App) connect() (*cluster, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = a.kubeconfig
	overrides := &clientcmd.ConfigOverrides{CurrentContext: a.context}
	overrides.Context.Namespace = a.namespace
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	config, err := loader.ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, "", fmt.Errorf("no cluster is known: %s is missing or names none; give --kubeconfig, or set KUBECONFIG", strings.Join(rules.Precedence, ", "))
	}
	if err != nil {
		return nil, "", fmt.Errorf("find the cluster: %w", err)
	}
	if a.as.UserName == "" && (len(a.as.Groups) > 0 || a.as.UID != "") {
		return nil, "", errors.New("--as-group and --as-uid need --as: the API server wants a user's name")
	}
	if a.as.UserName != "" {
		config.Impersonate = a.as
	}
	namespace, _, err := loader.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("find the namespace: %w", err)
	}
	c, err := newCluster(config)
	return c, namespace, err
}

// onePod is for commands about one pod.
func onePod(cmd *cobra.Command, args []string) error {
	if all, err := cmd.Flags().GetBool("all-namespaces"); err == nil && all {
		return errors.New("-A: a pod of one name is in one namespace: give it with -n")
	}
	if len(args) == 1 {
		return nil
	}
	return fmt.Errorf("want one POD, and not %d: %s; kubectl get pods lists them", len(args), cmd.UseLine())
}

// printer is what a command has found.
type printer interface{ print(io.Writer) }

// shows has a command connect, and print what find returns, as text or as JSON; also with the error exitCode.
func (a *App) shows(cmd *cobra.Command, find func(ctx context.Context, c *cluster, namespace string, args []string) (printer, error)) *cobra.Command {
	var output string
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, namespace, err := a.connect()
		if err != nil {
			return err
		}
		found, err := find(cmd.Context(), c, namespace, args)
		if code := exitCode(0); err != nil && !errors.As(err, &code) {
			return err
		}
		return cmp.Or(a.print(output, found, found.print), err)
	}
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

// print writes v as JSON, or lets text write it, without what would steer the terminal: messages are others'.
func (a *App) print(output string, v any, text func(io.Writer)) error {
	if output != "json" {
		text(redact.Console(a.Stdout))
		return nil
	}
	return program.WriteJSON(a.Stdout, v)
}

// log returns a logger for unrequested output of plugins.
func (a *App) log() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
