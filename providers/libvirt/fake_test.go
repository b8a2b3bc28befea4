// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	lv "github.com/digitalocean/go-libvirt"
	"libvirt.org/go/libvirtxml"
)

// fakeDaemon is a libvirt daemon in memory, as far as the provider needs one.
// Its knobs may be set while nobody calls it.
type fakeDaemon struct {
	mu    sync.Mutex
	doms  map[string]*fakeDomain
	vols  map[string]*fakeVolume
	hosts map[string]string // addresses by MAC
	taken []lease

	networkXML, poolXML, capsXML string
	networkDown, poolDown        bool
	// noReservations refuses them, as the test driver does.
	noReservations bool
	// before, if set, is called before each call; its error is the call's.
	before func(ctx context.Context, call string) error
	// after, if set, is called after each call that succeeded; its error
	// stands for a lost reply.
	after func(call string) error
	// addrs are the answers of a DHCP server or agent.
	addrs map[string][]lv.DomainInterface
	calls []string
}

type fakeDomain struct {
	def      libvirtxml.Domain
	metadata string
	state    lv.DomainState
	// live are the disks of what runs.
	live     []libvirtxml.DomainDisk
	backedUp bool
}

type fakeVolume struct {
	def     libvirtxml.StorageVolume
	content []byte
}

const fakeGiB = 1 << 30

func newFakeDaemon() *fakeDaemon {
	f := &fakeDaemon{
		doms: map[string]*fakeDomain{}, vols: map[string]*fakeVolume{}, hosts: map[string]string{}, addrs: map[string][]lv.DomainInterface{},
		networkXML: `<network><name>default</name><forward mode='nat'/><bridge name='virbr0'/><mtu size='1400'/>
			<ip address='192.168.122.1' netmask='255.255.255.0'><dhcp><range start='192.168.122.2' end='192.168.122.254'/>%s</dhcp></ip></network>`,
		poolXML: `<pool type='dir'><name>default</name><target><path>/pool</path></target></pool>`,
		capsXML: `<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest><os_type>hvm</os_type><arch name='x86_64'><domain type='qemu'/></arch></guest></capabilities>`,
	}
	f.addVolume("podvm-base.qcow2", "qcow2", 2*fakeGiB)
	return f
}

func (f *fakeDaemon) addVolume(name, format string, capacity uint64) {
	text, err := volumeXML(name, capacity, format, nil)
	if err != nil {
		panic(err)
	}
	v := &fakeVolume{}
	if err := v.def.Unmarshal(text); err != nil {
		panic(err)
	}
	f.vols[name] = v
}

func said(code lv.ErrorNumber, format string, args ...any) error {
	return lv.Error{Code: uint32(code), Message: fmt.Sprintf(format, args...)}
}

// do makes a call: do runs with the lock held.
func (f *fakeDaemon) do(ctx context.Context, call string, do func() error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if f.before != nil {
		if err := f.before(ctx, call); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, call)
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", call, err)
	}
	if f.after != nil {
		if err := f.after(call); err != nil {
			return fmt.Errorf("%s: %w", call, err)
		}
	}
	return nil
}

func (f *fakeDaemon) withDomain(ctx context.Context, call, id string, do func(*fakeDomain) error) error {
	return f.do(ctx, call, func() error {
		d := f.doms[id]
		if d == nil {
			return said(lv.ErrNoDomain, "no domain with matching uuid '%s'", id)
		}
		return do(d)
	})
}

func (f *fakeDaemon) withVolume(ctx context.Context, call, name string, do func(*fakeVolume) error) error {
	return f.do(ctx, call, func() error {
		v := f.vols[name]
		if v == nil {
			return said(lv.ErrNoStorageVol, "no storage vol with matching name '%s'", name)
		}
		return do(v)
	})
}

func (f *fakeDaemon) domains(ctx context.Context) (ids []string, err error) {
	err = f.do(ctx, "domains", func() error {
		for id := range f.doms {
			ids = append(ids, id)
		}
		return nil
	})
	return ids, err
}

func (f *fakeDaemon) domainNamed(ctx context.Context, name string) (id string, err error) {
	err = f.do(ctx, "domainNamed", func() error {
		for at, d := range f.doms {
			if d.def.Name == name {
				id = at
				return nil
			}
		}
		return said(lv.ErrNoDomain, "no domain with matching name '%s'", name)
	})
	return id, err
}

