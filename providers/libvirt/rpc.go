// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"

	lv "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"
)

var _ hypervisor = (*client)(nil)

// domainOf returns a handle by which daemons find a domain: they only use the UUID.
func domainOf(id string) lv.Domain {
	u, _ := uuid.Parse(id)
	return lv.Domain{Name: id, UUID: lv.UUID(u), ID: -1}
}

func (c *client) domains(ctx context.Context) ([]string, error) {
	return answered(ctx, c, "list domains", func(l *lv.Libvirt) (ids []string, err error) {
		list, _, err := l.ConnectListAllDomains(1, lv.ConnectListDomainsActive|lv.ConnectListDomainsInactive)
		for _, d := range list {
			ids = append(ids, uuid.UUID(d.UUID).String())
		}
		return ids, err
	})
}

// answered makes a call that changes nothing, in another goroutine, and returns its
// result. The caller may stop waiting before.
func answered[T any](ctx context.Context, c *client, what string, call func(*lv.Libvirt) (T, error)) (T, error) {
	var result, none T
	err := c.call(ctx, what, 0, func(l *lv.Libvirt) (err error) {
		result, err = call(l)
		return err
	})
	if err != nil { // the call may go on
		return none, err
	}
	return result, nil
}

func (c *client) domainNamed(ctx context.Context, name string) (string, error) {
	return answered(ctx, c, "look up domain "+name, func(l *lv.Libvirt) (string, error) {
		d, err := l.DomainLookupByName(name)
		return uuid.UUID(d.UUID).String(), err
	})
}

func (c *client) define(ctx context.Context, xml string) error {
	return c.change(ctx, "define domain", func(l *lv.Libvirt) error {
		_, err := l.DomainDefineXML(xml)
		return err
	})
}

// undefine removes the UEFI variables too; the test driver knows no such flag.
func (c *client) undefine(ctx context.Context, id string) error {
	return c.change(ctx, "undefine domain "+id, func(l *lv.Libvirt) error {
		err := l.DomainUndefineFlags(domainOf(id), lv.DomainUndefineNvram)
		if unsupported(err) || isCode(err, lv.ErrInvalidArg) {
			err = l.DomainUndefine(domainOf(id))
		}
		return err
	})
}

func (c *client) start(ctx context.Context, id string) error {
	return c.change(ctx, "start domain "+id, func(l *lv.Libvirt) error { return l.DomainCreate(domainOf(id)) })
}

func (c *client) resume(ctx context.Context, id string) error {
	return c.change(ctx, "resume domain "+id, func(l *lv.Libvirt) error { return l.DomainResume(domainOf(id)) })
}

func (c *client) destroy(ctx context.Context, id string) error {
	return c.change(ctx, "destroy domain "+id, func(l *lv.Libvirt) error { return l.DomainDestroy(domainOf(id)) })
}

func (c *client) state(ctx context.Context, id string) (lv.DomainState, error) {
	return answered(ctx, c, "state of domain "+id, func(l *lv.Libvirt) (lv.DomainState, error) {
		state, _, err := l.DomainGetState(domainOf(id), 0)
		return lv.DomainState(state), err
	})
}

func (c *client) metadata(ctx context.Context, id string) (string, error) {
	return answered(ctx, c, "metadata of domain "+id, func(l *lv.Libvirt) (string, error) {
		return l.DomainGetMetadata(domainOf(id), int32(lv.DomainMetadataElement), lv.OptString{metadataURI}, lv.DomainAffectCurrent)
	})
}

// setMetadata changes the definition, and the running domain if there is one.
func (c *client) setMetadata(ctx context.Context, id, xml string) error {
	return c.change(ctx, "metadata of domain "+id, func(l *lv.Libvirt) error {
		set := func(flags lv.DomainModificationImpact) error {
			return l.DomainSetMetadata(domainOf(id), int32(lv.DomainMetadataElement), lv.OptString{xml}, lv.OptString{metadataPrefix}, lv.OptString{metadataURI}, flags)
		}
		err := set(lv.DomainAffectLive | lv.DomainAffectConfig)
		if isCode(err, lv.ErrOperationInvalid) {
			err = set(lv.DomainAffectConfig) // it has stopped
		}
		return err
	})
}

func (c *client) interfaces(ctx context.Context, id string, source lv.DomainInterfaceAddressesSource) ([]lv.DomainInterface, error) {
	return answered(ctx, c, "addresses of domain "+id, func(l *lv.Libvirt) ([]lv.DomainInterface, error) {
		return l.DomainInterfaceAddresses(domainOf(id), uint32(source), 0)
	})
}

