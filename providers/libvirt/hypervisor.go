// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"io"

	lv "github.com/digitalocean/go-libvirt"
)

// hypervisor is what the provider asks of a libvirt daemon. Errors are those
// of the daemon, [lv.Error], with what was asked; see [classify]. Every method
// returns soon after its context has ended.
type hypervisor interface {
	// domains returns the ids of all domains, running or not.
	domains(ctx context.Context) ([]string, error)
	// domainNamed returns the id of the domain with that name.
	domainNamed(ctx context.Context, name string) (string, error)
	define(ctx context.Context, xml string) error
	undefine(ctx context.Context, id string) error
	start(ctx context.Context, id string) error
	resume(ctx context.Context, id string) error
	destroy(ctx context.Context, id string) error
	state(ctx context.Context, id string) (lv.DomainState, error)
	// metadata returns our element of the domain's metadata.
	metadata(ctx context.Context, id string) (string, error)
	setMetadata(ctx context.Context, id, xml string) error
	// interfaces asks for addresses by MAC.
	interfaces(ctx context.Context, id string, source lv.DomainInterfaceAddressesSource) ([]lv.DomainInterface, error)
	// domainXML returns what runs, or with [lv.DomainXMLInactive] the definition, which
	// is also what it returns of a domain that does not run.
	domainXML(ctx context.Context, id string, flags lv.DomainXMLFlags) (string, error)
	// attach and detach change what runs or the definition.
	attach(ctx context.Context, id, xml string, impact lv.DomainModificationImpact) error
	detach(ctx context.Context, id, xml string, impact lv.DomainModificationImpact) error
	// resizeDisk makes a disk of a domain that runs larger, by the disk's name.
	resizeDisk(ctx context.Context, id, disk string, bytes uint64) error
	// backup begins a copy of disks of a domain that runs, to files that are there.
	backup(ctx context.Context, id, xml string) error
	// backupXML returns the backup that a domain is at.
	backupXML(ctx context.Context, id string) (string, error)
	// backedUp reports whether the last job of a domain was completed.
	backedUp(ctx context.Context, id string) (bool, error)
	abortJob(ctx context.Context, id string) error

	pool(ctx context.Context, name string) (poolInfo, error)
	refresh(ctx context.Context, pool string) error
	volumes(ctx context.Context, pool string) ([]string, error)
	// volume returns the XML of a volume.
	volume(ctx context.Context, pool, name string) (string, error)
	createVolume(ctx context.Context, pool, xml string) error
	// copyVolume creates a volume with the content of another, and may take an hour.
	copyVolume(ctx context.Context, pool, xml, from string) error
	resizeVolume(ctx context.Context, pool, name string, bytes uint64) error
	deleteVolume(ctx context.Context, pool, name string) error
	// upload takes as long as the caller's context lets it.
	upload(ctx context.Context, pool, name string, from io.Reader, size int64) error
	// download returns up to length bytes from an offset.
	download(ctx context.Context, pool, name string, offset, length uint64) ([]byte, error)

	network(ctx context.Context, name string) (networkInfo, error)
	// leases returns who has which address: addresses by MAC.
	leases(ctx context.Context, network string) ([]lease, error)
	updateHost(ctx context.Context, network string, command lv.NetworkUpdateCommand, parent int, xml string) error

	// capabilities is XML about the machine.
	capabilities(ctx context.Context) (string, error)
	hardware(ctx context.Context) (hardware, error)

	close()
}

type poolInfo struct {
	active    bool
	available uint64 // bytes
	xml       string
}

type networkInfo struct {
	active bool
	xml    string
}

// hardware is the size of the daemon's machine.
type hardware struct {
	cpus, memory int64 // MiB
}

type lease struct {
	mac, ip string
}
