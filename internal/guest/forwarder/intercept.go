// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

const agentService = "grpc.AgentService"

// mayCreate are the folders under which a missing bind source is made. They
// hold nothing but what belongs to pods.
var mayCreate = []string{"/run/kata-containers/", "/run/cloud-volumes/"}

// intercept changes the requests that need the VM's knowledge. Everything else
// passes as the bytes it came in. Fields that our types lack are kept.
func (f *Forwarder) intercept(ctx context.Context, service, method string, payload []byte) ([]byte, error) {
	if service == guestService {
		return nil, errNoGuestService
	}
	switch method {
	case "CreateContainer":
		// A node could leave CreateSandbox out.
		if err := f.checkAsked(ctx); err != nil {
			return nil, err
		}
		return rewrite(payload, new(agent.CreateContainerRequest), func(request *agent.CreateContainerRequest) error {
			if err := f.checkSealedEnv(request.GetOCI().GetProcess().GetEnv()); err != nil {
				return err
			}
			if err := f.mountDisks(ctx, request); err != nil {
				return err
			}
			return f.createContainer(request)
		})
	case "CreateSandbox":
		if err := f.checkAsked(ctx); err != nil {
			return nil, err
		}
		if f.DropDNS {
			return rewrite(payload, new(agent.CreateSandboxRequest), func(request *agent.CreateSandboxRequest) error {
				request.Dns = nil
				return nil
			})
		}
	case "CopyFile":
		return payload, f.checkSealedFile(payload)
	case "DestroySandbox":
		f.log.Info("DestroySandbox")
		f.disks.Unmount()
	case "RemoveContainer":
		var request agent.RemoveContainerRequest
		if err := proto.Unmarshal(payload, &request); err != nil {
			return nil, fmt.Errorf("RemoveContainer: %w", err)
		}
		f.disks.UnmountParts(request.ContainerId)
	}
	return payload, nil
}

func rewrite[M proto.Message](payload []byte, request M, change func(M) error) ([]byte, error) {
	if err := proto.Unmarshal(payload, request); err != nil {
		return nil, fmt.Errorf("%s: %w", request.ProtoReflect().Descriptor().Name(), err)
	}
	if err := change(request); err != nil {
		return nil, err
	}
	return proto.Marshal(request)
}

// createContainer puts the container into the pod's network namespace, which
// the shim has taken out of the spec, and makes sources that are to be bound.
func (f *Forwarder) createContainer(request *agent.CreateContainerRequest) error {
	if request.OCI == nil {
		return errors.New("CreateContainer without an OCI spec")
	}
	if request.OCI.Linux == nil {
		request.OCI.Linux = &agent.Linux{}
	}
	f.joinPodNamespace(request.OCI.Linux)
	f.log.Info("CreateContainer: containerID:"+request.ContainerId, "mounts", len(request.OCI.Mounts))
	for _, m := range request.OCI.Mounts {
		if err := makeBindSource(m); err != nil {
			return err
		}
	}
	return nil
}

func (f *Forwarder) joinPodNamespace(linux *agent.Linux) {
	for _, ns := range linux.Namespaces {
		if ns.Type == "network" {
			if ns.Path == "" {
				ns.Path = f.PodNamespace
			}
			return
		}
	}
	linux.Namespaces = append(linux.Namespaces, &agent.LinuxNamespace{Type: "network", Path: f.PodNamespace})
}

func makeBindSource(m *agent.Mount) error {
	source := filepath.Clean(m.Source)
	isOurs := func(folder string) bool { return strings.HasPrefix(source, folder) }
	if m.Type != "bind" || !slices.ContainsFunc(mayCreate, isOurs) {
		return nil
	}
	if _, err := os.Lstat(source); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(source, 0o755); err != nil {
		return fmt.Errorf("source of mount %s: %w", m.Destination, err)
	}
	return nil
}

// mountDisks mounts the disks of a container's volumes, and parts of them, and takes their storages out:
// agents do not know the drivers.
func (f *Forwarder) mountDisks(ctx context.Context, request *agent.CreateContainerRequest) error {
	rest := request.Storages[:0]
	for _, st := range request.Storages {
		var err error
		switch st.Driver {
		case directvolume.GuestDriver:
			err = f.disks.Mount(ctx, st)
		case directvolume.GuestPartDriver:
			err = f.disks.MountPart(request.ContainerId, st)
		case directvolume.GuestRawDriver:
			err = f.disks.GiveDevice(ctx, st, request.OCI)
		default:
			rest = append(rest, st)
		}
		if err != nil {
			f.disks.UnmountParts(request.ContainerId)
			return fmt.Errorf("volume of container %s: %w", request.ContainerId, err)
		}
	}
	request.Storages = rest
	return nil
}
