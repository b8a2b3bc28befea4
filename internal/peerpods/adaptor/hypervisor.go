// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adaptorpb "github.com/outrigger/outrigger/internal/protocol/adaptor"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/internal/protocol/podvminfo"
	"github.com/outrigger/outrigger/provider/kit/arguments"
)

// hypervisorVersion is what upstream's Version always returns.
const hypervisorVersion = "0.0.0"

// Register serves the hypervisor protocol, PodVMInfo and Adaptor on server.
func (s *Service) Register(server *ttrpc.Server) {
	hypervisorpb.RegisterHypervisorService(server, s)
	// runtime-rs of kata 3.11 to 3.22 asks for the service by this name.
	server.RegisterService("remote.Hypervisor", &ttrpc.ServiceDesc{Methods: map[string]ttrpc.Method{
		"CreateVM": method(s.CreateVM),
		"StartVM":  method(s.StartVM),
		"StopVM":   method(s.StopVM),
		"Version":  method(s.Version),
	}})
	podvminfo.RegisterPodVMInfoService(server, s)
	adaptorpb.RegisterAdaptorService(server, s)
}

func method[Req, Resp any](serve func(context.Context, *Req) (*Resp, error)) ttrpc.Method {
	return func(ctx context.Context, unmarshal func(any) error) (any, error) {
		req := new(Req)
		if err := unmarshal(req); err != nil {
			return nil, err
		}
		return serve(ctx, req)
	}
}

// Version returns the protocol's version.
func (s *Service) Version(context.Context, *hypervisorpb.VersionRequest) (*hypervisorpb.VersionResponse, error) {
	return &hypervisorpb.VersionResponse{Version: hypervisorVersion}, nil
}

// CreateVM prepares a sandbox without any call to the cloud and returns where
// its agent's socket will be. When it fails, nothing is left: no StopVM will
// follow.
func (s *Service) CreateVM(ctx context.Context, req *hypervisorpb.CreateVMRequest) (*hypervisorpb.CreateVMResponse, error) {
	sb, err := s.create(ctx, req)
	if err != nil {
		err = fmt.Errorf("create sandbox %s: %w", shorten(req.GetId(), 80), err)
		s.opts.Log.Warn("CreateVM failed", "sandbox", shorten(req.GetId(), 80), "error", err)
		return nil, wire(err)
	}
	return &hypervisorpb.CreateVMResponse{AgentSocketPath: s.agentSocket(sb.id)}, nil
}

func (s *Service) create(ctx context.Context, req *hypervisorpb.CreateVMRequest) (*sandbox, error) {
	rec, err := s.newRecord(req)
	if err == nil {
		err = s.resolve(ctx, &rec)
	}
	if err != nil {
		s.refusedPod(req.GetId(), req.GetAnnotations(), err)
		return nil, err
	}
	rec.InitdataDigest = initdataDigest(cmp.Or(rec.Initdata, s.opts.Initdata))
	return s.begin(ctx, rec)
}

// begin makes a sandbox up to where StartVM goes on. When it fails, nothing is left.
func (s *Service) begin(ctx context.Context, rec Record) (*sandbox, error) {
	ctx, interrupt, finish, err := s.call(ctx)
	if err != nil {
		return nil, err
	}
	defer finish()
	sb := newSandbox(rec)
	sb.interrupt = interrupt
	release, err := sb.acquire(context.Background()) // nobody else knows it yet
	if err == nil {
		err = s.add(sb)
	}
	if err != nil {
		return nil, err
	}
	s.logger(sb).Info(fmt.Sprintf("create a sandbox %s for pod %s in namespace %s (netns: %s)", rec.ID, rec.PodName, rec.PodNamespace, rec.Netns))
	err = s.run(ctx, sb, steps()[:stepIndex(stepClaim)])
	release()
	if err != nil {
		s.beginStop(sb, err)
		select { // no StopVM will follow
		case <-sb.gone:
		case <-s.ctx.Done():
		}
		return nil, err
	}
	return sb, nil
}

func (s *Service) newRecord(req *hypervisorpb.CreateVMRequest) (Record, error) {
	if err := checkID(req.GetId()); err != nil {
		return Record{}, err
	}
	if path := s.agentSocket(req.GetId()); len(path) > maxSocketPath {
		return Record{}, invalid("the agent socket %s has %d characters, a unix socket at most %d; choose a shorter -pods-dir", path, len(path), maxSocketPath)
	}
	if err := arguments.CheckKey(req.GetId()); err != nil {
		return Record{}, invalid("%w", err)
	}
	pod, err := parseAnnotations(req.GetAnnotations())
	if err == nil {
		err = s.opts.allowImage(pod.Spec.Image)
	}
	if err != nil {
		return Record{}, err
	}
	return Record{
		Format:       recordFormat,
		ID:           req.GetId(),
		State:        StateCreating,
		Step:         stepInspectNetwork,
		Created:      s.opts.Now().Round(0),
		Provider:     s.opts.ProviderName,
		PodName:      pod.Name,
		PodNamespace: pod.Namespace,
		Netns:        req.GetNetworkNamespacePath(),
		KeepIdle:     pod.KeepIdle,
		Spec:         pod.Spec,
		Initdata:     pod.Initdata,
	}, nil
}

