// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reasons that several flags share.
const (
	ownKernel  = "a container here has a VM's kernel to itself and shares nothing with this host"
	noDevices  = "no device of this host is passed into a VM"
	agentTakes = "the pod's agent takes no other limits than --cpus and --memory"
)

// notHere says why flags of `docker run` do not exist.
var notHere = map[string]string{
	"gpus": noDevices, "device": noDevices, "device-cgroup-rule": noDevices,
	"privileged": ownKernel + "; --cap-add gives it single capabilities, or ALL",
	"pid":        ownKernel, "ipc": ownKernel, "uts": ownKernel, "userns": ownKernel, "cgroupns": ownKernel, "cgroup-parent": ownKernel,
	"security-opt": ownKernel, "isolation": ownKernel, "runtime": ownKernel, "sysctl": ownKernel,
	"link": "pods know no names of each other; give addresses with --env", "add-host": "a pod's /etc/hosts is made here; give addresses with --env",
	"ip": "addresses are given out in turn", "ip6": "addresses are given out in turn", "mac-address": "addresses are given out in turn",
	"init":          "the first process of a container is its own; have the image reap children",
	"volumes-from":  "each pod has a VM of its own; copy files with outrigger cp",
	"volume-driver": "volumes are folders on the VM's disk",
	"log-driver":    "logs are kept by outrigger, see --log-limit", "log-opt": "logs are kept by outrigger, see --log-limit",
	"health-cmd": "nothing restarts a pod that is not healthy", "ulimit": agentTakes, "pids-limit": agentTakes, "memory-swap": agentTakes, "cpu-shares": agentTakes,
	"cpuset-cpus": agentTakes, "blkio-weight": agentTakes, "oom-kill-disable": agentTakes, "oom-score-adj": agentTakes,
	"group-add": "groups are those of the image's /etc/group", "cidfile": "run prints the pod's name", "sig-proxy": "signals go to the container always",
}

// otherName are flags of docker that have another name here.
var otherName = map[string]string{
	"net": "--network", "cpu-quota": "--cpus", "cpu-period": "--cpus", "cpu-count": "--cpus", "memory-reservation": "--memory",
	"filters": "--filter", "last": "--filter", "latest": "--filter", "since": "--tail", "until": "--tail",
}

// otherCommand says what is there instead of commands of docker.
var otherCommand = map[string]string{
	"create": "run --detach", "build": "docker build, docker save, and run docker-archive:FILE", "load": "run docker-archive:FILE",
	"login": "docker login, whose credentials are used here",
	"info":  "doctor", "container": "ps", "rename": "run --name", "compose": "play", "pause": "kill --signal STOP", "unpause": "kill --signal CONT",
	"commit": "cp", "export": "cp", "volume": "run --mount type=volume", "network": "run --network", "update": "run --cpus --memory", "diff": "exec", "push": "docker push",
}

// wrongFlag explains a flag that is not there: why, or which one is meant.
func wrongFlag(cmd *cobra.Command, err error) error {
	var missing *pflag.NotExistError
	if !errors.As(err, &missing) {
		return err
	}
	name := missing.GetSpecifiedName()
	reason, ours := notHere[name], otherName[name]
	switch {
	case reason != "" && cmd.Name() == "run":
		return fmt.Errorf("--%s: %s", name, reason)
	case ours != "":
		return fmt.Errorf("%w; did you mean %s?", err, ours)
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
	err := fmt.Errorf("unknown command %q", args[0])
	if ours := otherCommand[args[0]]; ours != "" {
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
