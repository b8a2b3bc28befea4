// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

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
