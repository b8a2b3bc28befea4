// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"time"

	ecs "github.com/alibabacloud-go/ecs-20140526/v7/client"
	"github.com/alibabacloud-go/tea/dara"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/kit/rest"
	"github.com/outrigger/outrigger/provider/kit/tags"
)

// machine is an instance as the cloud describes it.
type machine struct {
	id, name, status   string
	zone, region, kind string
	created            time.Time
	tags               map[string]string
	private, public    netip.Addr
	primaryNIC, second string // ids of interfaces
}

// Statuses of instances (DescribeInstances, Status).
const (
	statusPending  = "Pending"
	statusStarting = "Starting"
	statusRunning  = "Running"
	statusStopping = "Stopping"
	statusStopped  = "Stopped"
)

// described is what is wanted of an instance in a reply of DescribeInstances. The SDK decodes all members into maps,
// encodes those, and decodes them again into its models.
type described struct {
	ID      string `json:"InstanceId"`
	Name    string `json:"InstanceName"`
	Status  string `json:"Status"`
	Zone    string `json:"ZoneId"`
	Region  string `json:"RegionId"`
	Type    string `json:"InstanceType"`
	Created string `json:"CreationTime"`
	Tags    struct {
		Tag []struct {
			Key   string `json:"TagKey"`
			Value string `json:"TagValue"`
		} `json:"Tag"`
	} `json:"Tags"`
	VPC struct {
		PrivateAddress addresses `json:"PrivateIpAddress"`
	} `json:"VpcAttributes"`
	PublicAddress addresses `json:"PublicIpAddress"`
	EIP           struct {
		Address string `json:"IpAddress"`
	} `json:"EipAddress"`
	NICs struct {
		NIC []struct {
			ID   string `json:"NetworkInterfaceId"`
			Type string `json:"Type"`
		} `json:"NetworkInterface"`
	} `json:"NetworkInterfaces"`
}

type addresses struct {
	List []string `json:"IpAddress"`
}

func machineOf(d *described) *machine {
	m := &machine{
		id: d.ID, name: d.Name, status: d.Status, zone: d.Zone, region: d.Region, kind: d.Type,
		created: timeOf(d.Created), tags: make(map[string]string, len(d.Tags.Tag)),
		private: firstAddr(d.VPC.PrivateAddress.List...), public: firstAddr(append(d.PublicAddress.List, d.EIP.Address)...),
	}
	for _, tag := range d.Tags.Tag {
		m.tags[tag.Key] = tag.Value
	}
	for _, nic := range d.NICs.NIC {
		if nic.Type == "Primary" {
			m.primaryNIC = nic.ID
		} else {
			m.second = nic.ID
		}
	}
	return m
}

func firstAddr(texts ...string) netip.Addr {
	for _, text := range texts {
		if addr, err := netip.ParseAddr(text); err == nil {
			return addr
		}
	}
	return netip.Addr{}
}

// timeOf reads the cloud's times, which may lack seconds.
func timeOf(text string) time.Time {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z"} {
		if t, err := time.Parse(layout, text); err == nil {
			return t.UTC()
		}
	}
	return time.Time{}
}

// ours reports whether an instance was made by this provider.
func (m *machine) ours() bool { return m.tags[provider.TagKey] != "" }

// address returns the address at which nodes reach the machine, if it has one yet.
func (p *Provider) address(m *machine) (netip.Addr, bool) {
	addr := m.private
	if p.cfg.UsePublicIP {
		addr = m.public
	}
	return addr, addr.IsValid()
}

// answer converts an instance to the contract's type.
func (p *Provider) answer(m *machine) *provider.Instance {
	i := &provider.Instance{
		ID: m.id, Name: m.name, Key: m.tags[provider.TagKey], Tags: shown(m.tags), Created: m.created, State: p.state(m),
		Zone: m.zone, Region: m.region, Type: m.kind,
	}
	if addr, ok := p.address(m); ok {
		i.IPs = []netip.Addr{addr}
	}
	return i
}

func (p *Provider) state(m *machine) provider.InstanceState {
	if p.memory.deleted.get(m.id) {
		return provider.StateDeleting
	}
	switch m.status {
	case statusPending, statusStarting:
		return provider.StatePending
	case statusRunning:
		return provider.StateRunning
	case statusStopping, statusStopped:
		return provider.StateStopped
	}
	return ""
}

var idSyntax = regexp.MustCompile(`^i-[0-9a-z]{4,60}$`)

// isID reports whether the cloud could have given an id.
func isID(id string) bool { return idSyntax.MatchString(id) }

