// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/cli/registry"
)

// restartPolicy is --restart: whether a container is started again that has ended by itself.
type restartPolicy struct {
	Always, OnFailure bool
	// Most is how often at most; 0 means any number.
	Most int
}

func parseRestart(text string) (p restartPolicy, err error) {
	name, most, limited := strings.Cut(text, ":")
	switch name {
	case "", "no":
	case "always", "unless-stopped":
		p.Always = true
	case "on-failure":
		p.OnFailure = true
		if limited {
			p.Most, err = strconv.Atoi(most)
		}
	default:
		err = errors.New("unknown")
	}
	if err != nil || limited && (!p.OnFailure || p.Most < 1) {
		return p, fmt.Errorf("--restart %q: want no, on-failure[:TIMES], always or unless-stopped", text)
	}
	return p, nil
}

func (p restartPolicy) again(code, restarts int) bool {
	return p.Always || p.OnFailure && code != 0 && (p.Most == 0 || restarts < p.Most)
}

// watchAll watches the container, and those that take its place as --restart says, and returns the last exit code.
func (r *runner) watchAll(ctx context.Context) (int, error) {
	for restarts, pause := 0, firstPause; ; restarts, pause = restarts+1, min(2*pause, lastPause) {
		began := time.Now()
		code, err := r.watch()
		if err != nil || r.asked || !r.req.Restart.again(code, restarts) {
			return code, err
		}
		if time.Since(began) > 10*time.Second { // as docker has it
			pause = firstPause
		}
		ctx, stop := r.interruptible(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			err = r.runAgain(ctx)
		}
		stop()
		if ctx.Err() != nil { // nobody waits for a container any more
			return code, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// runAgain starts a new container in the place of one that has ended, in the same VM.
func (r *runner) runAgain(ctx context.Context) (err error) {
	if err := r.container.Remove(ctx); err != nil {
		return err
	}
	if r.image == nil { // this monitor has taken the pod over
		if r.image, err = registry.Open(ctx, r.req.Image, registry.Options{Platform: r.req.Platform}); err != nil {
			return err
		}
	}
	spec, err := r.containerSpec()
	if err != nil {
		return err
	}
	return r.startContainer(ctx, spec)
}

// stopSignal is what a monitor sends its container when it is to stop.
func (r *runner) stopSignal(sig syscall.Signal) syscall.Signal {
	if own, err := parseSignal(r.record.StopSignal); err == nil && r.req.Detach && sig == syscall.SIGTERM {
		return own
	}
	return sig
}
