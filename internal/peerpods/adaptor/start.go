// SPDX-License-Identifier: Apache-2.0

package adaptor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/kit/arguments"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// createAttempts bounds how often one StartVM asks for its instance when
	// the cloud is unavailable; the key makes asking again safe.
	createAttempts = 4
	// consoleTail (bytes) and consoleLines bound what an error quotes of a console.
	consoleTail  = 4096
	consoleLines = 20
	// consoleTimeout bounds the wait for the console.
	consoleTimeout = 2 * time.Second
	// framesSocket is where, in the sandbox's folder, its packet socket is offered.
	framesSocket = "frames.sock"
)

func (s *Service) prepareInstance(sb *sandbox) error {
	if err := s.ensureIdentity(sb); err != nil {
		return err
	}
	sb.update(func(rec *Record) { rec.Asked = s.opts.Now() })
	return nil
}

func (s *Service) createInstance(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	began := s.opts.Now()
	data, err := s.userData(ctx, &rec, sb.identity, s.pullSecrets(ctx, &rec)...)
	if err != nil {
		return err
	}
	s.note(sb, "make-user-data", began)
	if s.fromPool(ctx, sb, data) {
		return nil
	}
	for attempt := 1; ; attempt++ {
		began := s.opts.Now()
		instance, err := s.requestInstance(ctx, &rec, data)
		s.note(sb, "provider-call", began)
		s.noteInstance(sb, instance)
		switch {
		case err == nil && instance == nil:
			return fmt.Errorf("%w: the provider returned neither an instance nor an error", provider.ErrUnknown)
		case err == nil:
			err = checkUsable(instance, rec.Spec.Zone)
			if err == nil {
				s.logger(sb).Info(fmt.Sprintf("created an instance %s for sandbox %s", instance.Name, sb.id), "instance", instance.ID)
			}
			return err
		case instance == nil && attempt == 1 && refused(err) && ctx.Err() == nil:
			sb.update(func(rec *Record) { rec.NoInstance = true })
			return err
		case attempt == createAttempts || !errors.Is(err, provider.ErrUnavailable) || ctx.Err() != nil:
			return err
		}
		s.logger(sb).Warn("the cloud is unavailable, asking again with the same key", "attempt", attempt, "error", err)
		if poll.Sleep(ctx, s.backoff(attempt)) != nil {
			return err
		}
	}
}

// requestInstance calls CreateInstance. It redacts errors: clouds quote what they
// refuse, and the user-data holds the VM's private key and its credentials.
func (s *Service) requestInstance(ctx context.Context, rec *Record, data cloudinit.CloudConfig) (*provider.Instance, error) {
	instance, err := s.opts.Provider.CreateInstance(ctx, rec.PodName, rec.ID, data, rec.Spec)
	if err == nil {
		return instance, nil
	}
	return instance, redact.UserData(err, data)
}

// noteInstance records the instance that the provider returned, also with an
// error.
func (s *Service) noteInstance(sb *sandbox, instance *provider.Instance) {
	if instance == nil || instance.ID == "" || provider.CheckID(instance.ID) != nil { // deleteInstance finds it by its tags
		return
	}
	sb.update(func(rec *Record) {
		rec.InstanceID = instance.ID
		rec.Addresses = instance.IPs
		rec.InstanceType, rec.Zone = instance.Type, cmp.Or(instance.Zone, instance.Region)
		rec.NoInstance = false
	})
	s.announce()
}

// checkUsable validates the instance that the provider returned. Providers are
// not trusted.
func checkUsable(instance *provider.Instance, zone string) error {
	if err := instance.Check(); err != nil {
		return fmt.Errorf("%w: the provider made an instance that cannot be used: %w", provider.ErrUnknown, err)
	}
	if len(instance.IPs) == 0 {
		return fmt.Errorf("%w: instance %s has no address", provider.ErrUnknown, instance.ID)
	}
	if zone != "" && instance.Zone != zone {
		return fmt.Errorf("%w: instance %s was to be in zone %s and is in %q", provider.ErrUnknown, instance.ID, zone, instance.Zone)
	}
	return nil
}

// refused reports whether the cloud has certainly created nothing.
func refused(err error) bool {
	switch provider.Class(err) {
	case provider.ErrInvalidArgument, provider.ErrNotFound, provider.ErrCapacity, provider.ErrQuota,
		provider.ErrUnauthenticated, provider.ErrPermissionDenied, provider.ErrUnimplemented:
		return true
	}
	return false
}

