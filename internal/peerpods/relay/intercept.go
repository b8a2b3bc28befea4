// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/directvolume"
	"github.com/outrigger/outrigger/internal/peerpods/shim/guestspec"
	"github.com/outrigger/outrigger/internal/peerpods/webhook/guestlimits"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

const (
	agentService = "grpc.AgentService"
	// gpuAnnotation is what a pod asks GPUs with; cdiAnnotation hands all of the
	// VM's to the container (Container Device Interface).
	gpuAnnotation = "io.katacontainers.config.hypervisor.default_gpus"
	cdiAnnotation = "cdi.k8s.io/peer-pods"
	cdiAllGPUs    = "nvidia.com/gpu=all"
	// guestPull is the storage driver of an image that the guest pulls.
	guestPull = "image_guest_pull"
)

// wants lists the calls that intercept changes or logs.
func wants(service, method []byte) bool {
	return string(service) == agentService && (string(method) == "CreateContainer" || string(method) == "CreateSandbox")
}

// intercept logs the beginnings of sandboxes and containers, without what may
// be secret, and adds what only the node knows.
func (s *sandbox) intercept(_ context.Context, _, method string, argument []byte) ([]byte, error) {
	switch method {
	case "CreateSandbox":
		var request agent.CreateSandboxRequest
		if err := proto.Unmarshal(argument, &request); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "CreateSandbox: %v", err)
		}
		s.log.Info(fmt.Sprintf("CreateSandbox: hostname:%s sandboxId:%s", request.Hostname, request.SandboxId))
	case "CreateContainer":
		return s.createContainer(argument)
	}
	return argument, nil
}

func (s *sandbox) createContainer(argument []byte) ([]byte, error) {
	s.decoding.Lock()
	defer s.decoding.Unlock()
	var request agent.CreateContainerRequest
	if err := proto.Unmarshal(argument, &request); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "CreateContainer: %v", err)
	}
	s.log.Info("CreateContainer: containerID:"+request.ContainerId,
		"storages", len(request.Storages), "mounts", len(request.GetOCI().GetMounts()))
	if !slices.ContainsFunc(request.Storages, func(st *agent.Storage) bool { return st.Driver == guestPull }) {
		s.log.Warn("the container has no storage that the guest pulls; its root must be in the VM image", "container", request.ContainerId)
	}
	limited, err := limit(request.GetOCI())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "CreateContainer: %v", err)
	}
	disks, err := directvolume.ReadAttached(filepath.Dir(s.request.SocketPath))
	if err != nil {
		return nil, status.Errorf(codes.Internal, "CreateContainer: the disks of the sandbox: %v", err)
	}
	placed, err := placeDisks(&request, disks)
	if err != nil {
		return nil, status.Errorf(codes.FailedPrecondition, "CreateContainer: %v", err)
	}
	changed := placed || limited
	if gpus := request.GetOCI().GetAnnotations()[gpuAnnotation]; gpus != "" && gpus != "0" {
		request.OCI.Annotations[cdiAnnotation] = cdiAllGPUs
		changed = true
	}
	if !changed {
		return argument, nil
	}
	return proto.Marshal(&request)
}

// limit gives a container the limits that the webhook took out of its pod, as our own
// shim does. Any shim passes the webhook's record on, whether it knows it or not, if the
// runtime handler lets the annotation through. It reports whether anything changed.
func limit(spec *agent.Spec) (bool, error) {
	ann := spec.GetAnnotations()
	// Both are annotations in which runtimes name a container.
	name := cmp.Or(ann["io.kubernetes.cri.container-name"], ann["io.kubernetes.container.name"])
	limits, err := guestlimits.Of(ann, name)
	if err != nil || limits == (guestlimits.Limits{}) {
		return false, err
	}
	guestspec.Limit(spec, limits)
	return true, nil
}

// placeDisks lets the guest mount the disks of a container's volumes, in place of the node's
// folders, in which nothing is. It reports whether anything changed. Both shims leave the
// source of such a mount as containerd has it; of a subPath ours names the place in the volume.
func placeDisks(request *agent.CreateContainerRequest, disks []directvolume.Attached) (changed bool, err error) {
	for _, st := range request.Storages {
		if st.Driver != directvolume.GuestRawDriver {
			continue
		}
		i := slices.IndexFunc(disks, func(d directvolume.Attached) bool { return d.Target == st.Source })
		if i < 0 {
			return false, fmt.Errorf("device %s is a volume whose disk the VM does not have", st.MountPoint)
		}
		st.Source, changed = disks[i].Serial, true
	}
	for n, m := range request.GetOCI().GetMounts() {
		if slices.ContainsFunc(disks, func(d directvolume.Attached) bool { return strings.HasPrefix(m.Source, d.SubPaths()) }) {
			return false, fmt.Errorf("mount %s is a subPath of a volume, and this shim does not say which: mount the whole volume, or use Outrigger's shim", m.Destination)
		}
		i := slices.IndexFunc(disks, func(d directvolume.Attached) bool { return d.Within(m.Source) != "" })
		if i < 0 {
			continue
		}
		d := disks[i]
		storage := &agent.Storage{Driver: directvolume.GuestDriver, Source: d.Serial, Fstype: d.FsType, Options: d.Options,
			MountPoint: filepath.Join(directvolume.GuestFolder, d.Serial)}
		if d.Key != "" {
			storage.DriverOptions = []string{directvolume.GuestKey + d.Key}
		}
		if gid, err := strconv.ParseUint(d.FSGroup, 10, 32); err == nil {
			storage.FsGroup = &agent.FSGroup{GroupId: uint32(gid), GroupChangePolicy: agent.FSGroupChangePolicy(agent.FSGroupChangePolicy_value[d.FSGroupChangePolicy])}
		}
		request.Storages = append(request.Storages, storage)
		if within := d.Within(m.Source); within != "." {
			storage = &agent.Storage{Driver: directvolume.GuestPartDriver, Source: storage.MountPoint, Options: []string{within},
				MountPoint: filepath.Join(directvolume.GuestParts, request.ContainerId, strconv.Itoa(n))}
			request.Storages = append(request.Storages, storage)
		}
		m.Source, m.Type, changed = storage.MountPoint, "bind", true
	}
	return changed, nil
}
