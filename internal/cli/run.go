// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/cli/registry"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// leastMemory is the smallest memory limit, in bytes. The OCI runtime starts the container
// within it: crun always succeeds with 256 KiB, sometimes with 128 and never with 64.
const leastMemory = 1 << 20

// defaultProvider boots VMs on this machine.
const defaultProvider = "qemu"

// runFlags are the flags of run: those that the request has as they are, and others.
type runFlags struct {
	runRequest
	quiet, rm, noTemplate     bool
	envFiles, capAdd, capDrop []string
}

func (a *App) runCommand() *cobra.Command {
	f := &runFlags{}
	cmd := &cobra.Command{
		Use:   "run [flags] IMAGE [-- COMMAND [ARG...]]",
		Short: "Run a container in a VM of its own",
		Long: `Run a container in a VM of its own, pass its output on, and return its exit code.
When it ends, or this program is ended, pod and VM are removed. Of a detached pod record
and log stay until outrigger rm, unless --rm is given.

IMAGE is a reference to a registry, from which the guest pulls, unless outrigger
pull has brought it to this host; oci:DIR[:TAG], an OCI layout on this host; or
docker-archive:FILE[:TAG], what docker save writes. Images of this host are served
to the guest over the VM's own network; the guest checks their digests as well.

Exit codes: the container's; 125 if outrigger failed; 126 if the command cannot
be run; 127 if it was not found; 128+n after signal n.`,
		Example: `  outrigger run docker.io/library/busybox -- uname -a
  outrigger run -it --memory 512MiB docker.io/library/alpine
  echo data | outrigger run -i oci:./image -- cat
  outrigger run --detach --name web --mount type=bind,source=./site,target=/www,readonly IMAGE`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("run needs an IMAGE, e.g. outrigger run docker.io/library/busybox -- uname -a")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.rm = f.rm || !f.Detach && !cmd.Flags().Changed("rm")
			req, err := f.request(a, args[0], args[1:])
			if err != nil {
				return err
			}
			f.sayCopies(a)
			return a.run(cmd.Context(), req, f.quiet)
		},
	}
	f.register(a, cmd)
	return cmd
}

func (f *runFlags) register(a *App, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows IMAGE is the container's
	flags.BoolVarP(&f.Interactive, "interactive", "i", false, "pass stdin to the container")
	flags.BoolVarP(&f.TTY, "tty", "t", false, "give the container a terminal")
	flags.StringVar(&f.Name, "name", "", "name of the pod (default: made of the image's)")
	f.registerPod(a, cmd)
	flags.StringArrayVarP(&f.Env, "env", "e", nil, "environment variable KEY=VALUE, or KEY to pass on this program's")
	flags.StringArrayVar(&f.envFiles, "env-file", nil, "file with one KEY=VALUE a line")
	flags.Var(list(&f.Mounts, parseMount), "mount", "type=bind,source=PATH,target=PATH[,readonly] (copied into the VM), type=tmpfs,target=PATH[,size=SIZE], or type=volume,source=NAME,target=PATH")
	flags.VarP(list(&f.Mounts, parseVolume), "volume", "v", "PATH:TARGET[:ro], a copy of a file or folder of this host; NAME:TARGET or TARGET, an empty folder on the VM's disk")
	flags.Var(list(&f.Mounts, parseTmpfs), "tmpfs", "TARGET[:size=SIZE,ro]: memory")
	flags.VarP(list(&f.Publish, checked(parsePort)), "publish", "p", "[ADDRESS:][HOSTPORT:]PORT[/tcp|/udp]: pass a port of this host, or a range, on to the pod")
	flags.BoolVarP(&f.PublishAll, "publish-all", "P", false, "pass a free port of this host on to each port that the image exposes")
	flags.Func("entrypoint", "program instead of the image's entrypoint and command; empty for none", func(program string) error {
		if f.Entrypoint = []string{}; program != "" {
			f.Entrypoint = []string{program}
		}
		return nil
	})
	f.Labels, f.Annotations = map[string]string{}, map[string]string{}
	flags.VarP(each(f.label), "label", "l", "label KEY[=VALUE] of the pod, for ps and inspect")
	flags.BoolVar(&f.ReadOnly, "read-only", false, "the container cannot write to its image's files")
	flags.StringSliceVar(&f.capAdd, "cap-add", nil, "further capability, such as NET_ADMIN, or ALL")
	flags.StringSliceVar(&f.capDrop, "cap-drop", nil, "capability that the container does not have, or ALL")
	flags.Var(parse(&f.Restart, "no", parseRestart), "restart", "no, on-failure[:TIMES], always or unless-stopped: whether a detached container that ends by itself is started again, in the same VM with the image's files; not after a reboot of this host")
	flags.Var(each(f.annotation), "annotation", "annotation KEY=VALUE of the pod, such as io.katacontainers.config.hypervisor.machine_type=NAME")
	flags.StringVarP(&f.User, "user", "u", "", "USER[:GROUP] by name or number (default: the image's)")
	flags.StringVarP(&f.Workdir, "workdir", "w", "", "working directory (default: the image's)")
	flags.StringVar(&f.Hostname, "hostname", "", "host name of the pod (default: its name)")
	flags.Var(parse(&f.StopTimeout, "10s", parseLimit), "stop-timeout", "how long the container may take to end after SIGTERM, such as 10 (seconds) or 1m")
	flags.Var(parse(&f.StopSignal, "", checked(parseSignal)), "stop-signal", "SIGNAL that outrigger stop sends first (default: the image's, else SIGTERM)")
}

