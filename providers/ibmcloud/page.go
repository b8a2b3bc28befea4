// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/IBM/vpc-go-sdk/vpcv1"
	"github.com/go-openapi/strfmt"
)

// listPage is a page of a list of volumes or instances, with the members that are wanted: the SDK decodes all that there are
// into maps, and those into its models.
type listPage struct {
	nextPage
	Volumes   []listedVolume   `json:"volumes"`
	Instances []listedInstance `json:"instances"`
}

// nextPage is what every page has.
type nextPage struct {
	Next struct {
		Href string `json:"href"`
	} `json:"next"`
}

// GetNextStart returns nil for the last page.
func (p *nextPage) GetNextStart() (*string, error) {
	if p.Next.Href == "" {
		return nil, nil
	}
	return core.GetQueryParam(&p.Next.Href, "start")
}

type reference struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type listedVolume struct {
	reference
	CreatedAt   *strfmt.DateTime `json:"created_at"`
	UserTags    []string         `json:"user_tags"`
	Attachments []struct {
		Instance *reference `json:"instance"`
	} `json:"volume_attachments"`
}

// model returns the SDK's model of it.
func (v *listedVolume) model() *vpcv1.Volume {
	m := &vpcv1.Volume{ID: &v.ID, Name: &v.Name, CreatedAt: v.CreatedAt, UserTags: v.UserTags}
	for _, attachment := range v.Attachments {
		if attachment.Instance != nil {
			m.VolumeAttachments = append(m.VolumeAttachments, vpcv1.VolumeAttachmentReferenceVolumeContext{
				Instance: &vpcv1.InstanceReference{ID: &attachment.Instance.ID, Name: &attachment.Instance.Name},
			})
		}
	}
	return m
}

type listedNIC struct {
	ID        string `json:"id"`
	PrimaryIP *struct {
		Address string `json:"address"`
	} `json:"primary_ip"`
}

func (n *listedNIC) model() vpcv1.NetworkInterfaceInstanceContextReference {
	m := vpcv1.NetworkInterfaceInstanceContextReference{ID: &n.ID}
	if n.PrimaryIP != nil {
		m.PrimaryIP = &vpcv1.ReservedIPReference{Address: &n.PrimaryIP.Address}
	}
	return m
}

type listedInstance struct {
	reference
	Status     string           `json:"status"`
	CreatedAt  *strfmt.DateTime `json:"created_at"`
	Zone       reference        `json:"zone"`
	Profile    reference        `json:"profile"`
	PrimaryNIC *listedNIC       `json:"primary_network_interface"`
	NICs       []listedNIC      `json:"network_interfaces"`
}

// model returns the SDK's model of it.
func (i *listedInstance) model() *vpcv1.Instance {
	m := &vpcv1.Instance{
		ID: &i.ID, Name: &i.Name, Status: &i.Status, CreatedAt: i.CreatedAt,
		Zone: &vpcv1.ZoneReference{Name: &i.Zone.Name}, Profile: &vpcv1.InstanceProfileReference{Name: &i.Profile.Name},
	}
	if i.PrimaryNIC != nil {
		primary := i.PrimaryNIC.model()
		m.PrimaryNetworkInterface = &primary
	}
	for n := range i.NICs {
		m.NetworkInterfaces = append(m.NetworkInterfaces, i.NICs[n].model())
	}
	return m
}