func (c *client) pool(ctx context.Context, name string) (poolInfo, error) {
	return answered(ctx, c, "storage pool "+name, func(l *lv.Libvirt) (info poolInfo, err error) {
		pool, err := l.StoragePoolLookupByName(name)
		if err != nil {
			return info, err
		}
		state, _, _, available, err := l.StoragePoolGetInfo(pool)
		if err != nil {
			return info, err
		}
		info.active, info.available = lv.StoragePoolState(state) == lv.StoragePoolRunning, available
		info.xml, err = l.StoragePoolGetXMLDesc(pool, 0)
		return info, err
	})
}

func (c *client) refresh(ctx context.Context, pool string) error {
	return c.change(ctx, "refresh storage pool "+pool, func(l *lv.Libvirt) error {
		p, err := l.StoragePoolLookupByName(pool)
		if err == nil {
			err = l.StoragePoolRefresh(p, 0)
		}
		return err
	})
}

func (c *client) volumes(ctx context.Context, pool string) ([]string, error) {
	return answered(ctx, c, "list volumes of pool "+pool, func(l *lv.Libvirt) (names []string, err error) {
		p, err := l.StoragePoolLookupByName(pool)
		if err != nil {
			return nil, err
		}
		list, _, err := l.StoragePoolListAllVolumes(p, 1, 0)
		for _, v := range list {
			names = append(names, v.Name)
		}
		return names, err
	})
}

func (c *client) volume(ctx context.Context, pool, name string) (string, error) {
	return answered(ctx, c, "volume "+name, func(l *lv.Libvirt) (string, error) {
		return l.StorageVolGetXMLDesc(volumeOf(pool, name), 0)
	})
}

// volumeOf returns a handle by which daemons find a volume: they only use the names.
func volumeOf(pool, name string) lv.StorageVol {
	return lv.StorageVol{Pool: pool, Name: name, Key: name}
}

func (c *client) createVolume(ctx context.Context, pool, xml string) error {
	return c.change(ctx, "create volume", func(l *lv.Libvirt) error {
		p, err := l.StoragePoolLookupByName(pool)
		if err == nil {
			_, err = l.StorageVolCreateXML(p, xml, 0)
		}
		return err
	})
}

func (c *client) deleteVolume(ctx context.Context, pool, name string) error {
	return c.change(ctx, "delete volume "+name, func(l *lv.Libvirt) error {
		return l.StorageVolDelete(volumeOf(pool, name), 0)
	})
}

func (c *client) network(ctx context.Context, name string) (networkInfo, error) {
	return answered(ctx, c, "network "+name, func(l *lv.Libvirt) (info networkInfo, err error) {
		network, err := l.NetworkLookupByName(name)
		if err != nil {
			return info, err
		}
		active, err := l.NetworkIsActive(network)
		if err != nil {
			return info, err
		}
		info.active = active == 1
		info.xml, err = l.NetworkGetXMLDesc(network, 0)
		return info, err
	})
}

func (c *client) leases(ctx context.Context, network string) ([]lease, error) {
	return answered(ctx, c, "leases of network "+network, func(l *lv.Libvirt) (list []lease, err error) {
		n, err := l.NetworkLookupByName(network)
		if err != nil {
			return nil, err
		}
		leases, _, err := l.NetworkGetDhcpLeases(n, nil, 1, 0)
		for _, f := range leases {
			list = append(list, lease{optional(f.Mac), f.Ipaddr})
		}
		return list, err
	})
}

func optional(s lv.OptString) string {
	if len(s) == 0 {
		return ""
	}
	return s[0]
}

// updateHost changes a running network and its definition, each if there is
// one.
func (c *client) updateHost(ctx context.Context, network string, command lv.NetworkUpdateCommand, parent int, xml string) error {
	return c.change(ctx, "DHCP host of network "+network, func(l *lv.Libvirt) error {
		n, err := l.NetworkLookupByName(network)
		if err != nil {
			return err
		}
		var flags lv.NetworkUpdateFlags
		if active, err := l.NetworkIsActive(n); err != nil {
			return err
		} else if active == 1 {
			flags |= lv.NetworkUpdateAffectLive
		}
		if persistent, err := l.NetworkIsPersistent(n); err != nil {
			return err
		} else if persistent == 1 {
			flags |= lv.NetworkUpdateAffectConfig
		}
		return l.NetworkUpdateCompat(n, command, lv.NetworkSectionIPDhcpHost, int32(parent), xml, flags)
	})
}

func (c *client) capabilities(ctx context.Context) (string, error) {
	return answered(ctx, c, "capabilities", func(l *lv.Libvirt) (string, error) { return l.ConnectGetCapabilities() })
}

func (c *client) hardware(ctx context.Context) (hardware, error) {
	return answered(ctx, c, "size of the machine", func(l *lv.Libvirt) (hardware, error) {
		_, kib, cpus, _, _, _, _, _, err := l.NodeGetInfo()
		return hardware{int64(cpus), int64(kib / 1024)}, err
	})
}
