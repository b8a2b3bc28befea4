// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"bytes"
	"context"
	"fmt"

	lv "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
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
	text, err := p.hv.volume(ctx, pool, name)
	if err != nil {
		return nil, err
	}
	var doc libvirtxml.StorageVolume
	if err := doc.Unmarshal(text); err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	size, err := bytesOf(doc.Capacity)
	if err != nil {
		return nil, fmt.Errorf("volume %s: %w", name, err)
	}
	start := uint64(0)
	if size > length+sizeSlack {
		start = size - length - sizeSlack
	}
	data, err := p.toTheEnd(ctx, pool, name, start)
	if err != nil {
		return nil, err
	}
	if start == 0 {
		// The header does not count as output.
		data = bytes.TrimPrefix(data, []byte(consoleHeader))
	}
	return data[max(0, len(data)-int(length)):], nil
}

// emptyReads is how often a daemon is asked again that answered nothing.
const emptyReads = 3

// toTheEnd reads a volume that is not empty. On a busy machine libvirt 9.0 now
// and then ends a stream before its first byte, without an error.
func (p *Provider) toTheEnd(ctx context.Context, pool, name string, start uint64) (data []byte, err error) {
	for range emptyReads {
		data, err = p.hv.download(ctx, pool, name, start, 0)
		if err != nil || len(data) > 0 {
			break
		}
	}
	return data, err
}

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