func (f *fakeDaemon) define(ctx context.Context, text string) error {
	return f.do(ctx, "define", func() error {
		d := &fakeDomain{state: lv.DomainShutoff}
		if err := d.def.Unmarshal(text); err != nil {
			return said(lv.ErrXMLError, "%v", err)
		}
		for id, other := range f.doms {
			if other.def.Name == d.def.Name && id != d.def.UUID {
				return said(lv.ErrOperationFailed, "domain '%s' already exists with uuid %s", d.def.Name, id)
			}
		}
		d.metadata = d.def.Metadata.XML
		if old := f.doms[d.def.UUID]; old != nil {
			d.state, d.live = old.state, old.live
		}
		f.doms[d.def.UUID] = d
		return nil
	})
}

func (f *fakeDaemon) undefine(ctx context.Context, id string) error {
	return f.withDomain(ctx, "undefine", id, func(*fakeDomain) error {
		delete(f.doms, id)
		return nil
	})
}

func (f *fakeDaemon) start(ctx context.Context, id string) error {
	return f.withDomain(ctx, "start", id, func(d *fakeDomain) error {
		if d.state != lv.DomainShutoff {
			return said(lv.ErrOperationInvalid, "domain is already running")
		}
		for _, disk := range d.def.Devices.Disks {
			file := strings.TrimPrefix(disk.Source.File.File, "/pool/")
			if f.vols[file] == nil {
				return said(lv.ErrSystemError, "Cannot access storage file '%s': No such file or directory", file)
			}
		}
		d.state, d.live = lv.DomainRunning, slices.Clone(d.def.Devices.Disks)
		for _, v := range f.vols {
			if strings.HasSuffix(v.def.Name, consoleVolume) && strings.Contains(v.def.Name, id) {
				v.content = append(v.content, "Booting the guest of a fake.\n"...)
			}
		}
		return nil
	})
}

func (f *fakeDaemon) resume(ctx context.Context, id string) error {
	return f.withDomain(ctx, "resume", id, func(d *fakeDomain) error {
		d.state = lv.DomainRunning
		return nil
	})
}

func (f *fakeDaemon) destroy(ctx context.Context, id string) error {
	return f.withDomain(ctx, "destroy", id, func(d *fakeDomain) error {
		if d.state == lv.DomainShutoff {
			return said(lv.ErrOperationInvalid, "domain is not running")
		}
		d.state, d.live = lv.DomainShutoff, nil
		return nil
	})
}

func (f *fakeDaemon) state(ctx context.Context, id string) (state lv.DomainState, err error) {
	err = f.withDomain(ctx, "state", id, func(d *fakeDomain) error {
		state = d.state
		return nil
	})
	return state, err
}

func (f *fakeDaemon) metadata(ctx context.Context, id string) (text string, err error) {
	err = f.withDomain(ctx, "metadata", id, func(d *fakeDomain) error {
		if text = d.metadata; text == "" {
			return said(lv.ErrNoDomainMetadata, "metadata not found: Requested metadata element is not present")
		}
		return nil
	})
	return text, err
}

func (f *fakeDaemon) setMetadata(ctx context.Context, id, text string) error {
	return f.withDomain(ctx, "setMetadata", id, func(d *fakeDomain) error {
		d.metadata = text
		return nil
	})
}

func (f *fakeDaemon) interfaces(ctx context.Context, id string, source lv.DomainInterfaceAddressesSource) (list []lv.DomainInterface, err error) {
	err = f.withDomain(ctx, "interfaces", id, func(*fakeDomain) error {
		list = f.addrs[id]
		return nil
	})
	return list, err
}

func (f *fakeDaemon) pool(ctx context.Context, name string) (info poolInfo, err error) {
	err = f.do(ctx, "pool", func() error {
		if name != "default" {
			return said(lv.ErrNoStoragePool, "no storage pool with matching name '%s'", name)
		}
		info = poolInfo{!f.poolDown, 100 * fakeGiB, f.poolXML}
		return nil
	})
	return info, err
}

func (f *fakeDaemon) refresh(ctx context.Context, pool string) error {
	return f.do(ctx, "refresh", func() error { return nil })
}

