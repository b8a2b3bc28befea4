// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outrigger/outrigger/internal/localnet/statefile"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// Service is a program that runs as long as the machine does.
type Service struct {
	// Command is the program and its arguments.
	Command []string `json:"command"`
	// Needs are files that must be there before it is started.
	Needs []string `json:"needs,omitempty"`
	// Once is for a program that ends: it is started again only when it fails.
	Once bool `json:"once,omitempty"`
}

// Services starts the services in their folder, also those added later, and
// restarts those that end. It returns when ctx and all services have ended.
func (a *Agent) Services(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	known := map[string]bool{}
	_ = a.Wait.Until(ctx, func() (bool, error) {
		files, _ := filepath.Glob(filepath.Join(a.Root, ConfigDir, "services", "*.json"))
		for _, file := range files {
			if known[file] {
				continue
			}
			known[file] = true
			log := a.Log.With("service", filepath.Base(file))
			s, err := readService(file)
			if err != nil {
				log.Error("cannot be started", "error", err)
				continue
			}
			running.Go(func() { a.keep(ctx, s, log) })
		}
		return false, nil
	})
}

func readService(file string) (Service, error) {
	var s Service
	err := statefile.Read(file, &s)
	if err == nil && len(s.Command) == 0 {
		err = errors.New("there is no command")
	}
	return s, err
}

// Pauses before a service is started again: one that ends at once is not
// started all the time.
const (
	firstPause  = 250 * time.Millisecond
	longPause   = 10 * time.Second
	serviceStop = 5 * time.Second
)

func (a *Agent) keep(ctx context.Context, s Service, log *slog.Logger) {
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longPause) {
		if a.Wait.Until(ctx, func() (bool, error) { return a.has(s.Needs), nil }) != nil {
			return
		}
		log.Info("starts")
		began := time.Now()
		err := a.serve(ctx, s)
		if ctx.Err() != nil || s.Once && err == nil {
			return
		}
		if time.Since(began) > longPause {
			pause = firstPause
		}
		log.Warn("has ended and is started again", "error", err, "in", pause)
		if poll.Sleep(ctx, pause) != nil {
			return
		}
	}
}

func (a *Agent) has(files []string) bool {
	for _, file := range files {
		if _, err := os.Stat(filepath.Join(a.Root, file)); err != nil {
			return false
		}
	}
	return true
}

func (a *Agent) serve(ctx context.Context, s Service) error {
	cmd := exec.CommandContext(ctx, s.Command[0], s.Command[1:]...)
	cmd.Dir = "/"
	var seed Seed
	_ = statefile.Read(inDir(a.Root, SeedFile), &seed) // there may be none yet
	cmd.Env = append(os.Environ(), ProviderIDVariable+"="+seed.ProviderID, NodeIPsVariable+"="+strings.Join(seed.NodeIPs, ","))
	cmd.Stdout, cmd.Stderr = a.Output, a.Output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = serviceStop
	return cmd.Run()
}
