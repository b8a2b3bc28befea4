// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/outrigger/outrigger/internal/cli/manifest"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// probe restarts a container that its startupProbe or livenessProbe finds unwell, by ending it.
func (r *runner) probe(p *podContainer, c *podclient.Container) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { c.Ended(ctx); cancel() }()
	err := r.until(ctx, p, p.StartupProbe, true, nil)
	if err == nil {
		err = r.until(ctx, p, p.LivenessProbe, false, nil)
	}
	if err == nil || ctx.Err() != nil {
		return
	}
	fmt.Fprintf(p.streams.Stderr, "outrigger: container %s is unwell and is ended: %s\n", p.Name, redact.Line(commandline.WithoutProtocol(err.Error())))
	c.Signal(ctx, stopSignal(p.now().kept))
	poll.Sleep(ctx, r.req.StopTimeout)
	if ctx.Err() == nil {
		c.Signal(ctx, syscall.SIGKILL)
	}
}

// awaitReady returns when all containers with a readinessProbe are ready or have done their work, whether they were
// started again or not. The error is of one that has failed for good.
func (r *runner) awaitReady(ctx context.Context) error {
	for _, p := range r.containers {
		if p.ReadinessProbe == nil {
			continue
		}
		trying, cancel := context.WithCancel(ctx)
		go func() {
			select {
			case <-p.over:
				cancel()
			case <-trying.Done():
			}
		}()
		say := func(err error) {
			text := "waiting until container " + p.Name + " is ready"
			if err != nil {
				text += ": its readinessProbe failed: " + redact.Line(commandline.WithoutProtocol(err.Error()))
			}
			if r.req.Detach { // else what it writes is shown
				r.progress.update(text, text)
			}
		}
		say(nil)
		patient := *p.ReadinessProbe
		patient.FailureThreshold = math.MaxInt32
		err := r.until(trying, p, &patient, true, say)
		cancel()
		if err != nil && ctx.Err() == nil && p.code != 0 {
			return exitError{p.code, fmt.Errorf("container %s ended with %d before it was ready", p.Name, p.code)}
		}
	}
	return ctx.Err()
}

// until probes until the first success, or else for ever, and returns the last error when too many have followed
// each other. Each goes to failed, which may be nil. Defaults are Kubernetes'.
func (r *runner) until(ctx context.Context, p *podContainer, probe *corev1.Probe, success bool, failed func(error)) error {
	if probe == nil {
		return nil
	}
	poll.Sleep(ctx, time.Duration(probe.InitialDelaySeconds)*time.Second)
	for failures, successes := int32(0), int32(0); ctx.Err() == nil; {
		limited, cancel := context.WithTimeout(ctx, time.Duration(cmp.Or(probe.TimeoutSeconds, 1))*time.Second)
		err := r.ask(limited, p, probe)
		cancel()
		if failures++; err == nil {
			failures = 0
			successes++
		} else {
			successes = 0
			if failed != nil && ctx.Err() == nil {
				failed(err)
			}
		}
		switch {
		case success && successes >= max(probe.SuccessThreshold, 1):
			return nil
		case failures >= cmp.Or(probe.FailureThreshold, 3):
			return err
		}
		poll.Sleep(ctx, time.Duration(cmp.Or(probe.PeriodSeconds, 10))*time.Second)
	}
	return ctx.Err()
}

func (r *runner) ask(ctx context.Context, p *podContainer, probe *corev1.Probe) error {
	switch {
	case probe.Exec != nil:
		return askExec(ctx, p, probe.Exec.Command)
	case len(r.record.IPs) == 0:
		return errors.New("the pod has no network")
	case probe.TCPSocket != nil:
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.address(p, probe.TCPSocket.Port))
		if err == nil {
			conn.Close()
		}
		return err
	case probe.HTTPGet != nil:
		return r.askHTTP(ctx, p, probe.HTTPGet)
	}
	panic("the manifest was not checked")
}

func askExec(ctx context.Context, p *podContainer, command []string) error {
	process, err := p.now().Exec(ctx, execIn(p.now().kept, command))
	if err != nil {
		return err
	}
	code, err := process.Wait(ctx)
	if err != nil {
		process.Signal(context.WithoutCancel(ctx), syscall.SIGKILL)
		return err
	}
	if code != 0 {
		return fmt.Errorf("%s ended with %d", command[0], code)
	}
	return nil
}

// address is where a port of the container, by number or name, is reached.
func (r *runner) address(p *podContainer, port intstr.IntOrString) string {
	return net.JoinHostPort(r.record.IPs[0], strconv.Itoa(manifest.Port(p.Container, port)))
}

// withinHost follows redirects as the kubelet does: one to another host is the reply, and with that a success.
func withinHost(req *http.Request, via []*http.Request) error {
	switch {
	case req.URL.Hostname() != via[0].URL.Hostname():
		return http.ErrUseLastResponse
	case len(via) >= 10:
		return errors.New("it redirects more than 10 times")
	}
	return nil
}

// askHTTP asks as the kubelet does: no certificate is verified, and 200 to 399 is success.
func (r *runner) askHTTP(ctx context.Context, p *podContainer, get *corev1.HTTPGetAction) error {
	scheme := strings.ToLower(cmp.Or(string(get.Scheme), "HTTP"))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+r.address(p, get.Port)+"/"+strings.TrimPrefix(get.Path, "/"), nil)
	if err != nil {
		return err
	}
	for _, h := range get.HTTPHeaders {
		if req.Header.Add(h.Name, h.Value); strings.EqualFold(h.Name, "Host") {
			req.Host = h.Value
		}
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	resp, err := (&http.Client{Transport: transport, CheckRedirect: withinHost}).Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return fmt.Errorf("HTTP status %d", resp.StatusCode)
	}
	return nil
}
