// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/outrigger/outrigger/internal/accounts"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
)

// containerSpec merges the image's configuration with the request, as a
// container runtime does.
func (r *runner) containerSpec() (podclient.ContainerSpec, error) {
	cfg := r.image.Config
	user, err := r.image.User(r.req.User)
	if err != nil {
		return podclient.ContainerSpec{}, fmt.Errorf("image %s: %w", r.req.Image, err)
	}
	args, command := slices.Clone(cfg.Entrypoint), cfg.Cmd
	if r.req.Entrypoint != nil {
		args, command = slices.Clone(r.req.Entrypoint), nil
	}
	if len(r.req.Command) > 0 {
		command = r.req.Command
	}
	args = append(args, command...)
	if len(args) == 0 {
		return podclient.ContainerSpec{}, fmt.Errorf("image %s has no command; give one after --", r.req.Image)
	}
	spec := podclient.ContainerSpec{
		Name: r.req.Name, Args: args, Cwd: cmp.Or(r.req.Workdir, cfg.WorkingDir, "/"), TTY: r.req.TTY,
		Env:    mergeEnv(r.baseEnv(user), cfg.Env, r.req.Env),
		User:   podclient.User{UID: user.UID, GID: user.GID, AdditionalGIDs: user.Additional},
		Mounts: r.req.Mounts, MemoryBytes: r.req.MemoryBytes, MilliCPU: r.req.MilliCPU,
		ReadOnly: r.req.ReadOnly, Capabilities: r.req.Capabilities,
		CreateTimeout: r.req.PullTimeout, OnEvent: show(r.progress, ""), Image: r.req.Image,
	}
	if r.term != nil {
		spec.Rows, spec.Columns = r.term.size()
	}
	r.record.Command, r.record.Env, r.record.Cwd = args, spec.Env, spec.Cwd
	r.record.Capabilities = r.req.Capabilities
	r.record.UID, r.record.GID, r.record.GIDs = user.UID, user.GID, user.Additional
	return spec, nil
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
