// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/containerd/containerd/api/events"
	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/peerpods/shim/portforward"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// sandbox is the pod's VM.
type sandbox struct {
	config *Config
	client *podclient.Client
	pod    *podclient.Pod
	// annotations are those of the sandbox container, which has all of the
	// pod's that containerd passes on.
	annotations map[string]string
	// ports are nil where kubectl port-forward is not possible.
	ports *portforward.Forwarder

	once    sync.Once
	stopErr error
}

// bringUp makes the VM. What it takes to remove it is on disk before that.
func (s *Service) bringUp(ctx context.Context, b *bundle, options *anypb.Any) (*sandbox, error) {
	path, err := configPath(options)
	if err != nil {
		return nil, invalid(err)
	}
	config, err := LoadConfig(path, s.opts.Getenv)
	if err != nil {
		return nil, invalid(err)
	}
	if len(config.Ignored) > 0 {
		s.log.Info("keys of the configuration that mean nothing to this shim", "keys", config.Ignored)
	}
	spec, err := config.podSpec(b)
	if err != nil {
		return nil, invalid(err)
	}
	spec.OnOOM = func(id string) { s.opts.Events.Publish(&events.TaskOOM{ContainerID: id}) }
	if err := (record{Sandbox: b.id, Socket: config.Hypervisor.Remote.Socket}).write(b.path); err != nil {
		return nil, err
	}
	client := &podclient.Client{Socket: config.Hypervisor.Remote.Socket, Logger: s.log}
	pod, err := client.Create(ctx, spec)
	if failed, ok := errors.AsType[*podclient.StartError](err); ok && len(failed.Console) > 0 {
		s.log.Error("end of the console of the VM that did not come up", "console", string(failed.Console))
	}
	if err != nil {
		return nil, err
	}
	return &sandbox{
		config: config, client: client, pod: pod, annotations: b.spec.Annotations, ports: s.forwardPorts(b.netns()),
	}, nil
}

// forwardPorts lets kubectl port-forward reach the pod. Without a network
// namespace of its own a pod has no ports of its own.
func (s *Service) forwardPorts(netns string) *portforward.Forwarder {
	if netns == "" {
		return nil
	}
	f, err := portforward.Open(netns)
	if err != nil {
		s.log.Warn("kubectl port-forward will not reach the pod", "error", err)
		return nil
	}
	return f
}

// stop removes the VM, once; it retries while the hypervisor service is
// unreachable, since a VM that nobody stops costs money.
func (v *sandbox) stop(ctx context.Context) error {
	v.once.Do(func() {
		v.ports.Close()
		v.stopErr = v.pod.Stop(ctx)
		deadline := time.Now().Add(seconds(v.config.Outrigger.StopTimeout))
		for unreachable(v.stopErr) && time.Now().Before(deadline) && ctx.Err() == nil {
			poll.Sleep(ctx, 500*time.Millisecond)
			v.stopErr = v.client.StopVM(ctx, v.pod.ID())
		}
	})
	if v.stopErr != nil {
		return fmt.Errorf("the VM of sandbox %s may be left behind: %w", v.pod.ID(), v.stopErr)
	}
	return nil
}

// unreachable reports whether the service could not be reached, as opposed to
// having refused.
func unreachable(err error) bool {
	if err == nil {
		return false
	}
	s, ok := status.FromError(err)
	return !ok || errors.Is(err, ttrpc.ErrClosed) || s.Code() == codes.Unavailable
}

// watch ends all containers when the VM is lost.
func (s *Service) watch(vm *sandbox) {
	<-vm.pod.Dead()
	s.mu.Lock()
	expected := s.vm != vm
	s.mu.Unlock()
	if !expected {
		s.log.Error("the pod's VM is lost; its containers end with status 255", "sandbox", vm.pod.ID(), "error", vm.pod.Err())
	}
	for _, c := range s.containers() {
		for _, p := range c.processes() {
			p.abandon()
		}
	}
}

// endVM follows the end of the container that owns the VM.
func (s *Service) endVM(vm *sandbox) {
	s.mu.Lock()
	s.vm = nil
	s.mu.Unlock()
	if err := vm.stop(context.Background()); err != nil {
		s.log.Error("StopVM failed", "sandbox", vm.pod.ID(), "error", err)
	}
}
