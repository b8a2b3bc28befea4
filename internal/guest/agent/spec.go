// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/guest/subpath"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"golang.org/x/sys/unix"
)

// buildSpec makes the caller's configuration one that the runtime can run in this VM.
func (a *Agent) buildSpec(c *container, sb *sandbox, req *agent.CreateContainerRequest, img *pull.Image) (*oci.Spec, error) {
	if req.GetOCI() == nil || req.GetOCI().GetProcess() == nil {
		return nil, errors.New("the request has no OCI configuration with a process")
	}
	spec, err := toSpec(req.GetOCI())
	if err != nil {
		return nil, err
	}
	spec.Root.Path = a.local(spec.Root.Path)
	if c.rootfs != "" {
		spec.Root.Path = c.rootfs
	}
	spec.Hostname = "" // the sandbox's, in a namespace that is shared
	if err := a.fixProcess(spec.Process, spec.Root.Path, req.GetStringUser(), img); err != nil {
		return nil, err
	}
	if err := a.fixMounts(spec, c, sb); err != nil {
		return nil, err
	}
	if err := a.fixNamespaces(spec, c, sb); err != nil {
		return nil, err
	}
	if err := a.fixSysctls(spec); err != nil {
		return nil, err
	}
	dropLabels(spec)
	return spec, addDevices(spec, req.GetDevices())
}

// fixProcess fills in what the request leaves to the image: the user by name,
// and everything if there are no arguments.
func (a *Agent) fixProcess(p *oci.Process, rootfs string, user *agent.StringUser, img *pull.Image) error {
	if img != nil && len(p.Args) == 0 {
		p.Args = append(slices.Clone(img.Config.Entrypoint), img.Config.Cmd...)
		p.Env = mergeEnv(img.Config.Env, p.Env)
		p.Cwd = cmp.Or(p.Cwd, img.Config.WorkingDir)
		if name := img.Config.User; name != "" && user.GetUid() == "" && p.User.UID == 0 && p.User.GID == 0 {
			uid, gid, _ := strings.Cut(name, ":")
			user = &agent.StringUser{Uid: uid, Gid: gid}
		}
	}
	if len(p.Args) == 0 {
		return errors.New("no command: neither the request nor the image has one")
	}
	p.Cwd = cmp.Or(p.Cwd, "/")
	a.limits.apply(p)
	return applyUser(&p.User, rootfs, user)
}

// mergeEnv lets the variables of over replace those of base.
func mergeEnv(base, over []string) []string {
	named := make(map[string]bool)
	for _, entry := range over {
		name, _, _ := strings.Cut(entry, "=")
		named[name] = true
	}
	var out []string
	for _, entry := range base {
		if name, _, _ := strings.Cut(entry, "="); !named[name] {
			out = append(out, entry)
		}
	}
	return append(out, over...)
}

// fixMounts points mounts to this VM's folders and adds the pod's own files where the
// caller has none.
func (a *Agent) fixMounts(spec *oci.Spec, c *container, sb *sandbox) error {
	has := make(map[string]bool)
	for i := range spec.Mounts {
		m := &spec.Mounts[i]
		m.Source = a.local(m.Source)
		has[m.Destination] = true
		if err := a.fixBind(m, c); err != nil {
			return fmt.Errorf("source of the mount at %s: %w", m.Destination, err)
		}
	}
	for _, file := range sb.files() {
		if target := "/etc/" + file; !has[target] {
			spec.Mounts = append(spec.Mounts, oci.Mount{
				Destination: target, Source: filepath.Join(sb.dir, file), Type: "bind", Options: []string{"rbind", "rprivate", "rw"},
			})
		}
	}
	return nil
}

// fixBind: Kata calls the mount of an emptyDir "local". Folders of the node from which
// nothing was copied are made.
func (a *Agent) fixBind(m *oci.Mount, c *container) error {
	bind := slices.Contains(m.Options, "rbind") || slices.Contains(m.Options, "bind")
	if m.Type == "local" {
		m.Type = "bind"
	}
	if m.Type != "bind" && !bind {
		return nil
	}
	if !bind {
		m.Options = append([]string{"rbind"}, m.Options...)
	}
	volume, within := volumeOf(m.Source)
	if shared := filepath.Join(a.cfg.Root, "shared/containers"); within == "" && PolicyEngine != nil {
		// What a policy says of a path is about what is there, and not about what the node has made it a link to.
		if rel, is := strings.CutPrefix(filepath.Clean(m.Source), shared+"/"); is {
			volume, within = shared, rel
			if err := a.copies.makeMissing(rel); err != nil {
				return err
			}
		}
	}
	if within != "" {
		m.Source = filepath.Join(a.cfg.StateDir, "sources", fmt.Sprintf("%s-%d", c.id, len(c.sources)))
		// Of its own, since the pod can put a link in the place of the part meanwhile.
		c.sources = append(c.sources, m.Source)
		return subpath.Mount(volume, within, m.Source)
	}
	_, err := os.Stat(m.Source)
	if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(m.Source, a.cfg.Root+"/") {
		err = os.MkdirAll(m.Source, 0o755)
	}
	return err
}