// describeInstances returns all pages.
func (p *Provider) describeInstances(ctx context.Context, request *ecs.DescribeInstancesRequest) ([]*machine, error) {
	request.RegionId, request.MaxResults = new(p.cfg.Region), new(int32(100))
	var list []*machine
	for {
		var page struct {
			Instances struct {
				Instance []described `json:"Instance"`
			} `json:"Instances"`
			NextToken string `json:"NextToken"`
		}
		read := func(ctx context.Context, request *ecs.DescribeInstancesRequest, options *dara.RuntimeOptions) (*ecs.DescribeInstancesResponse, error) {
			return p.api.ecs().DescribeInstancesWithContext(rest.Into(ctx, &page), request, options)
		}
		if _, err := call(ctx, p.api, "ecs:DescribeInstances", read, request); err != nil {
			return nil, err
		}
		for i := range page.Instances.Instance {
			list = append(list, machineOf(&page.Instances.Instance[i]))
		}
		if page.NextToken == "" {
			return list, nil
		}
		request.NextToken = &page.NextToken
	}
}

// byID returns nil when the cloud shows no such instance.
func (p *Provider) byID(ctx context.Context, id string) (*machine, error) {
	ids, err := json.Marshal([]string{id})
	if err != nil {
		return nil, fmt.Errorf("encode %q: %w", id, err)
	}
	list, err := p.describeInstances(ctx, &ecs.DescribeInstancesRequest{InstanceIds: new(string(ids))})
	if err != nil {
		return nil, err
	}
	if i := slices.IndexFunc(list, func(m *machine) bool { return m.id == id }); i >= 0 {
		return list[i], nil
	}
	return nil, nil
}

func (p *Provider) byTags(ctx context.Context, match map[string]string) ([]*machine, error) {
	list, err := p.describeInstances(ctx, &ecs.DescribeInstancesRequest{
		Tag: tags.List(match, func(key, value string) *ecs.DescribeInstancesRequestTag {
			return &ecs.DescribeInstancesRequestTag{Key: new(key), Value: new(value)}
		}),
	})
	// The cloud takes an empty value for any value.
	return slices.DeleteFunc(list, func(m *machine) bool { return !provider.HasTags(m.tags, match) }), err
}

// owned returns an instance that exists and is ours.
func (p *Provider) owned(ctx context.Context, id string) (*machine, error) {
	m, err := p.existing(ctx, id)
	if err == nil && !m.ours() {
		err = fmt.Errorf("%w: no instance %s of ours in %s", provider.ErrNotFound, id, p.cfg.Region)
	}
	return m, err
}

// existing returns an instance that exists, whoever made it.
func (p *Provider) existing(ctx context.Context, id string) (*machine, error) {
	if !isID(id) {
		return nil, fmt.Errorf("%w: no instance %q: ids are like i-2ze1w9aj2aonwckv64cw", provider.ErrNotFound, id)
	}
	m, err := p.byID(ctx, id)
	if err == nil && m == nil {
		err = fmt.Errorf("%w: no instance %s in %s", provider.ErrNotFound, id, p.cfg.Region)
	}
	return m, err
}

// GetInstance implements provider.Getter.
func (p *Provider) GetInstance(ctx context.Context, instanceID string) (found *provider.Instance, err error) {
	defer explain(&err, "get instance")
	m, err := p.owned(ctx, instanceID)
	if err != nil {
		return nil, err
	}
	return p.answer(m), nil
}

// ListInstances implements provider.Lister. It also shows addresses that have
// outlived their instance, under its id.
func (p *Provider) ListInstances(ctx context.Context, match map[string]string) (list []provider.Instance, err error) {
	defer explain(&err, "list instances")
	if len(match) > maxTags {
		return nil, fmt.Errorf("%w: %d tags to match; the cloud allows %d", provider.ErrInvalidArgument, len(match), maxTags)
	}
	match = fitAll(match)
	machines, err := p.byTags(ctx, match)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, m := range machines {
		if m.ours() {
			there[m.id] = true
			list = append(list, *p.answer(m))
		}
	}
	left, err := p.addressesBy(ctx, match)
	if err != nil {
		return nil, err
	}
	for _, a := range left {
		if id := a.tags[tagInstance]; id != "" && !there[id] {
			there[id] = true
			list = append(list, provider.Instance{
				ID: id, Name: a.name, Key: a.tags[provider.TagKey], Tags: shown(a.tags), Created: a.created, Region: p.cfg.Region,
			})
		}
	}
	return list, nil
}
