// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reasons that several flags share, and what there is instead.
const (
	ownKernel  = "a container here has a VM's kernel to itself and shares nothing with this host; containers that share are one pod: outrigger play"
	noDevices  = "no device of this host is passed into a VM; what a VM has comes with its instance type: --annotation io.katacontainers.config.hypervisor.machine_type=TYPE"
	agentTakes = "the pod's agent takes no other limits than --cpus and --memory"
	noNames    = "pods know no names of each other; give addresses with --env"
	inTurn     = "addresses are given out in turn; outrigger inspect shows them, and -p passes ports of this host on"
	ownLogs    = "logs are kept by outrigger, see --log-limit, and outrigger logs"
	probes     = "a run has no health check; a livenessProbe in a manifest does that: outrigger play"
)

// notHere says why flags of `docker run` do not exist. A name with - at its end stands for all that begin so.
var notHere = map[string]string{
	"gpus":   "no device of this host is passed into a VM; on a cloud a VM has GPUs by its instance type: --annotation io.katacontainers.config.hypervisor.machine_type=TYPE, with a pod VM image that has their driver",
	"device": noDevices, "device-": noDevices,
	"privileged": "a container here has a VM's kernel to itself; --cap-add gives it single capabilities, or ALL",
	"pid":        ownKernel, "ipc": ownKernel, "uts": ownKernel, "userns": ownKernel, "cgroupns": ownKernel, "cgroup-parent": ownKernel,
	"isolation": ownKernel, "runtime": ownKernel, "sysctl": "the kernel is the VM's; its settings are those of the pod VM image",
	"security-opt": "the VM is the border; within it there are --read-only, --cap-drop and --user",
	"link":         noNames, "network-alias": noNames, "link-local-ip": inTurn, "ip": inTurn, "ip6": inTurn, "mac-address": inTurn,
	"add-host": "a pod's /etc/hosts is made here; give addresses with --env", "domainname": "a pod has a host name alone: --hostname",
	"dns-": "a pod is given servers alone: --dns; write whole names", "expose": "ports need no declaration; -p passes one of this host on",
	"init":         "the first process of a container is its own; have the image reap children",
	"volumes-from": "each pod has a VM of its own; copy files with outrigger cp", "volume-driver": "volumes are folders on the VM's disk: --volume NAME:TARGET",
	"storage-opt": "the VM's disk is a setting of its provider: --adaptor-arg",
	"log-driver":  ownLogs, "log-opt": ownLogs, "health-": probes, "no-healthcheck": probes,
	"ulimit": agentTakes + "; have the command call ulimit", "pids-limit": agentTakes, "memory-": agentTakes, "kernel-memory": agentTakes, "cpu-": agentTakes,
	"cpuset-": agentTakes, "blkio-": agentTakes, "io-": agentTakes, "oom-": agentTakes,
	"group-add": "groups are those of the image's /etc/group", "cidfile": "run --detach prints the pod's name, which is --name",
	"sig-proxy": "signals go to the container always", "attach": "output comes here unless --detach is given; -i passes standard input",
	"detach-keys":           "run it with --detach; outrigger attach and exec come and go",
	"disable-content-trust": "no signature is checked; name the image by its digest", "use-api-socket": "outrigger has no daemon whose socket a pod could use",
}

// reason says why a flag of `docker run` does not exist.
func reason(name string) string {
	if why := notHere[name]; why != "" {
		return why
	}
	for prefix, why := range notHere {
		if strings.HasSuffix(prefix, "-") && strings.HasPrefix(name, prefix) {
			return why
		}
	}
	return ""
}

// otherName are flags of docker that have another name here.
var otherName = map[string]string{
	"net": "--network", "cpu-quota": "--cpus", "cpu-period": "--cpus", "cpu-count": "--cpus", "memory-reservation": "--memory", "label-file": "--label",
	"filters": "--filter", "last": "--filter", "latest": "--filter", "since": "--tail", "until": "--tail",
}

// otherCommand says what is there instead of commands of docker.
var otherCommand = map[string]string{
	"image ls": "images", "image list": "images", "image pull": "pull", "image rm": "rmi", "image prune": "rmi $(outrigger images -q)", "image inspect": "images -o json",
	"create": "run --detach", "build": "docker build, docker save, and run docker-archive:FILE", "load": "run docker-archive:FILE",
	"login": "docker login, whose credentials are used here",
	"info":  "doctor", "container": "ps", "rename": "run --name", "compose": "play", "pause": "kill --signal STOP", "unpause": "kill --signal CONT",
	"commit": "cp", "export": "cp", "volume": "run --mount type=volume", "network": "run --network", "update": "run --cpus --memory", "diff": "exec", "push": "docker push",
}

// wrongFlag explains a flag that is not there: why, or which one is meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fmt.Errorf("--%s %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
	}
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return err
	}
	name := missing.GetSpecifiedName()
	why, ours := reason(name), otherName[name]
	switch {
	case ours != "":
		return fmt.Errorf("%w; did you mean %s?", err, ours)
	case why != "" && cmd.Name() == "run":
		return fmt.Errorf("--%s: %s", name, why)
	}
	// cobra knows which commands are similar; flags are not different.
	flags := &cobra.Command{SuggestionsMinimumDistance: 2}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		flags.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return didYouMean(err, "--", flags.SuggestionsFor(name), cmd)
}

// noSuchCommand explains a command that is not there.
func noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	err, name := fmt.Errorf("unknown command %q", args[0]), args[0]
	if cmd.HasParent() {
		name = cmd.Name() + " " + name
	}
	if ours := otherCommand[name]; ours != "" {
		return fmt.Errorf("%w; instead there is: %s", err, ours)
	}
	cmd.SuggestionsMinimumDistance = 2
	return didYouMean(err, "", cmd.SuggestionsFor(args[0]), cmd)
}

func didYouMean(err error, prefix string, similar []string, cmd *cobra.Command) error {
	if len(similar) == 0 {
		return fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())
	}
	return fmt.Errorf("%w; did you mean %s%s?", err, prefix, strings.Join(similar, " or "+prefix))
}