func (f *fakeDaemon) volumes(ctx context.Context, pool string) (names []string, err error) {
	err = f.do(ctx, "volumes", func() error {
		for name := range f.vols {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil
	})
	return names, err
}

func (f *fakeDaemon) volume(ctx context.Context, pool, name string) (text string, err error) {
	err = f.withVolume(ctx, "volume", name, func(v *fakeVolume) error {
		text, err = v.def.Marshal()
		return err
	})
	return text, err
}

func (f *fakeDaemon) createVolume(ctx context.Context, pool, text string) error {
	return f.do(ctx, "createVolume", func() error {
		v := &fakeVolume{}
		if err := v.def.Unmarshal(text); err != nil {
			return said(lv.ErrXMLError, "%v", err)
		}
		if f.vols[v.def.Name] != nil {
			return said(lv.ErrStorageVolExist, "storage volume '%s' exists already", v.def.Name)
		}
		f.vols[v.def.Name] = v
		return nil
	})
}

func (f *fakeDaemon) deleteVolume(ctx context.Context, pool, name string) error {
	return f.withVolume(ctx, "deleteVolume", name, func(*fakeVolume) error {
		delete(f.vols, name)
		return nil
	})
}

func (f *fakeDaemon) upload(ctx context.Context, pool, name string, from io.Reader, _ int64) error {
	data, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	return f.withVolume(ctx, "upload", name, func(v *fakeVolume) error {
		v.content = data
		return nil
	})
}

func (f *fakeDaemon) download(ctx context.Context, pool, name string, offset, length uint64) (data []byte, err error) {
	err = f.withVolume(ctx, "download", name, func(v *fakeVolume) error {
		data = v.content[min(offset, uint64(len(v.content))):]
		if length > 0 {
			data = data[:min(length, uint64(len(data)))]
		}
		data = slices.Clone(data)
		return nil
	})
	return data, err
}

func (f *fakeDaemon) network(ctx context.Context, name string) (info networkInfo, err error) {
	err = f.do(ctx, "network", func() error {
		if name != "default" && name != "tunnel" {
			return said(lv.ErrNoNetwork, "no network with matching name '%s'", name)
		}
		var hosts strings.Builder
		for mac, ip := range f.hosts {
			fmt.Fprintf(&hosts, "<host mac='%s' ip='%s'/>", mac, ip)
		}
		info = networkInfo{!f.networkDown, strings.ReplaceAll(f.networkXML, "%s", hosts.String())}
		return nil
	})
	return info, err
}

func (f *fakeDaemon) leases(ctx context.Context, network string) (list []lease, err error) {
	err = f.do(ctx, "leases", func() error {
		list = f.taken
		return nil
	})
	return list, err
}

func (f *fakeDaemon) updateHost(ctx context.Context, network string, command lv.NetworkUpdateCommand, parent int, text string) error {
	return f.do(ctx, "updateHost", func() error {
		var host libvirtxml.NetworkDHCPHost
		if err := xml.Unmarshal([]byte(text), &host); err != nil {
			return said(lv.ErrXMLError, "%v", err)
		}
		if f.noReservations {
			return said(lv.ErrNoSupport, "this function is not supported by the connection driver: virNetworkUpdate")
		}
		if command == lv.NetworkUpdateCommandDelete {
			if f.hosts[host.MAC] == "" {
				return said(lv.ErrOperationInvalid, "couldn't locate a matching dhcp host entry in network '%s'", network)
			}
			delete(f.hosts, host.MAC)
			return nil
		}
		for mac, ip := range f.hosts {
			if mac == host.MAC || ip == host.IP {
				return said(lv.ErrOperationInvalid, "there is an existing dhcp host entry in network '%s' that matches", network)
			}
		}
		f.hosts[host.MAC] = host.IP
		return nil
	})
}

func (f *fakeDaemon) capabilities(ctx context.Context) (text string, err error) {
	err = f.do(ctx, "capabilities", func() error {
		text = f.capsXML
		return nil
	})
	return text, err
}

func (f *fakeDaemon) hardware(ctx context.Context) (size hardware, err error) {
	err = f.do(ctx, "hardware", func() error {
		size = hardware{16, 64 << 10}
		return nil
	})
	return size, err
}

func (f *fakeDaemon) close() {}

// leaks is everything that is there besides the base volume.
func (f *fakeDaemon) leaks() ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []string
	for id := range f.doms {
		left = append(left, "domain "+id)
	}
	for name := range f.vols {
		if isOwnVolume(name) {
			left = append(left, "volume "+name)
		}
	}
	for mac, ip := range f.hosts {
		left = append(left, "address "+ip+" of "+mac)
	}
	return left, nil
}

func (f *fakeDaemon) wantNothing(t *testing.T) {
	t.Helper()
	if left, _ := f.leaks(); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// fakeProvider returns a provider on a fake. Each change is made to the
// configuration before.
func fakeProvider(t *testing.T, f *fakeDaemon, change ...func(*Config)) *Provider {
	t.Helper()
	c := DefaultConfig()
	c.URI, c.DomainType = "qemu+ssh://root@somewhere/system", typeQEMU
	for _, do := range change {
		do(&c)
	}
	target, err := parseURI(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.validate(); err != nil {
		t.Fatal(err)
	}
	return newProvider(c, target, f)
}
