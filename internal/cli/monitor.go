// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/cli/containerlog"
	"github.com/outrigger/outrigger/internal/cli/node"
	"github.com/outrigger/outrigger/internal/cli/record"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/procid"
)

// A monitor is the process that owns a detached pod. It reads the request from stdin,
// which keeps environment variables out of its arguments. Until the container runs it
// reports progress to its parent, as JSON on descriptor 3.

// monitorEvent is one message of a monitor.
type monitorEvent struct {
	Say    string `json:"say,omitempty"`
	Key    string `json:"key,omitempty"`
	Update string `json:"update,omitempty"`
	// Started may come with an error: the containers run, and one will not be ready.
	Started bool   `json:"started,omitempty"`
	Error   string `json:"error,omitempty"`
	Code    int    `json:"code,omitempty"`
}

func (a *App) monitorCommand() *cobra.Command {
	var resume string
	cmd := &cobra.Command{
		Use: "monitor", Hidden: true, Args: cobra.NoArgs,
		Short: "Own a detached pod (started by outrigger itself)",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if resume != "" {
				return a.resume(cmd.Context(), resume)
			}
			return a.monitor(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&resume, "resume", "", "id of a running pod to take over")
	return cmd
}

// spawnMonitor starts a monitor in a session of its own.
func spawnMonitor(stdin io.Reader, events *os.File, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, append([]string{"monitor"}, args...)...)
	cmd.Stdin = stdin
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if events != nil {
		cmd.ExtraFiles = []*os.File{events}
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the pod's monitor: %w", err)
	}
	return cmd, nil
}

// startMonitor runs a detached pod and returns when its container runs.
func (a *App) startMonitor(ctx context.Context, req *runRequest, quiet bool) error {
	request, err := json.Marshal(req)
	if err != nil {
		return err
	}
	events, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer events.Close()
	signals, stop := catchSignals() // before there is a monitor that would not hear of one
	defer stop()
	cmd, err := spawnMonitor(bytes.NewReader(request), out, "--root", req.Root)
	out.Close()
	if err != nil {
		return err
	}
	go func() {
		for sig := range signals {
			if ends(sig) {
				cmd.Process.Signal(sig) // it undoes everything and reports the end
			}
		}
	}()
	p := a.newProgress(quiet)
	defer p.done()
	if err := a.awaitMonitor(events, cmd, p, req); err != nil || !req.Timeline {
		return err
	}
	a.showTimeline(ctx, req.ID)
	return nil
}

func (a *App) awaitMonitor(events io.Reader, cmd *exec.Cmd, p progress, req *runRequest) error {
	for dec := json.NewDecoder(events); ; {
		var e monitorEvent
		if err := dec.Decode(&e); err != nil {
			return fmt.Errorf("the pod's monitor died before the container ran (%v); `outrigger rm --all` removes what is left", cmd.Wait())
		}
		switch {
		case e.Say != "":
			p.say("%s", e.Say)
		case e.Update != "":
			p.update(e.Key, e.Update)
		case e.Started && e.Error == "":
			p.done()
			fmt.Fprintln(a.Stdout, req.Name)
			return cmd.Process.Release()
		case e.Error != "":
			if !e.Started {
				cmd.Wait()
			}
			p.done()
			return exitError{e.Code, errors.New(e.Error)}
		}
	}
}

// reporter sends events to the parent. It ignores errors: the parent may be gone.
type reporter struct {
	mu  sync.Mutex
	out *os.File
}

func (r *reporter) send(e monitorEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		json.NewEncoder(r.out).Encode(e)
	}
}

func (r *reporter) say(format string, args ...any) {
	r.send(monitorEvent{Say: fmt.Sprintf(format, args...)})
}
func (r *reporter) update(key, text string) { r.send(monitorEvent{Key: key, Update: text}) }
func (r *reporter) done()                   {}

func (r *reporter) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.out != nil {
		r.out.Close()
		r.out = nil
	}
}

// monitor runs the request on stdin.
func (a *App) monitor(ctx context.Context) error {
	var req runRequest
	if err := json.NewDecoder(a.Stdin).Decode(&req); err != nil {
		return fmt.Errorf("monitor is started by outrigger itself: %w", err)
	}
	report := &reporter{out: os.NewFile(3, "events")}
	defer report.close()
	a.root, a.socket, a.provider, a.adaptor = req.Root, req.Socket, req.Provider, req.AdaptorArgs
	a.Stderr = io.Discard
	signals, stop := catchSignals()
	defer stop()
	code, err := a.runDetached(ctx, &req, report, nil, signals)
	if err == nil { // nobody hears this once the pod has started
		err = exitError{cmp.Or(code, exitFailure), errors.New("the pod was ended before it was ready")}
	}
	report.failed(err, false)
	return exit(code)
}

