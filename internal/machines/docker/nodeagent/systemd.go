// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Program is where a manager copies this program into a machine whose image starts systemd,
// as kind's node images do, and HandOver its first argument there: the image's own command
// follows.
const (
	Program  = "/usr/local/bin/node-agent"
	HandOver = "exec"
)

// agentUnit does the bootstrap. kubelet and containerd are units of the image.
const agentUnit = `[Unit]
Description=Bootstrap of the machine
After=containerd.service

[Service]
ExecStart=` + Program + ` run
Restart=always
StandardOutput=journal+console
StandardError=journal+console

[Install]
WantedBy=multi-user.target
`

// Files of an image with systemd, as of kind's.
const (
	kubeletDefaults  = "/etc/default/kubelet"
	kubeletArguments = "KUBELET_EXTRA_ARGS="
	containerdConfig = "/etc/containerd/config.toml"
)

// handOver prepares the machine and becomes the image's own first process. It returns the
// exit code if that cannot be started.
func handOver(command []string, log *slog.Logger) int {
	errs, _ := makeWritable()
	a := &Agent{Root: "/"}
	settings, err := a.settings()
	errs = append(append(errs, err), keepPrivate(settings.Private)...)
	errs = append(errs, a.suitSystemd())
	if err := errors.Join(errs...); err != nil {
		log.Warn("the machine is not quite prepared", "error", err)
	}
	program, err := exec.LookPath(command[0])
	if err == nil {
		err = unix.Exec(program, command, os.Environ())
	}
	log.Error("start", "program", command[0], "error", err)
	return 1
}

// suitSystemd makes the agent a unit, gives kubelet what only this machine's seed says, and
// keeps containerd from what needs the capability SYS_RESOURCE. It may be repeated.
func (a *Agent) suitSystemd() error {
	unit := filepath.Join(a.Root, unitDir, "node-agent.service")
	wants := filepath.Join(a.Root, unitDir, "multi-user.target.wants")
	err := os.MkdirAll(wants, 0o755)
	if err == nil {
		err = wholefile.Replace(unit, []byte(agentUnit), 0o644)
	}
	if err == nil {
		err = os.Symlink("../node-agent.service", filepath.Join(wants, "node-agent.service"))
	}
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	var seed Seed
	if reading := statefile.Read(inDir(a.Root, SeedFile), &seed); reading != nil {
		err = errors.Join(err, fmt.Errorf("the seed: %w", reading))
	}
	return errors.Join(err,
		edit(filepath.Join(a.Root, kubeletDefaults), seed.kubeletArguments),
		edit(filepath.Join(a.Root, containerdConfig), func(text string) string {
			return strings.ReplaceAll(text, "restrict_oom_score_adj = false", "restrict_oom_score_adj = true")
		}))
}

// kubeletArguments adds arguments to the variable in a file of systemd's, unless they are there.
// Those of a template come later and count.
func (s Seed) kubeletArguments(text string) string {
	more := "--provider-id=" + s.ProviderID
	if len(s.NodeIPs) > 0 {
		more += " --node-ip=" + strings.Join(s.NodeIPs, ",")
	}
	if s.ProviderID == "" || strings.Contains(text, more) {
		return text
	}
	var out strings.Builder
	old := ""
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, kubeletArguments); ok {
			old = strings.Trim(strings.TrimSpace(value), `"`) + " "
		} else {
			out.WriteString(strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return out.String() + kubeletArguments + `"` + old + more + "\"\n"
}

func edit(name string, change func(string) string) error {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fresh := change(string(text)); fresh != string(text) {
		return wholefile.Replace(name, []byte(fresh), 0o644)
	}
	return nil
}
