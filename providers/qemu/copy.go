// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/internal/blockdevice"
	"github.com/outrigger/outrigger/internal/procid"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/poll"
)

// copyDisk copies the disk that v is made from to a new file, as it is at one time before the
// return. The disk stays locked until then; its instance only until QEMU copies.
func (p *Provider) copyDisk(ctx context.Context, v *volume, to string) error {
	h, err := p.holdDisk(ctx, v.FromDisk, "")
	if err != nil {
		return err
	}
	defer h.release()
	if h.disk.Bytes > v.Bytes {
		return fmt.Errorf("%w: disk %s was made larger meanwhile", provider.ErrUnavailable, v.FromDisk)
	}
	if err := errors.Join(createFile(to), growFile(to, h.disk.Bytes)); err != nil {
		return err
	}
	if h.instance == nil || !qemuOf(h.instance).Alive() {
		h.releaseInstance()
		return copySparse(ctx, p.store.disks().image(v.FromDisk), to)
	}
	return p.copyLive(ctx, h, to)
}

// copySnapshot copies a snapshot, which nobody writes to. One that is deleted
// while it is open stays until it is closed.
func (p *Provider) copySnapshot(ctx context.Context, id, to string) error {
	if err := createFile(to); err != nil {
		return err
	}
	err := copySparse(ctx, p.store.snapshots().image(id), to)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: no snapshot %s: %w", provider.ErrNotFound, id, err)
	}
	return err
}

// copySparse copies a file onto another that has nothing but zeros, without its holes.
func copySparse(ctx context.Context, from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer target.Close()
	if !blockdevice.CloneFile(source, target) {
		if err := blockdevice.CopySparse(ctx, source, target); err != nil {
			return err
		}
	}
	return target.Sync()
}

// A copy of a disk that a guest writes to is a mirror, which QEMU keeps the same as the disk
// from the time when all is copied until it is told to end it. QEMU's backup would keep an
// older time, but it writes the zeros of a sparse disk.

const (
	// pollCopy is how often QEMU is asked how far it is. Between, others can ask it.
	pollCopy = 20 * time.Millisecond
	// pollEnd is how often it is looked whether a mirror has ended.
	pollEnd = 2 * time.Millisecond
)

func copyJob(id string) string  { return "copy-" + id }
func copyNode(id string) string { return "to-" + id }

// copyLive copies a disk by the QEMU that has it.
func (p *Provider) copyLive(ctx context.Context, h *held, to string) (err error) {
	id, instanceID, qemu := h.disk.ID, h.instance.ID, qemuOf(h.instance)
	path, err := filepath.Rel(p.store.folder(instanceID), to) // QEMU runs there
	if err != nil {
		return err
	}
	start := func(ctx context.Context, m *monitor) error { return startCopy(ctx, m, id, path) }
	if err := p.withMonitor(ctx, instanceID, plugWait, start); err != nil {
		return errors.Join(err, p.endCopy(ctx, instanceID, id, qemu))
	}
	h.releaseInstance()
	defer func() { err = errors.Join(err, p.endCopy(ctx, instanceID, id, qemu)) }()
	for done := false; !done; {
		if err := poll.Sleep(ctx, pollCopy); err != nil {
			return err
		}
		err := p.withMonitor(ctx, instanceID, plugWait, func(ctx context.Context, m *monitor) (err error) {
			done, err = finishCopy(ctx, m, id)
			return err
		})
		switch {
		case err != nil && !qemu.Alive():
			return fmt.Errorf("%w: instance %s ended while disk %s was copied", provider.ErrUnavailable, instanceID, id)
		case err != nil:
			return err
		}
	}
	return nil
}

// startCopy begins a mirror. Guest writes are written to both, so that it catches up.
func startCopy(ctx context.Context, m *monitor, id, to string) error {
	if err := stopCopy(ctx, m, id); err != nil { // that of a process that was killed
		return err
	}
	if err := plug(ctx, m, id); err != nil { // likewise
		return err
	}
	if err := m.open(copyNode(id), to); err != nil {
		return err
	}
	return m.call("blockdev-mirror", map[string]any{
		"job-id": copyJob(id), "device": id, "target": copyNode(id), "sync": "full", "copy-mode": "write-blocking", "auto-dismiss": false,
	}, nil)
}

// finishCopy reports whether all is copied, and ends the mirror then.
func finishCopy(ctx context.Context, m *monitor, id string) (bool, error) {
	status, err := m.jobStatus(copyJob(id))
	if err != nil || status != "ready" {
		return false, err
	}
	// Not by force: the target is complete, and of this time (qapi/block-core.json).
	if err := m.call("block-job-cancel", map[string]any{"device": copyJob(id), "force": false}, nil); err != nil {
		return false, err
	}
	for status != "concluded" {
		if err := poll.Sleep(ctx, pollEnd); err != nil {
			return false, err
		}
		if status, err = m.jobStatus(copyJob(id)); err != nil {
			return false, err
		}
	}
	return true, nil
}

// endCopy removes from a QEMU what a copy of a disk needs. One that has ended has nothing.
func (p *Provider) endCopy(ctx context.Context, instanceID, id string, qemu procid.ID) error {
	err := p.withMonitor(context.WithoutCancel(ctx), instanceID, plugWait, func(ctx context.Context, m *monitor) error { return stopCopy(ctx, m, id) })
	if err != nil && !qemu.Alive() {
		return nil
	}
	return err
}

// endCopies ends the copy of a disk that a killed process has begun.
func (p *Provider) endCopies(ctx context.Context, diskID string) error {
	h, err := p.holdDisk(ctx, diskID, "")
	if err != nil {
		return err
	}
	defer h.release()
	if h.instance == nil {
		return nil
	}
	if qemu := qemuOf(h.instance); qemu.Alive() {
		return p.endCopy(ctx, h.instance.ID, diskID, qemu)
	}
	return nil
}

// stopCopy ends a copy of a disk, if there is one, and closes its file.
func stopCopy(ctx context.Context, m *monitor, id string) error {
	for {
		status, err := m.jobStatus(copyJob(id))
		if errors.Is(err, errNoJob) {
			return m.closeNode(ctx, copyNode(id))
		}
		if status == "concluded" {
			err = m.call("job-dismiss", map[string]string{"id": copyJob(id)}, nil)
		} else if err == nil {
			err = m.call("block-job-cancel", map[string]any{"device": copyJob(id), "force": true}, nil)
		}
		if err != nil && status == "" {
			return err
		}
		// An error of a job that is there: it is just ending.
		if sleepErr := poll.Sleep(ctx, pollEnd); sleepErr != nil {
			return errors.Join(sleepErr, err)
		}
	}
}

var errNoJob = errors.New("there is no such job")

// jobStatus returns how far a job is. A job that has failed has an error beside its status.
func (m *monitor) jobStatus(id string) (string, error) {
	var jobs []struct{ ID, Status, Error string }
	if err := m.call("query-jobs", nil, &jobs); err != nil {
		return "", err
	}
	for _, job := range jobs {
		switch {
		case job.ID != id:
		case strings.Contains(job.Error, unix.ENOSPC.Error()), strings.Contains(job.Error, "No space left"):
			return job.Status, fmt.Errorf("%w: %s", unix.ENOSPC, job.Error)
		case job.Error != "":
			return job.Status, fmt.Errorf("copy a disk: %s", job.Error)
		default:
			return job.Status, nil
		}
	}
	return "", errNoJob
}
