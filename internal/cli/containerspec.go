// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/accounts"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// containerSpec merges the image's configuration with the request, as a
// container runtime does.
func (r *runner) containerSpec(p *podContainer) (spec podclient.ContainerSpec, err error) {
	var who string
	if r.req.Pod != nil {
		spec, who, err = r.playSpec(p)
	} else {
		spec, who, err = r.runSpec(p)
	}
	if err != nil {
		return spec, err
	}
	user, err := p.image.User(who)
	switch {
	case err != nil:
		return spec, fmt.Errorf("image %s: %w", p.Image, err)
	case user.UID == 0 && r.req.Pod != nil && rootless(r.req.Pod, p.Container):
		return spec, errors.New("runAsNonRoot: its user is root")
	}
	spec.Name, spec.Image, spec.Cwd = p.Name, p.Image, cmp.Or(spec.Cwd, p.image.Config.WorkingDir, "/")
	spec.Env = mergeEnv(r.baseEnv(user), p.image.Config.Env, spec.Env)
	spec.User = podclient.User{UID: user.UID, GID: user.GID, AdditionalGIDs: user.Additional}
	spec.CreateTimeout, spec.OnEvent = r.req.PullTimeout, show(r.progress, "")
	return spec, nil
}

// runSpec is what flags say of a container, and as which user of its image it runs.
func (r *runner) runSpec(p *podContainer) (podclient.ContainerSpec, string, error) {
	spec := podclient.ContainerSpec{
		Args: arguments(p.image.Config, r.req.Entrypoint, r.req.Command), Cwd: r.req.Workdir, TTY: r.req.TTY,
		Env: r.req.Env, Mounts: r.req.Mounts, MemoryBytes: r.req.MemoryBytes, MilliCPU: r.req.MilliCPU,
		ReadOnly: r.req.ReadOnly, Capabilities: r.req.Capabilities,
	}
	if len(spec.Args) == 0 {
		return spec, "", fmt.Errorf("image %s has no command; give one after --", p.Image)
	}
	if r.term != nil {
		spec.Rows, spec.Columns = r.term.size()
	}
	return spec, r.req.User, nil
}

// arguments puts an entrypoint, unless it is nil, and a command in the place of the image's. With an entrypoint the
// image's command does not count.
func arguments(image v1.Config, entrypoint, command []string) []string {
	if entrypoint == nil {
		entrypoint = image.Entrypoint
		if len(command) == 0 {
			command = image.Cmd
		}
	}
	return slices.Concat(entrypoint, command)
}

func (r *runner) baseEnv(user accounts.User) []string {
	env := []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOSTNAME=" + r.req.Hostname, "HOME=" + cmp.Or(user.Home, "/"),
	}
	if r.req.TTY {
		env = append(env, "TERM=xterm")
	}
	return env
}

// allCapabilities are those of capabilities(7), in the order of their numbers.
var allCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// parseCapabilities returns the capabilities after --cap-add and --cap-drop, as docker does: ALL comes first,
// then single names in either list. nil means the default.
func parseCapabilities(add, drop []string) ([]string, error) {
	if len(add)+len(drop) == 0 {
		return nil, nil
	}
	added, err := capabilityNames("cap-add", add)
	if err != nil {
		return nil, err
	}
	dropped, err := capabilityNames("cap-drop", drop)
	if err != nil {
		return nil, err
	}
	all := podclient.DefaultCapabilities()
	if slices.Contains(added, "CAP_ALL") {
		all = nil
		for _, name := range allCapabilities {
			all = append(all, "CAP_"+name)
		}
	} else if slices.Contains(dropped, "CAP_ALL") {
		all = []string{} // nil would be the default
	}
	all = append(all, added...)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(name string) bool {
		return name == "CAP_ALL" || slices.Contains(dropped, name)
	}), nil
}

func capabilityNames(flag string, given []string) (names []string, err error) {
	for _, text := range given {
		name := strings.TrimPrefix(strings.ToUpper(text), "CAP_")
		if name != "ALL" && !slices.Contains(allCapabilities, name) {
			return nil, fmt.Errorf("--%s %q is not a capability; capabilities(7) lists them", flag, text)
		}
		names = append(names, "CAP_"+name)
	}
	return names, nil
}