func (r *reporter) failed(err error, started bool) {
	e := monitorEvent{Error: explain(err), Code: exitFailure, Started: started}
	if withCode, ok := errors.AsType[exitError](err); ok {
		e.Code = withCode.Code
	}
	r.send(e)
}

// runDetached runs a pod, or takes over one that is on record and whose monitor was killed.
func (a *App) runDetached(ctx context.Context, req *runRequest, report *reporter, running *record.Pod, signals <-chan os.Signal) (int, error) {
	n, err := a.node()
	if err != nil {
		return 0, err
	}
	if err := os.MkdirAll(n.Pods().Dir, 0o700); err != nil {
		return 0, err
	}
	log, err := containerlog.Create(n.Pods().LogPath(req.ID), req.LogLimit)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	r := &runner{app: a, node: n, req: req, record: running, progress: report, signals: signals}
	r.streams = podclient.IO{Stdin: strings.NewReader(""), Stdout: log.Stream("stdout"), Stderr: log.Stream("stderr")}
	r.started = func(err error) {
		if err != nil {
			report.failed(err, true)
		}
		report.send(monitorEvent{Started: true}) // which nobody hears after an error
		report.close()
	}
	if running != nil {
		return r.takeOver(ctx)
	}
	code, err := r.run(ctx)
	if _, kept := n.Pods().Find(req.ID); err != nil && r.record == nil && kept != nil { // it failed before there was a record
		err = errors.Join(err, a.forget(context.WithoutCancel(ctx), n, &record.Pod{ID: req.ID}, nil))
	}
	return code, err
}

// spawnResume starts a monitor for a pod whose monitor was killed, and makes it the
// owner in the pod's record. The caller holds the lock, so nobody sees the old owner,
// nor a new one that a signal would end before it catches signals.
func (a *App) spawnResume(n *node.Node, p *record.Pod) error {
	events, out, err := os.Pipe()
	if err != nil {
		return err
	}
	defer events.Close()
	cmd, err := spawnMonitor(nil, out, "--root", n.Root, "--resume", p.ID)
	out.Close()
	if err != nil {
		return err
	}
	io.Copy(io.Discard, events) // which it closes, also by ending
	go cmd.Wait()
	if p.Owner, err = procid.Of(cmd.Process.Pid); err != nil {
		return err
	}
	return n.Pods().Save(p)
}

// resume becomes the monitor of a running pod.
func (a *App) resume(ctx context.Context, id string) error {
	signals, stop := catchSignals()
	defer stop()
	os.NewFile(3, "events").Close()
	n, err := a.node()
	if err != nil {
		return err
	}
	unlock, err := n.Lock(ctx) // waits until the record names this process
	if err != nil {
		return err
	}
	unlock()
	p, err := n.Pods().Find(id)
	if err != nil {
		return err
	}
	req, err := requestOf(p)
	if err != nil {
		return err
	}
	_, err = a.runDetached(ctx, req, &reporter{}, p, signals)
	return err
}

func (r *runner) takeOver(ctx context.Context) (code int, err error) {
	if len(r.record.Containers) < len(r.podSpec().Containers) {
		return 0, fmt.Errorf("the record of pod %s is of another version of outrigger, which this one cannot go on with", r.record.Name)
	}
	r.client = podclient.New(r.record.Socket)
	if r.pod, err = r.client.Attach(ctx, podclient.PodSpec{ID: r.record.ID, Name: r.record.Name}, r.record.AgentSocket); err != nil {
		return 0, err
	}
	if r.record.Network {
		if r.network, err = r.app.network(r.node); err != nil {
			return 0, err
		}
	}
	if err := r.publish(r.record.Ports); err != nil {
		fmt.Fprintln(r.streams.Stderr, "outrigger:", commandline.WithoutProtocol(err.Error())) // its container runs on
	}
	r.findContainers()
	code, err = r.watch(nil)
	return code, errors.Join(err, r.tearDown(code, err))
}
