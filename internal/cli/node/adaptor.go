// SPDX-License-Identifier: Apache-2.0

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/peerpods/podclient"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/internal/program"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
)

// adaptorStart limits the start of cloud-api-adaptor. The provider's checks of the
// machine take longest.
const adaptorStart = 2 * time.Minute

// FindAdaptor finds cloud-api-adaptor beside this program, then in PATH.
func FindAdaptor() (string, error) {
	path, err := program.Find("cloud-api-adaptor")
	if err != nil {
		return "", errors.New("cloud-api-adaptor is neither beside outrigger nor in PATH; install Outrigger again, or in a checkout run `make build`, or name one that runs with --socket")
	}
	return path, nil
}

// EnsureAdaptor starts cloud-api-adaptor unless it serves already. The caller
// holds the lock.
func (n *Node) EnsureAdaptor(ctx context.Context) error {
	if Served(n.Socket()) {
		return n.checkProvider(ctx)
	}
	path := n.AdaptorPath
	if path == "" {
		var err error
		if path, err = FindAdaptor(); err != nil {
			return err
		}
	}
	d := n.loadDaemons()
	if len(n.AdaptorArgs) == 0 && d.Provider == n.Provider {
		n.AdaptorArgs = d.Args // a restart must be like the start
	}
	cmd, log, err := n.spawn(path)
	if err != nil {
		return fmt.Errorf("start cloud-api-adaptor: %w", err)
	}
	id, err := procid.Of(cmd.Process.Pid)
	if err == nil {
		err = n.saveDaemons(daemons{Adaptor: id, Relay: d.Relay, Provider: n.Provider, Args: n.AdaptorArgs})
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	if err != nil {
		cmd.Process.Kill()
		return fmt.Errorf("start cloud-api-adaptor: %w", err)
	}
	return n.awaitAdaptor(ctx, cmd, ended, log)
}

// checkProvider returns an error if the running adaptor has another provider or other
// arguments than the ones requested.
func (n *Node) checkProvider(ctx context.Context) error {
	if running := n.loadDaemons().Args; len(n.AdaptorArgs) > 0 && !slices.Equal(n.AdaptorArgs, running) {
		return fmt.Errorf("an adaptor with arguments %q is running and this pod wants %q; remove its pods first (outrigger rm) or give --root another folder",
			running, n.AdaptorArgs)
	}
	info, err := podclient.New(n.Socket()).Info(ctx)
	if err != nil || n.Provider == "" || info.Provider == n.Provider {
		return nil
	}
	return fmt.Errorf("pods of provider %s are running and this one wants %s; remove them first (outrigger rm) or give --root another folder",
		info.Provider, n.Provider)
}

// spawn starts the adaptor in a session of its own with its output in the log. It
// returns the offset in the log at which that begins.
func (n *Node) spawn(path string) (*exec.Cmd, int64, error) {
	log, err := os.OpenFile(n.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, 0, err
	}
	defer log.Close()
	info, err := log.Stat()
	if err != nil {
		return nil, 0, err
	}
	// The caller limits the start of a VM, with --boot-timeout; -proxy-timeout must not.
	args := append([]string{n.Provider, "-socket", n.Socket(), "-pods-dir", n.podsDir(), "-other-pods-dirs", n.otherPods(), "-orphan-timeout", "0", "-proxy-timeout", "24h"}, n.AdaptorArgs...)
	cmd := exec.Command(path, args...)
	// No probe: its port may be taken by the adaptor of a Kubernetes node.
	cmd.Env = append(os.Environ(), "PROBE_PORT=0", "NOTIFY_SOCKET=")
	// @node: images of this host are served to VMs by this node, over plain HTTP.
	registries := strings.TrimPrefix(os.Getenv("INSECURE_REGISTRIES")+",@node", ",")
	cmd.Env = append(cmd.Env, "INSECURE_REGISTRIES="+registries)
	if os.Getenv("POD_IMAGES") == "" {
		cmd.Env = append(cmd.Env, "POD_IMAGES=*") // the user who starts the pod is the operator
	}
	cmd.Dir = n.dir()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd, info.Size(), cmd.Start()
}

func (n *Node) awaitAdaptor(ctx context.Context, cmd *exec.Cmd, ended <-chan error, logStart int64) error {
	deadline := time.After(adaptorStart)
	for !Served(n.Socket()) {
		select {
		case err := <-ended:
			return fmt.Errorf("cloud-api-adaptor %s ended at its start: %s", n.Provider, cmp.Or(n.said(logStart), fmt.Sprint(cmp.Or(err, errors.New("exit 0")))))
		case <-ctx.Done():
			cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return context.Cause(ctx)
		case <-deadline:
			cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return fmt.Errorf("cloud-api-adaptor did not serve %s within %s: %s", n.Socket(), adaptorStart, n.said(logStart))
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// said returns why the adaptor ended, from the log after the offset start; else the last lines that it wrote.
func (n *Node) said(start int64) string {
	data, err := os.ReadFile(n.logPath())
	if err != nil || int64(len(data)) < start {
		return ""
	}
	text := strings.TrimSpace(string(data[start:]))
	if _, reason, found := strings.Cut("\n"+text, "\ncloud-api-adaptor: "); found {
		return reason
	}
	lines := strings.Split(text, "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// NoteRelay records the process of the relay, so that it can be stopped even if it does
// not answer any more. The caller holds the lock.
func (n *Node) NoteRelay(ctx context.Context) {
	d := n.loadDaemons()
	if d.Relay.Alive() {
		return
	}
	if id, ok := n.askRelay(ctx); ok {
		d.Relay = id
		n.saveDaemons(d)
	}
}

func (n *Node) askRelay(ctx context.Context) (procid.ID, bool) {
	conn, err := net.DialTimeout("unix", n.relaySocket(), time.Second)
	if err != nil {
		return procid.ID{}, false
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	resp, err := relaypb.NewRelayClient(client).List(ctx, &relaypb.ListRequest{})
	if err != nil {
		return procid.ID{}, false
	}
	id, err := procid.Of(int(resp.Pid))
	return id, err == nil
}

// StopIfUnused stops each adaptor, with its relay, that was started here and that neither a pod
// that is alive nor a pool needs. If there are no records either it removes the root folder.
// The caller holds the lock.
func (n *Node) StopIfUnused(ctx context.Context) error {
	pods, err := n.Pods().List()
	if err != nil {
		return err
	}
	used := map[string]bool{} // by name of the pool
	for _, p := range pods {
		used[p.Pool] = used[p.Pool] || p.Live()
	}
	adaptors := []*Node{{Root: n.Root}}
	pools, _ := os.ReadDir(n.poolsDir())
	for _, entry := range pools {
		adaptors = append(adaptors, &Node{Root: n.Root, Pool: entry.Name()})
	}
	left := len(pods)
	var errs []error
	for _, of := range adaptors {
		switch _, err := os.Stat(of.recordPath()); {
		case used[of.Pool] || err == nil:
			left++
		default:
			errs = append(errs, of.stopDaemons(ctx))
			if of.Pool != "" {
				errs = append(errs, removeFiles(of.dir()))
			}
		}
	}
	if err := errors.Join(errs...); err != nil || left > 0 {
		return err
	}
	return removeFiles(n.Root)
}

func (n *Node) stopDaemons(ctx context.Context) error {
	n.NoteRelay(ctx)
	d := n.loadDaemons()
	if !d.Adaptor.Alive() { // who started it may have died before it was on record
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if info, err := podclient.New(n.Socket()).Info(asking); err == nil {
			d.Adaptor, _ = procid.Of(int(info.Pid))
		}
	}
	// The adaptor first: it would start the relay again.
	if err := errors.Join(d.Adaptor.Stop(15*time.Second), d.Relay.Stop(15*time.Second)); err != nil {
		return err
	}
	return errors.Join(removeIfThere(n.Socket()), removeIfThere(n.relaySocket()), removeIfThere(n.adaptorPath()))
}

// removeFiles removes the files that this package made in a folder. It leaves others, for
// instance the state of a provider.
func removeFiles(dir string) error {
	var errs []error
	for _, pattern := range []string{"adaptor.log*", "hypervisor.sock*", "relay.sock*", "relay.log*", "pods.d", "pods", "pools", "net", "lock"} {
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		errs = append(errs, err)
		for _, f := range files {
			errs = append(errs, removeIfThere(f))
		}
	}
	errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, syscall.ENOTEMPTY) })
	if err := removeIfThere(dir); err != nil && !errors.Is(err, syscall.ENOTEMPTY) && !errors.Is(err, syscall.EBUSY) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Daemons returns the recorded processes of adaptor and relay, for doctor and demo.
func (n *Node) Daemons() (adaptor, relay procid.ID) {
	d := n.loadDaemons()
	return d.Adaptor, d.Relay
}
