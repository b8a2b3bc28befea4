// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"net/http"
	"reflect"
	"regexp"

	"github.com/IBM/vpc-go-sdk/vpcv1"
)

// operation is a call of the API, with the SDK's type of its options.
type operation struct {
	name, verb string
	path       *regexp.Regexp
	status     int
	options    reflect.Type
	do         func(*Sim, *call) (any, error)
}

var operations []*operation

func add[Options any](name, verb, path string, status int, do func(*Sim, *call) (any, error)) {
	operations = append(operations, &operation{name, verb, regexp.MustCompile("^/v1" + path + "$"), status, reflect.TypeFor[Options](), do})
}

const one = "/([-0-9a-z_]{1,64})"

func init() {
	add[vpcv1.CreateInstanceOptions]("CreateInstance", http.MethodPost, "/instances", http.StatusCreated, (*Sim).createInstance)
	add[vpcv1.ListInstancesOptions]("ListInstances", http.MethodGet, "/instances", http.StatusOK, (*Sim).listInstances)
	add[vpcv1.GetInstanceOptions]("GetInstance", http.MethodGet, "/instances"+one, http.StatusOK, (*Sim).getInstance)
	add[vpcv1.DeleteInstanceOptions]("DeleteInstance", http.MethodDelete, "/instances"+one, http.StatusNoContent, (*Sim).deleteInstance)
	add[vpcv1.CreateInstanceActionOptions]("CreateInstanceAction", http.MethodPost, "/instances"+one+"/actions", http.StatusCreated, (*Sim).actInstance)
	add[vpcv1.ListVolumesOptions]("ListVolumes", http.MethodGet, "/volumes", http.StatusOK, (*Sim).listVolumes)
	add[vpcv1.GetVolumeOptions]("GetVolume", http.MethodGet, "/volumes"+one, http.StatusOK, (*Sim).getVolume)
	add[vpcv1.DeleteVolumeOptions]("DeleteVolume", http.MethodDelete, "/volumes"+one, http.StatusNoContent, (*Sim).deleteVolume)
	add[vpcv1.CreateVolumeOptions]("CreateVolume", http.MethodPost, "/volumes", http.StatusCreated, (*Sim).createVolume)
	add[vpcv1.UpdateVolumeOptions]("UpdateVolume", http.MethodPatch, "/volumes"+one, http.StatusOK, (*Sim).updateVolume)
	add[vpcv1.GetVolumeProfileOptions]("GetVolumeProfile", http.MethodGet, "/volume/profiles"+one, http.StatusOK, (*Sim).getVolumeProfile)
	const attachments = "/instances" + one + "/volume_attachments"
	add[vpcv1.CreateInstanceVolumeAttachmentOptions]("CreateInstanceVolumeAttachment", http.MethodPost, attachments, http.StatusCreated, (*Sim).attach)
	add[vpcv1.GetInstanceVolumeAttachmentOptions]("GetInstanceVolumeAttachment", http.MethodGet, attachments+one, http.StatusOK, (*Sim).getAttachment)
	add[vpcv1.DeleteInstanceVolumeAttachmentOptions]("DeleteInstanceVolumeAttachment", http.MethodDelete, attachments+one, http.StatusNoContent, (*Sim).detach)
	add[vpcv1.CreateSnapshotOptions]("CreateSnapshot", http.MethodPost, "/snapshots", http.StatusCreated, (*Sim).createSnapshot)
	add[vpcv1.ListSnapshotsOptions]("ListSnapshots", http.MethodGet, "/snapshots", http.StatusOK, (*Sim).listSnapshots)
	add[vpcv1.GetSnapshotOptions]("GetSnapshot", http.MethodGet, "/snapshots"+one, http.StatusOK, (*Sim).getSnapshot)
	add[vpcv1.DeleteSnapshotOptions]("DeleteSnapshot", http.MethodDelete, "/snapshots"+one, http.StatusAccepted, (*Sim).deleteSnapshot)
	add[vpcv1.ListInstanceProfilesOptions]("ListInstanceProfiles", http.MethodGet, "/instance/profiles", http.StatusOK, (*Sim).listProfiles)
	add[vpcv1.GetImageOptions]("GetImage", http.MethodGet, "/images"+one, http.StatusOK, (*Sim).getImage)
	add[vpcv1.CreateImageOptions]("CreateImage", http.MethodPost, "/images", http.StatusCreated, (*Sim).createImage)
	add[vpcv1.DeleteImageOptions]("DeleteImage", http.MethodDelete, "/images"+one, http.StatusAccepted, (*Sim).deleteImage)
	add[vpcv1.GetVPCOptions]("GetVPC", http.MethodGet, "/vpcs"+one, http.StatusOK, (*Sim).getVPC)
	add[vpcv1.GetSubnetOptions]("GetSubnet", http.MethodGet, "/subnets"+one, http.StatusOK, (*Sim).getSubnet)
	add[vpcv1.GetKeyOptions]("GetKey", http.MethodGet, "/keys"+one, http.StatusOK, (*Sim).getKey)
	add[vpcv1.GetSecurityGroupOptions]("GetSecurityGroup", http.MethodGet, "/security_groups"+one, http.StatusOK, (*Sim).getGroup)
	add[vpcv1.ListSecurityGroupsOptions]("ListSecurityGroups", http.MethodGet, "/security_groups", http.StatusOK, (*Sim).listGroups)
}

// find returns the operation that a request is, and the ids in its path.
func find(verb, path string) (*operation, []string) {
	for _, o := range operations {
		if o.verb != verb {
			continue
		}
		if found := o.path.FindStringSubmatch(path); found != nil {
			return o, found[1:]
		}
	}
	return nil, nil
}
