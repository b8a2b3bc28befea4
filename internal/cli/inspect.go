// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"time"

	"github.com/docker/go-connections/nat"
	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/manifest"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/program"
)

// inspected is a pod with the names that docker has for it.
type inspected struct {
	ID      string `json:"Id"`
	Name    string
	Created time.Time
	Path    string
	Args    []string
	Image   string
	State   struct {
		Status                string
		Running               bool
		ExitCode              int
		Error                 string
		StartedAt, FinishedAt time.Time
	}
	Config struct {
		Image, Hostname, User, WorkingDir, StopSignal string
		Tty                                           bool
		Env, Cmd, Entrypoint                          []string
		Labels                                        map[string]string
	}
	HostConfig struct {
		Memory, NanoCpus int64
		ReadonlyRootfs   bool
		AutoRemove       bool
		Capabilities     []string
	}
	Mounts          []podclient.Mount
	NetworkSettings struct {
		IPAddress, GlobalIPv6Address string
		Ports                        nat.PortMap
	}
	Provider, AgentSocket string
}

func inspect(p *record.Pod) (i inspected, err error) {
	var req runRequest
	err = json.Unmarshal(p.Request, &req)
	i.ID, i.Name, i.Created, i.Image, i.Provider, i.AgentSocket = p.ID, p.Name, p.Created, p.Image, p.Provider, p.AgentSocket
	first := p.First()
	if len(first.Command) > 0 {
		i.Path, i.Args = first.Command[0], first.Command[1:]
	}
	i.State.Status, i.State.Running = string(p.Status), p.Status == record.Running && p.Owner.Alive()
	if p.Status == record.Running && !i.State.Running {
		i.State.Status = orphaned // as ps says
	}
	i.State.ExitCode, i.State.Error, i.State.StartedAt, i.State.FinishedAt = p.ExitCode, p.Error, p.Started, p.Finished
	c := &i.Config
	c.Image, c.Hostname, c.User, c.WorkingDir, c.StopSignal = p.Image, req.Hostname, req.User, first.Cwd, first.StopSignal
	c.Tty, c.Env, c.Cmd, c.Entrypoint, c.Labels = p.TTY, first.Env, req.Command, req.Entrypoint, p.Labels
	h := &i.HostConfig
	h.Memory, h.NanoCpus, h.ReadonlyRootfs, h.AutoRemove = req.MemoryBytes, req.MilliCPU*1e6, req.ReadOnly, !p.Keep
	if h.Capabilities = first.Capabilities; h.Capabilities == nil {
		h.Capabilities = podclient.DefaultCapabilities()
	}
	i.Mounts = req.Mounts
	if req.Pod != nil {
		if err := i.fromManifest(req.Pod); err != nil {
			return i, err
		}
	}
	if len(p.IPs) > 0 {
		i.NetworkSettings.IPAddress, i.NetworkSettings.GlobalIPv6Address = p.IPs[0], p.IPs[len(p.IPs)-1]
	}
	i.NetworkSettings.Ports = nat.PortMap{}
	for _, m := range p.Ports {
		i.NetworkSettings.Ports[m.Port] = append(i.NetworkSettings.Ports[m.Port], m.Binding)
	}
	return i, err
}

// fromManifest fills in what the manifest says of the first container. Of volumes of ConfigMaps and Secrets no content is shown.
func (i *inspected) fromManifest(pod *manifest.Pod) (err error) {
	first := pod.Spec.Containers[0]
	i.Config.User, err = playUser(pod, first)
	i.Config.Entrypoint, i.Config.Cmd = first.Command, first.Args
	limits := first.Resources.Limits
	i.HostConfig.Memory, i.HostConfig.NanoCpus = limits.Memory().Value(), limits.Cpu().MilliValue()*1e6
	i.HostConfig.ReadonlyRootfs = first.SecurityContext != nil && isTrue(first.SecurityContext.ReadOnlyRootFilesystem)
	for _, m := range first.VolumeMounts {
		i.Mounts = append(i.Mounts, podclient.Mount{Type: podclient.MountVolume, Source: m.Name, SubPath: m.SubPath, Destination: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return err
}

func (a *App) inspectCommand() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "inspect POD...", Short: "Show all that is known of pods, as JSON with docker's names",
		Long: "Show all that is known of pods, as JSON with docker's names. It contains the environment, and so its secrets.",
		Args: cobra.MinimumNArgs(1), ValidArgsFunction: a.podNames,
		RunE: func(_ *cobra.Command, names []string) error {
			pods := []inspected{}
			var errs []error
			for _, name := range names {
				_, p, err := a.find(name)
				if err == nil {
					var i inspected
					i, err = inspect(p)
					pods = append(pods, i)
				}
				errs = append(errs, err)
			}
			if format != "" {
				errs = append(errs, printTemplate(a.Stdout, format, asJSON(pods)))
			} else {
				errs = append(errs, program.WriteJSON(a.Stdout, pods))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().StringVarP(&format, "format", "f", "", "json, or a template of Go such as {{.State.ExitCode}}")
	return cmd
}

// asJSON returns the pods as templates see them: with the names of the JSON.
func asJSON(pods []inspected) (all []map[string]any) {
	data, err := json.Marshal(pods)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber() // sizes are not to be printed as 5.36e+08
	if err := dec.Decode(&all); err != nil {
		panic(err)
	}
	return all
}
