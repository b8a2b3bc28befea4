// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/program"
)

func (a *App) doctorCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Look whether this machine can run pods in VMs", Args: cobra.NoArgs,
		Long: `Look whether this machine can run pods in VMs, and say how to mend what cannot
work. Nothing is changed. Exit codes: 0 all is well, 1 warnings, 2 errors.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := a.node()
			if err != nil {
				return err
			}
			report := doctor.Run(cmd.Context(), a.checks(n))
			if output == "json" {
				err = program.WriteJSON(a.Stdout, report)
			} else {
				report.Print(a.Stdout)
			}
			if err != nil {
				return err
			}
			return exit(report.ExitCode())
		},
	}
	commandline.Form(cmd, &output, "output", "form of the output", "text", "json")
	return cmd
}

// The qemu provider's network, which doctor compares with the machine's routes.
const vmBridge = "orvm0"

func (a *App) checks(n *node.Node) []doctor.Check {
	machine := doctor.Machine{FS: "/", QEMU: cmp.Or(os.Getenv("QEMU_BINARY"), "qemu-system-x86_64"), Images: imageDirs(), Root: n.Root,
		Instances: cmp.Or(os.Getenv("QEMU_STATE_DIR"), "/var/lib/outrigger/qemu")}
	subnets := append(node.PodSubnets(), vmSubnets()...)
	return append(machine.Checks(),
		doctor.VXLAN(),
		doctor.Subnets([]string{node.PodBridge, cmp.Or(os.Getenv("QEMU_BRIDGE"), vmBridge)}, subnets),
		doctor.Check{Name: "dns", Run: checkDNS},
		doctor.Check{Name: "programs", Run: checkPrograms},
		doctor.Check{Name: "adaptor", Run: func(ctx context.Context) doctor.Result { return a.checkAdaptor(ctx, n) }},
		doctor.Check{Name: "relay", Run: func(context.Context) doctor.Result { return checkRelay(n) }},
		doctor.Check{Name: "leftovers", Run: func(context.Context) doctor.Result { return checkLeftovers(n) }},
	)
}

// imageDirs returns the folders in which the qemu provider looks for images.
func imageDirs() []string {
	var dirs []string
	if program, err := node.FindAdaptor(); err == nil {
		dirs = append(dirs, filepath.Join(filepath.Dir(program), "podvm"))
	}
	return append(dirs, "/usr/share/outrigger/podvm")
}

func vmSubnets() []netip.Prefix {
	var subnets []netip.Prefix
	for variable, usual := range map[string]string{"QEMU_SUBNET": "192.168.127.0/24", "QEMU_SUBNET6": "fd6f:7574:7269::/64"} {
		if p, err := netip.ParsePrefix(cmp.Or(os.Getenv(variable), usual)); err == nil {
			subnets = append(subnets, p)
		}
	}
	return subnets
}

func checkDNS(context.Context) doctor.Result {
	lines, hint := node.ResolvConf()
	if hint != "" {
		return doctor.Warn("outrigger run --dns ADDRESS", "%s", hint)
	}
	return doctor.Good("%s", strings.Join(lines, "; "))
}

func checkPrograms(context.Context) doctor.Result {
	adaptor, err := node.FindAdaptor()
	if err != nil {
		return doctor.Fail("install Outrigger again, or in a checkout: make build", "%v", err)
	}
	relay := filepath.Join(filepath.Dir(adaptor), "agent-relay")
	if _, err := os.Stat(relay); err != nil {
		return doctor.Warn("install Outrigger again, or in a checkout: make build; or see that agent-relay is in PATH", "agent-relay is not beside cloud-api-adaptor")
	}
	return doctor.Good("%s and agent-relay", adaptor)
}

func (a *App) checkAdaptor(ctx context.Context, n *node.Node) doctor.Result {
	socket := cmp.Or(a.socket, n.Socket())
	if node.Served(socket) {
		info, err := podclient.New(socket).Info(ctx)
		if err != nil {
			return doctor.Warn("", "%s is served by something that is not our cloud-api-adaptor: %v", socket, err)
		}
		return doctor.Good("%s serves %s (provider %s, pid %d)", info.Version, socket, info.Provider, info.Pid)
	}
	if a.socket != "" {
		return doctor.Fail("start cloud-api-adaptor, or leave out --socket", "nobody serves %s", socket)
	}
	pods, err := n.Pods().List()
	if err == nil && needAdaptor(pods) {
		return doctor.Warn("outrigger ps, which starts it again", "it has died while pods run")
	}
	return doctor.Good("not running; it is started with the first pod")
}

func checkRelay(n *node.Node) doctor.Result {
	adaptor, relay := n.Daemons()
	switch {
	case relay.Alive():
		return doctor.Good("agent-relay runs (pid %d)", relay.PID)
	case adaptor.Alive():
		return doctor.Good("agent-relay is started with the first VM")
	}
	return doctor.Good("not running")
}

// checkLeftovers finds pods whose owner was killed.
func checkLeftovers(n *node.Node) doctor.Result {
	pods, err := n.Pods().List()
	if err != nil {
		return doctor.Warn("", "%v", err)
	}
	var dead []string
	for _, p := range pods {
		if p.Live() && !p.Owner.Alive() {
			dead = append(dead, p.Name)
		}
	}
	if len(dead) > 0 {
		return doctor.Warn("outrigger rm "+strings.Join(dead, " "), "pods of processes that died: %s", strings.Join(dead, ", "))
	}
	return doctor.Good("none; %d pods on record", len(pods))
}