// registerPod adds the flags that a run and a manifest have alike.
func (f *runFlags) registerPod(a *App, cmd *cobra.Command) {
	flags := cmd.Flags()
	f.registerVM(a, flags)
	flags.BoolVarP(&f.Detach, "detach", "d", false, "run in the background, and print the pod's name when its containers run and are ready")
	flags.BoolVarP(&f.quiet, "quiet", "q", false, "print no progress")
	flags.BoolVar(&f.Timeline, "timeline", false, "show on standard error where the time of the start went, once the container runs; see outrigger timeline")
	flags.BoolVar(&f.rm, "rm", false, "remove the record of the pod, and its log, when it ends, which is the default without --detach; else they are kept until outrigger rm")
	flags.StringArrayVar(&f.DNS, "dns", nil, "address of a DNS server (default: this host's)")
	flags.Var(parse(&f.NoNetwork, "default", parseNetwork), "network", "default: a private network with NAT; none: no network")
	flags.Var(parse(&f.Pull, "missing", parsePull), "pull", "missing: an image that outrigger pull has brought to this host is taken from there, another is pulled by the guest; always: pull it to this host first, if its registry has a newer one; never: only from this host")
	flags.StringVar(&f.Platform, "platform", "", "platform of the image, linux/ARCH (default: this machine's)")
	flags.Var(parse(&f.BootTimeout, podclient.StartTimeout.String(), parseLimit), "boot-timeout", "longest wait for the VM")
	flags.Var(parse(&f.PullTimeout, podclient.PullTimeout.String(), parseLimit), "pull-timeout", "longest wait for the image")
	flags.Var(parse(&f.LogLimit, "16MiB", parseSize), "log-limit", "most disk space for the log of a detached pod; older output goes first")
	flags.Var(parse(&f.ShmBytes, "64MiB", parseSize), "shm-size", "size of /dev/shm")
	cmd.RegisterFlagCompletionFunc("network", cobra.FixedCompletions([]string{"default", "none"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("pull", cobra.FixedCompletions([]string{"missing", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
}

// registerVM adds the flags that say what a VM is, which a run and the pool for it have alike.
func (f *runFlags) registerVM(a *App, flags *pflag.FlagSet) {
	flags.Var(parse(&f.MilliCPU, "", parseCPUs), "cpus", "CPU limit of the container, such as 2 or 0.5; the VM gets as many, rounded up")
	flags.VarP(parse(&f.MemoryBytes, "", parseMemory), "memory", "m", "memory limit of the container, such as 512MiB; the VM gets 256 MiB more")
	flags.StringVar(&a.provider, "provider", defaultProvider, "cloud provider of an adaptor that is started here")
	fromEnvironment(flags, "provider", "CLOUD_PROVIDER")
	flags.BoolVar(&f.noTemplate, "no-template", false, "boot the VM instead of restoring it from one that was saved when it had booted (an adaptor that is started here; provider qemu)")
	flags.StringArrayVar(&a.adaptor, "adaptor-arg", nil, "further argument for a cloud-api-adaptor that is started here")
}

// adaptorArgs returns those of an adaptor that is started here.
func (f *runFlags) adaptorArgs(a *App) []string {
	if f.noTemplate {
		return append(slices.Clone(a.adaptor), "-qemu-templates=never")
	}
	return a.adaptor
}

// request checks all flags and reports everything that is wrong at once.
func (f *runFlags) request(a *App, image string, command []string) (req *runRequest, err error) {
	if f.Root, err = filepath.Abs(a.root); err != nil {
		return nil, err
	}
	if f.Images, err = a.imageCache(); err != nil {
		return nil, err
	}
	if f.Image, err = registry.Absolute(image); err != nil { // a monitor has another working directory
		return nil, err
	}
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	a.adaptor = f.adaptorArgs(a)
	f.ID, f.Command, f.Socket, f.Provider, f.AdaptorArgs = podclient.NewID()[:idLength], command, a.socket, a.provider, a.adaptor
	f.Keep = !f.rm
	f.Name = cmp.Or(f.Name, defaultName(image, f.ID))
	f.Hostname = cmp.Or(f.Hostname, f.Name)
	deeper := func(a, b podclient.Mount) int {
		return strings.Count(a.Destination, "/") - strings.Count(b.Destination, "/")
	}
	slices.SortStableFunc(f.Mounts, deeper) // as docker does: none hides what another brings to a place in it
	var caps, dns, env error
	f.Capabilities, caps = parseCapabilities(f.capAdd, f.capDrop)
	f.DNS, dns = parseDNS(f.DNS)
	f.Env, env = collectEnv(f.envFiles, f.Env)
	return &f.runRequest, errors.Join(f.checkModes(), f.checkAdaptor(a), f.checkSize(a), caps, dns, env)
}

// checkModes looks at flags that do not go together, and at names.
func (f *runFlags) checkModes() error {
	errs := []error{checkName("name", f.Name), checkName("hostname", f.Hostname)}
	if f.Workdir != "" && !filepath.IsAbs(f.Workdir) {
		errs = append(errs, fmt.Errorf("--workdir %q: want an absolute path", f.Workdir))
	}
	if f.Restart != (restartPolicy{}) && !f.Detach {
		errs = append(errs, errors.New("--restart goes with --detach: it is a process in the background that starts containers again"))
	}
	if f.Detach && (f.Interactive || f.TTY) {
		errs = append(errs, errors.New("--detach goes without -i and -t: nobody would be there to type"))
	}
	if f.NoNetwork && (f.PublishAll || len(f.Publish) > 0) {
		errs = append(errs, errors.New("--publish: the pod has no network (--network none)"))
	}
	return errors.Join(errs...)
}

func parseNetwork(text string) (none bool, err error) {
	if text != "default" && text != "none" {
		err = errors.New("want default or none: a pod has a VM's kernel and shares no network with this host or another pod")
	}
	return text == "none", err
}

func parsePull(text string) (registry.Policy, error) {
	p := registry.Policy(text)
	if p != registry.Missing && p != registry.Always && p != registry.Never {
		return "", errors.New("want missing, always or never")
	}
	return p, nil
}

func parseMemory(text string) (int64, error) {
	n, err := parseSize(text)
	if err == nil && n < leastMemory {
		err = fmt.Errorf("want at least %dMiB: with less its command may never run", leastMemory>>20)
	}
	return n, err
}

func (f *runFlags) label(text string) error {
	key, value, _ := strings.Cut(text, "=")
	if key == "" {
		return errors.New("want KEY or KEY=VALUE")
	}
	f.Labels[key] = value
	return nil
}

func (f *runFlags) annotation(text string) error {
	key, value, ok := strings.Cut(text, "=")
	if !ok || key == "" || strings.ContainsAny(key, " \t\n\x00") {
		return errors.New("want KEY=VALUE")
	}
	f.Annotations[key] = value
	return nil
}

// checkSize refuses a VM that is larger than this machine, if it boots here.
func (q *runRequest) checkSize(a *App) error {
	if a.socket != "" || a.provider != defaultProvider {
		return nil
	}
	var host unix.Sysinfo_t
	if err := unix.Sysinfo(&host); err != nil {
		return err
	}
	vcpus, memory := q.vmSize()
	total := int(uint64(host.Totalram) * uint64(host.Unit) >> 20)
	switch {
	case vcpus > runtime.NumCPU():
		return fmt.Errorf("a VM with %d CPUs: this host has %d; give less with --cpus, or in the manifest", vcpus, runtime.NumCPU())
	case memory > total:
		return fmt.Errorf("a VM with %d MiB of memory, %d of them for its kernel and the image: this host has %d; give less with --memory, or in the manifest", memory, guestMemory, total)
	}
	return nil
}

// checkAdaptor refuses settings of the adaptor that would have no effect.
func (f *runFlags) checkAdaptor(a *App) error {
	switch {
	case f.noTemplate && a.provider != defaultProvider:
		return fmt.Errorf("--no-template: only VMs of provider %s are restored from a template; the provider is %s", defaultProvider, a.provider)
	case a.socket != "" && len(a.adaptor) > 0:
		return fmt.Errorf("--no-template and --adaptor-arg: the adaptor at %s runs already, with settings of its own", a.socket)
	}
	return nil
}

// sayCopies says that the VM gets a copy of each folder; docker shares it.
func (f *runFlags) sayCopies(a *App) {
	for _, m := range f.Mounts {
		if m.Type == podclient.MountBind && !f.quiet {
			fmt.Fprintf(a.Stderr, "outrigger: %s: the VM gets a copy of %s; changes on one side do not show on the other (outrigger cp brings files back)\n", m.Destination, m.Source)
		}
	}
}

func wrapFlag(flag string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("--%s: %w", flag, err)
}

// collectEnv returns the variables of --env-file and then those of --env, which win.
func collectEnv(files, vars []string) ([]string, error) {
	var errs []error
	var all []string
	for _, file := range files {
		list, err := readEnvFile(file)
		errs = append(errs, wrapFlag("env-file", err))
		all = append(all, list...)
	}
	for _, text := range vars {
		kv, ok, err := parseEnv(text, os.LookupEnv)
		errs = append(errs, wrapFlag("env", err))
		if ok {
			all = append(all, kv)
		}
	}
	return all, errors.Join(errs...)
}

// run runs a request in the foreground, or leaves it to a monitor.
func (a *App) run(ctx context.Context, req *runRequest, quiet bool) error {
	n, err := a.node()
	if err != nil {
		return err
	}
	if req.Detach {
		return a.startMonitor(ctx, req, quiet)
	}
	r := &runner{app: a, node: n, req: req, progress: a.newProgress(quiet)}
	r.started = func(error) {
		if req.Timeline {
			r.progress.done()
			a.showTimeline(ctx, req.ID)
		}
	}
	defer r.progress.done()
	if req.TTY {
		if r.term, err = a.openTerminal(req.Interactive); err != nil {
			return err
		}
	}
	r.streams = a.streams(req.Interactive, req.TTY)
	signals, stop := catchSignals()
	defer stop()
	r.signals = signals
	code, err := r.run(ctx)
	if err != nil {
		r.progress.done()
		return err
	}
	return exit(code)
}

// streams returns this program's streams. Without -i the container reads end of file
// from stdin at once, as with docker. A terminal never ends.
func (a *App) streams(interactive, tty bool) podclient.IO {
	streams := podclient.IO{Stdout: a.Stdout, Stderr: a.Stderr}
	switch {
	case interactive:
		streams.Stdin = a.Stdin
	case !tty:
		streams.Stdin = strings.NewReader("")
	}
	return streams
}