func (s *Service) deleteInstance(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	ids := []string{rec.InstanceID}
	if rec.InstanceID == "" {
		var err error
		if ids, err = s.findInstances(ctx, &rec); err != nil {
			return fmt.Errorf("look for an instance with key %s: %w", rec.ID, err)
		}
	}
	var problems []error
	for _, id := range ids {
		if err := s.deleteOne(ctx, id); err != nil {
			problems = append(problems, err)
			continue
		}
		s.logger(sb).Info("deleted the instance", "instance", id)
	}
	return errors.Join(problems...)
}

func (s *Service) deleteOne(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, s.opts.DeleteTimeout)
	defer cancel()
	// DeleteInstance returns nil for an instance that does not exist. So ErrNotFound
	// is about something else, such as the account, and the instance may still run.
	if err := s.opts.Provider.DeleteInstance(ctx, id); err != nil {
		return fmt.Errorf("delete instance %s: %w", id, redact.Error(err, nil))
	}
	return nil
}

// findInstances returns the ids of instances whose creation may have succeeded
// although its reply was lost.
func (s *Service) findInstances(ctx context.Context, rec *Record) ([]string, error) {
	if rec.NoInstance {
		return nil, nil
	}
	lister, ok := provider.As[provider.Lister](s.opts.Provider)
	if !ok {
		return s.findByAskingAgain(ctx, rec)
	}
	match := map[string]string{provider.TagKey: provider.TagValue(rec.ID)}
	for key := range s.owner {
		if value := rec.Spec.Tags[key]; value != "" {
			match[key] = value
		}
	}
	instances, err := lister.ListInstances(ctx, match)
	if err != nil {
		return nil, redact.Error(err, nil)
	}
	var ids []string
	for _, instance := range instances {
		if instance.Key == rec.ID || instance.Tags[provider.TagKey] == rec.ID {
			ids = append(ids, instance.ID)
		}
	}
	if age := s.opts.Now().Sub(rec.Asked); len(ids) == 0 && age >= 0 && age < s.opts.ListSettle {
		return nil, fmt.Errorf("%w: it was asked for %s ago and may not be listed yet", provider.ErrUnavailable, age.Round(time.Millisecond))
	}
	return ids, nil
}

// findByAskingAgain finds the instance at a cloud that cannot list: creating
// with the same key returns the same instance, or a new one that is deleted at
// once.
func (s *Service) findByAskingAgain(ctx context.Context, rec *Record) ([]string, error) {
	if err := arguments.CheckKey(rec.ID); err != nil { // refused here, perhaps not by the cloud then
		return nil, invalid("%w", err)
	}
	data, err := s.userData(ctx, rec, nil)
	if err != nil {
		return nil, err
	}
	instance, err := s.requestInstance(ctx, rec, data)
	switch {
	case instance != nil && instance.ID != "":
		return []string{instance.ID}, nil
	case errors.Is(err, provider.ErrUnauthenticated), errors.Is(err, provider.ErrPermissionDenied):
		return nil, err // an earlier request, before that, may have created something
	case err != nil && refused(err):
		return nil, nil
	}
	return nil, err
}

func (s *Service) setupTunnel(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	if rec.Network == nil {
		return nil
	}
	vm, err := rec.tunnelAddress()
	if err != nil {
		return err
	}
	if err := s.opts.Network.Setup(ctx, rec.Netns, rec.Network, vm); err != nil {
		return fmt.Errorf("tunnel from network namespace %s to %s: %w", rec.Netns, vm, err)
	}
	return nil
}

func (s *Service) teardownTunnel(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	if rec.Network == nil {
		return nil
	}
	vm, err := rec.tunnelAddress()
	if err != nil {
		vm = netip.Addr{}
	}
	if err := s.opts.Network.Teardown(ctx, rec.Netns, rec.Network, vm); err != nil {
		return fmt.Errorf("remove the tunnel of network namespace %s: %w", rec.Netns, err)
	}
	return nil
}

