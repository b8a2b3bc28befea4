// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/outrigger/outrigger/provider"
)

// volumeKind is a type of resource. Names are a prefix and a hash of cluster and key, so that a key has one.
type volumeKind struct {
	resource, prefix string
	ids              *regexp.Regexp
}

var (
	kindDisk     = volumeKind{"Microsoft.Compute/disks", "outrigger-disk-", diskIDs}
	kindSnapshot = volumeKind{"Microsoft.Compute/snapshots", "outrigger-snapshot-", resourceID("Microsoft.Compute/snapshots")}
)

func (k volumeKind) name(cluster, key string) string { return k.prefix + hashOf(cluster, key) }

// volume is a disk or a snapshot, which have the same members as far as we use them (Disks and Snapshots,
// api-version diskAPIVersion).
type volume struct {
	ID         string            `json:"id,omitempty"`
	Name       string            `json:"name,omitempty"`
	Location   string            `json:"location,omitempty"`
	Tags       map[string]string `json:"tags,omitempty"`
	SKU        *sku              `json:"sku,omitempty"`
	Zones      []string          `json:"zones,omitempty"`
	ManagedBy  string            `json:"managedBy,omitempty"`
	Properties volumeProperties  `json:"properties"`
}

type volumeProperties struct {
	CreationData  *creationData `json:"creationData,omitempty"`
	DiskSizeGB    int64         `json:"diskSizeGB,omitempty"`
	DiskSizeBytes int64         `json:"diskSizeBytes,omitempty"`
	Encryption    *encryption   `json:"encryption,omitempty"`
	// Incremental and CompletionPercent are of snapshots, the latter of those that are copied in the background.
	Incremental       bool       `json:"incremental,omitempty"`
	CompletionPercent *float64   `json:"completionPercent,omitempty"`
	MaxShares         int        `json:"maxShares,omitempty"`
	ProvisioningState string     `json:"provisioningState,omitempty"`
	TimeCreated       *time.Time `json:"timeCreated,omitempty"`
}

type creationData struct {
	CreateOption     string `json:"createOption"`
	SourceResourceID string `json:"sourceResourceId,omitempty"`
}

type sku struct {
	Name string `json:"name"`
}

type encryption struct {
	Type string `json:"type"`
	Set  string `json:"diskEncryptionSetId,omitempty"`
}

// bytes returns the size. That of a disk which was uploaded is not of whole GiB.
func (v *volume) bytes() int64 {
	if v.Properties.DiskSizeBytes != 0 {
		return v.Properties.DiskSizeBytes
	}
	return v.Properties.DiskSizeGB << 30
}

func (v *volume) zone() string {
	if len(v.Zones) == 0 {
		return ""
	}
	return v.Zones[0]
}

// volumeID returns a resource id.
func (p *Provider) volumeID(k volumeKind, group, name string) string {
	return fmt.Sprintf("/subscriptions/%s/resourceGroups/%s/providers/%s/%s", p.cfg.SubscriptionID, group, k.resource, name)
}

// parseVolume returns a resource id as we write it: Azure keeps no case.
func (p *Provider) parseVolume(k volumeKind, id string) (string, error) {
	if !k.ids.MatchString(id) {
		return "", fmt.Errorf("%w: %.300q is not an id of %s", provider.ErrNotFound, id, k.resource)
	}
	parts := strings.Split(id, "/")
	group, name := parts[4], parts[8]
	if !strings.EqualFold(parts[2], p.cfg.SubscriptionID) {
		return "", fmt.Errorf("%w: %s is in subscription %s, and -subscriptionid (AZURE_SUBSCRIPTION_ID) is %s",
			provider.ErrInvalidArgument, name, parts[2], p.cfg.SubscriptionID)
	}
	if strings.EqualFold(group, p.cfg.ResourceGroup) {
		group = p.cfg.ResourceGroup
	}
	if lower := strings.ToLower(name); strings.HasPrefix(lower, k.prefix) {
		name = lower
	}
	return p.volumeID(k, group, name), nil
}

// idOf returns the id of a resource that Azure names; empty if it is not of the kind.
func (p *Provider) idOf(k volumeKind, resource string) string {
	id, err := p.parseVolume(k, resource)
	if err != nil {
		return ""
	}
	return id
}

// keyOf returns the key of what was made here; empty for others'.
func (p *Provider) keyOf(k volumeKind, v *volume) string {
	key := v.Tags[provider.TagKey]
	if key != "" && strings.EqualFold(v.ID, p.volumeID(k, p.cfg.ResourceGroup, k.name(v.Tags[provider.TagCluster], key))) {
		return key
	}
	return ""
}

// disk converts a disk to the contract's type.
func (p *Provider) disk(v *volume) *provider.Disk {
	d := &provider.Disk{
		ID: p.idOf(kindDisk, v.ID), Key: p.keyOf(kindDisk, v), Bytes: v.bytes(), Zone: v.zone(), Tags: v.Tags,
		InstanceID: p.instanceOf(v.ManagedBy), Created: deref(v.Properties.TimeCreated),
	}
	if v.SKU != nil {
		d.Type = v.SKU.Name
	}
	if c := v.Properties.CreationData; c != nil {
		d.FromDisk, d.FromSnapshot = p.idOf(kindDisk, c.SourceResourceID), p.idOf(kindSnapshot, c.SourceResourceID)
	}
	return d
}

func (p *Provider) snapshot(v *volume) *provider.Snapshot {
	s := &provider.Snapshot{
		ID: p.idOf(kindSnapshot, v.ID), Key: p.keyOf(kindSnapshot, v), Bytes: v.bytes(), Tags: v.Tags, Created: deref(v.Properties.TimeCreated),
		Ready: v.Properties.ProvisioningState == provisioningSucceeded && (v.Properties.CompletionPercent == nil || *v.Properties.CompletionPercent >= 100),
	}
	if c := v.Properties.CreationData; c != nil {
		s.DiskID = p.idOf(kindDisk, c.SourceResourceID)
	}
	return s
}

// instanceOf returns the id of the instance that a VM is, or the VM's own for others' VMs. Azure writes resource groups
// in capitals here.
func (p *Provider) instanceOf(vm string) string {
	if r, ok := p.parseID(strings.ToLower(vm)); ok && strings.EqualFold(r.group, p.cfg.ResourceGroup) {
		return p.id(p.ref(r.name))
	}
	return vm
}

// getVolume returns ErrNotFound only if Azure has said that there is none.
func (p *Provider) getVolume(ctx context.Context, id string) (*volume, error) {
	v := &volume{}
	err := p.cloud.get(ctx, p.cloud.url(id, diskAPIVersion), v)
	if absent(err) {
		return nil, fmt.Errorf("%w: %s", provider.ErrNotFound, id)
	}
	return v, err
}

// change sends what changes a disk or a snapshot, and waits until Azure has done it.
func (p *Provider) change(ctx context.Context, method, id string, body any) error {
	request, err := runtime.NewRequest(ctx, method, p.cloud.url(id, diskAPIVersion))
	if err == nil && body != nil {
		err = runtime.MarshalAsJSON(request, body)
	}
	if err != nil {
		return err
	}
	response, err := p.cloud.arm.Pipeline().Do(request)
	if err != nil {
		return err
	}
	if !runtime.HasStatusCode(response, http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent) {
		return runtime.NewResponseError(response)
	}
	poller, err := runtime.NewPoller[struct{}](response, p.cloud.arm.Pipeline(), nil)
	_, err = wait(ctx, p.tempo.ask, nil, poller, err)
	return err
}
