// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"fmt"

	lv "github.com/digitalocean/go-libvirt"
)

// consoleHeader begins a console's volume. The guest's output is appended to
// it. Once the log daemon has set the file aside for being too long and begun
// another, it is no longer there.
const consoleHeader = "[outrigger console]\n"

// consoleMost bounds what is read at a time.
const consoleMost = 16 << 20

// Console implements provider.ConsoleReader. The VM's serial port writes to a
// volume, which can be read from anywhere. libvirt's log daemon keeps the last
// 2 MiB in it (max_size in virtlogd.conf).
func (p *Provider) Console(ctx context.Context, instanceID string, tailBytes int64) ([]byte, error) {
	r, err := p.existing(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	if tailBytes == 0 {
		return nil, nil
	}
	data, err := p.tail(ctx, r.Pool, volumesOf(r.id)+consoleVolume, uint64(min(tailBytes, consoleMost)))
	if isCode(err, lv.ErrNoStorageVol) {
		return nil, nil // it is being made
	}
	if err != nil {
		return nil, classify(fmt.Errorf("console of %s: %w", instanceID, err))
	}
	return data, nil
}

func (p *Provider) tail(ctx context.Context, pool, name string, length uint64) ([]byte, error) {
	v, err := p.volumeNamed(ctx, pool, name)
	if err != nil {
		return nil, err
	}
	start := v.capacity - min(v.capacity, length+sizeSlack)
	var data []byte
	for range emptyReads {
		if data, err = p.hv.download(ctx, pool, name, start, 0); err != nil {
			return nil, err
		}
		if len(data) > 0 {
			break
		}
	}
	if start == 0 {
		// The header does not count as output.
		data = bytes.TrimPrefix(data, []byte(consoleHeader))
	}
	return data[max(0, len(data)-int(length)):], nil
}

// emptyReads is how often a daemon is asked again that answered nothing: on a busy machine
// libvirt 9.0 now and then ends a stream before its first byte, without an error.
const emptyReads = 3

// sizeSlack is more than what daemons add to the size of a file to fill up a
// sector. It also covers the header.
const sizeSlack = 4096

// consoleRolled reports whether the log daemon has begun a new file. When in
// doubt it has.
func (p *Provider) consoleRolled(ctx context.Context, pool, name string) bool {
	if p.target.testDriver() {
		return false
	}
	head, err := p.hv.download(ctx, pool, name, 0, uint64(len(consoleHeader)))
	return err != nil || string(head) != consoleHeader
}