func (s *Service) connect(ctx context.Context, sb *sandbox) error {
	rec := sb.snapshot()
	if rec.Pooled {
		return s.awaitPooled(ctx, &rec)
	}
	req, err := s.serveRequest(&rec)
	if err != nil {
		return err
	}
	stopOffer, err := s.offerFrames(&rec, req)
	if err != nil {
		return err
	}
	defer stopOffer()
	log := s.logger(sb)
	log.Info("Trying to establish agent proxy connection to " + req.Address)
	running, stop := s.whileRunning(ctx, rec.InstanceID)
	defer stop()
	if err := s.opts.Relay.Serve(running, req); err != nil {
		if ctx.Err() == nil && context.Cause(running) != nil {
			return context.Cause(running)
		}
		return fmt.Errorf("the VM's agent at %s: %w", req.Address, redact.Error(err, nil)) // the text may come from the VM
	}
	log.Info("agent proxy is ready")
	return nil
}

// offerFrames has the packet socket of an encrypted tunnel ready for the relay, for as
// long as that is asked to serve the sandbox.
func (s *Service) offerFrames(rec *Record, req *relaypb.ServeRequest) (stop func(), err error) {
	if rec.Network == nil || rec.Network.TunnelType != podnetwork.TunnelTLS {
		return func() {}, nil
	}
	frames, err := s.opts.Network.OpenFrames(rec.Netns)
	if err != nil {
		return nil, fmt.Errorf("tunnel from network namespace %s: %w", rec.Netns, err)
	}
	req.FramesPath = filepath.Join(s.journal.folder(rec.ID), framesSocket)
	if stop, err = frametunnel.Offer(req.FramesPath, frames); err != nil {
		frames.Close()
		return nil, fmt.Errorf("offer the tunnel to the agent relay: %w", err)
	}
	return stop, nil
}

func (s *Service) disconnect(ctx context.Context, sb *sandbox) error {
	if err := s.opts.Relay.Stop(ctx, sb.id); err != nil {
		return fmt.Errorf("stop the agent relay: %w", err)
	}
	return nil
}

// markReady records that the sandbox is ready, or waits; from then on it survives restarts.
func (s *Service) markReady(_ context.Context, sb *sandbox) error {
	to := StateReady
	if sb.snapshot().Pooled {
		to = StateWaiting
	}
	if err := sb.advance(to); err != nil {
		return err
	}
	sb.update(func(rec *Record) { rec.Initdata, rec.LastError = "", "" })
	sb.identity = nil
	if err := s.persist(sb); err != nil {
		return fmt.Errorf("record that the sandbox is ready: %w", err)
	}
	return nil
}

// explain returns the error of a failed step with its cause and, where it helps,
// the end of the VM's console.
func (s *Service) explain(ctx context.Context, sb *sandbox, step string, err error) error {
	switch cause := context.Cause(ctx); {
	case cause == nil:
	case errors.Is(cause, context.Canceled):
		err = fmt.Errorf("%w: %w", errGone, err)
	case !errors.Is(err, cause):
		err = fmt.Errorf("%w: %w", cause, err)
	}
	failure := &StepError{Step: step, Err: err}
	if step == stepConnect && !errors.Is(err, errStopped) {
		failure.Console = s.lastConsoleLines(sb.snapshot().InstanceID)
	}
	return failure
}

func (s *Service) lastConsoleLines(instance string) string {
	reader, ok := provider.As[provider.ConsoleReader](s.opts.Provider)
	if !ok {
		return ""
	}
	ctx, cancel := context.WithTimeout(s.ctx, consoleTimeout)
	defer cancel()
	data, err := reader.Console(ctx, instance, consoleTail)
	if err != nil {
		return "(the console cannot be read: " + redact.Foreign(err.Error()) + ")"
	}
	return consoleText(data)
}

// consoleText returns the last lines of a console without secrets and control
// characters.
func consoleText(data []byte) string {
	text := strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) && r != unicode.ReplacementChar {
			return r
		}
		return -1
	}, string(data))
	lines := strings.Split(strings.TrimSpace(redact.Text(text)), "\n")
	if len(lines) > consoleLines {
		lines = lines[len(lines)-consoleLines:]
	}
	text = strings.Join(lines, "\n")
	if text == "" {
		return "(nothing: the VM wrote nothing to its console)"
	}
	return text
}

// backoff returns the pause after the given number of failures. It doubles from
// MinBackoff up to MaxBackoff.
func (s *Service) backoff(failures int) time.Duration {
	pause := s.opts.MinBackoff
	for range failures - 1 {
		if pause *= 2; pause >= s.opts.MaxBackoff {
			return s.opts.MaxBackoff
		}
	}
	return pause
}
