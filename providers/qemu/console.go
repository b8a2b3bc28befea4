// SPDX-License-Identifier: Apache-2.0

package qemu

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// consoleLimit is how much of the disk a console may use before it is
	// trimmed to consoleKept.
	consoleLimit = 16 << 20
	consoleKept  = 8 << 20
	// trimEvery: an emulated serial port writes about 1 MB/s, so a console is
	// some 30 MB over its limit at most.
	trimEvery = 30 * time.Second
)

// Console implements provider.ConsoleReader. Where QEMU has ended, what it said
// itself follows what the guest wrote: it may be why the guest wrote nothing.
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	r, err := p.existing(instanceID)
	if err != nil {
		return nil, err
	}
	p.trim(r)
	text, err := tail(p.store.file(r.ID, consoleName), min(tailBytes, consoleKept))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // not started yet
	}
	if err != nil || r.alive() {
		return text, classify(err)
	}
	output, err := tail(p.store.file(r.ID, outputName), 4096)
	if err != nil {
		return text, nil
	}
	text = append(text, output...)
	return text[max(0, int64(len(text))-tailBytes):], nil
}

func (p *Provider) trim(r *record) {
	if err := trimConsole(p.store.file(r.ID, consoleName)); err != nil {
		p.cfg.log().Warn("could not trim a console", "instance", r.ID, "error", err)
	}
}

// trimConsole gives back what a console uses beyond its limit.
func trimConsole(path string) error {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil || info.Blocks*512 <= consoleLimit {
		return nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	err = unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, info.Size-consoleKept)
	if errors.Is(err, unix.EOPNOTSUPP) {
		return file.Truncate(0) // QEMU appends, so it goes on at the start
	}
	return err
}

func (p *Provider) trimConsoles(ctx context.Context) {
	ticker := time.NewTicker(trimEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		records, _ := p.store.instances().list()
		for _, r := range records {
			p.trim(r)
		}
	}
}