// StartVM boots the sandbox's VM and returns when the agent can be used. It
// ends early when its caller goes away, when StopVM comes and when the
// adaptor shuts down. When it fails, the sandbox is removed, with as many
// tries as it takes.
func (s *Service) StartVM(ctx context.Context, req *hypervisorpb.StartVMRequest) (*hypervisorpb.StartVMResponse, error) {
	sb := s.find(req.GetId())
	if sb == nil {
		return nil, status.Errorf(codes.NotFound, "start sandbox %s: there is no such sandbox; CreateVM comes first", shorten(req.GetId(), 80))
	}
	if err := s.start(ctx, sb); err != nil {
		err = fmt.Errorf("start sandbox %s: %w", sb.id, err)
		s.logger(sb).Warn("StartVM failed", "error", err)
		return nil, wire(err)
	}
	return &hypervisorpb.StartVMResponse{}, nil
}

func (s *Service) start(ctx context.Context, sb *sandbox) error {
	ctx, interrupt, finish, err := s.call(ctx)
	if err != nil {
		return err
	}
	defer finish()
	ctx, cancel := inTime(ctx)
	defer cancel()
	ready, err := sb.beginStart(interrupt)
	if ready || err != nil {
		return err
	}
	release, err := sb.acquire(ctx)
	if err != nil {
		return err
	}
	began := s.opts.Now()
	err = s.run(ctx, sb, steps()[stepIndex(stepClaim):])
	release()
	s.observe(sb, Change{Kind: ChangeStarted, Took: s.opts.Now().Sub(began), Err: err})
	if err != nil {
		sb.update(func(rec *Record) { rec.LastError = err.Error() })
		s.beginStop(sb, err)
		return err
	}
	s.follow(sb)
	return nil
}

// lateError means that the caller's deadline is near.
type lateError struct{ given time.Duration }

func (e lateError) Error() string {
	return fmt.Sprintf("the VM was not ready within the %s that the caller gave it", e.given.Round(100*time.Millisecond))
}

func (lateError) Is(target error) bool { return target == context.DeadlineExceeded }

// inTime ends work a little before the caller's deadline, so that the caller still
// receives the reason, with the end of the console.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	given := time.Until(deadline)
	return context.WithDeadlineCause(ctx, deadline.Add(-min(consoleTimeout, given/5)), lateError{given})
}

// beginStart reports whether the sandbox is ready already; it is an error if the
// sandbox cannot be started.
func (sb *sandbox) beginStart(interrupt context.CancelCauseFunc) (ready bool, err error) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	switch sb.rec.State {
	case StateCreated:
		sb.rec.State = StateStarting
		sb.interrupt = interrupt
		return false, nil
	case StateReady:
		return true, nil
	}
	return false, status.Errorf(codes.FailedPrecondition, "the sandbox is %s", sb.rec.State)
}

// call makes the context of work on a sandbox, which a removal and Close can
// end with a cause. Close waits until finish was called.
func (s *Service) call(ctx context.Context) (_ context.Context, interrupt context.CancelCauseFunc, finish func(), _ error) {
	if err := s.enter(); err != nil {
		return nil, nil, nil, err
	}
	ctx, interrupt = context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.calls, func() { interrupt(context.Cause(s.calls)) })
	return ctx, interrupt, func() {
		stop()
		interrupt(nil)
		s.work.Done()
	}, nil
}

// StopVM removes the sandbox. An unknown id is success. Once the removal is on
// record nothing takes it back, so StopVM waits for it only for StopGrace and
// leaves the rest to the background.
func (s *Service) StopVM(ctx context.Context, req *hypervisorpb.StopVMRequest) (*hypervisorpb.StopVMResponse, error) {
	sb := s.find(req.GetId())
	if sb == nil {
		return &hypervisorpb.StopVMResponse{}, nil
	}
	if err := s.enter(); err != nil {
		return nil, wire(err)
	}
	defer s.work.Done()
	s.beginStop(sb, errStopped)
	patience := time.NewTimer(s.opts.StopGrace)
	defer patience.Stop()
	select {
	case <-sb.gone:
	case <-patience.C:
		s.logger(sb).Info("StopVM leaves the removal to the background")
	case <-ctx.Done():
	}
	return &hypervisorpb.StopVMResponse{}, nil
}