// fixNamespaces gives a container the sandbox's namespaces. The request names
// ipc, uts and mount; the network's path comes from the forwarder.
func (a *Agent) fixNamespaces(spec *oci.Spec, c *container, sb *sandbox) error {
	paths := map[oci.LinuxNamespaceType]string{
		oci.MountNamespace: "",
		oci.IPCNamespace:   namespace(sb.pause, "ipc"),
		oci.UTSNamespace:   namespace(sb.pause, "uts"),
		oci.PIDNamespace:   "",
	}
	if c.sharedPID {
		paths[oci.PIDNamespace] = namespace(sb.pause, "pid")
	}
	if unifiedAt(cgroupRoot) {
		paths[oci.CgroupNamespace] = ""
	}
	for _, ns := range spec.Linux.Namespaces {
		switch ns.Type {
		case oci.NetworkNamespace:
			if _, err := os.Stat(cmp.Or(ns.Path, a.cfg.PodNetNS)); err != nil {
				return fmt.Errorf("the pod's network namespace: %w", err)
			}
			paths[oci.NetworkNamespace] = cmp.Or(ns.Path, a.cfg.PodNetNS)
		case oci.UserNamespace, oci.TimeNamespace:
			paths[ns.Type] = ns.Path
		}
	}
	if _, named := paths[oci.NetworkNamespace]; !named && a.hasPodNetNS() {
		paths[oci.NetworkNamespace] = a.cfg.PodNetNS
	}
	spec.Linux.Namespaces = nil
	for kind, path := range paths {
		spec.Linux.Namespaces = append(spec.Linux.Namespaces, oci.LinuxNamespace{Type: kind, Path: path})
	}
	slices.SortFunc(spec.Linux.Namespaces, func(x, y oci.LinuxNamespace) int { return strings.Compare(string(x.Type), string(y.Type)) })
	return nil
}

func (a *Agent) hasPodNetNS() bool {
	_, err := os.Stat(a.cfg.PodNetNS)
	return err == nil
}

func hasNamespace(spec *oci.Spec, kind oci.LinuxNamespaceType) bool {
	return slices.ContainsFunc(spec.Linux.Namespaces, func(ns oci.LinuxNamespace) bool { return ns.Type == kind })
}

// dropLabels removes names of profiles that only the node has.
func dropLabels(spec *oci.Spec) {
	if _, err := os.Stat("/sys/kernel/security/apparmor/profiles"); err != nil {
		spec.Process.ApparmorProfile = ""
	}
	if _, err := os.Stat("/sys/fs/selinux/enforce"); err != nil {
		spec.Process.SelinuxLabel, spec.Linux.MountLabel = "", ""
	}
}

// addDevices adds the request's devices, which exist in the VM already, and
// lets the container use every device that it is given and for which there is no rule.
func addDevices(spec *oci.Spec, devices []*agent.Device) error {
	for _, d := range devices {
		var st unix.Stat_t
		if err := unix.Stat(d.GetVmPath(), &st); err != nil {
			return fmt.Errorf("device %s of type %q: %w", d.GetContainerPath(), d.GetType(), &os.PathError{Op: "stat", Path: d.GetVmPath(), Err: err})
		}
		kind := "c"
		if st.Mode&unix.S_IFMT == unix.S_IFBLK {
			kind = "b"
		}
		spec.Linux.Devices = append(spec.Linux.Devices, oci.LinuxDevice{
			Path: d.GetContainerPath(), Type: kind, Major: int64(unix.Major(st.Rdev)), Minor: int64(unix.Minor(st.Rdev)),
		})
	}
	if len(spec.Linux.Devices) > 0 && spec.Linux.Resources == nil {
		spec.Linux.Resources = &oci.LinuxResources{}
	}
	for _, d := range spec.Linux.Devices {
		if hasRule(spec.Linux.Resources.Devices, d) {
			continue
		}
		spec.Linux.Resources.Devices = append(spec.Linux.Resources.Devices,
			oci.LinuxDeviceCgroup{Allow: true, Type: d.Type, Major: &d.Major, Minor: &d.Minor, Access: "rwm"})
	}
	return nil
}

func hasRule(rules []oci.LinuxDeviceCgroup, d oci.LinuxDevice) bool {
	return slices.ContainsFunc(rules, func(r oci.LinuxDeviceCgroup) bool {
		return r.Type == d.Type && r.Major != nil && *r.Major == d.Major && r.Minor != nil && *r.Minor == d.Minor
	})
}

// writeJSON writes a file that may hold secrets, such as a container's
// environment.
func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}
