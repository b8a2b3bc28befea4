// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"

	"github.com/IBM/go-sdk-core/v5/core"
	"github.com/IBM/vpc-go-sdk/vpcv1"
)

// readPrototype reads the body of CreateInstance with the SDK's own types. A
// field that the SDK does not know is lost on the way, which shows.
func readPrototype(r *http.Request) (*vpcv1.InstancePrototypeInstanceByImage, error) {
	text, err := io.ReadAll(io.LimitReader(r.Body, 4<<20))
	if err != nil {
		return nil, err
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	var proto *vpcv1.InstancePrototypeInstanceByImage
	if err := vpcv1.UnmarshalInstancePrototypeInstanceByImage(fields, &proto); err != nil {
		return nil, err
	}
	if err := core.ValidateStruct(proto, "prototype"); err != nil {
		return nil, err
	}
	back, err := json.Marshal(proto)
	if err != nil {
		return nil, err
	}
	var sent, known any
	if err := errors.Join(json.Unmarshal(text, &sent), json.Unmarshal(back, &known)); err != nil {
		return nil, err
	}
	return proto, lost("instance", sent, known)
}

// lost is an error where a has something that b has not.
func lost(path string, a, b any) error {
	switch x := a.(type) {
	case map[string]any:
		y, _ := b.(map[string]any)
		for name, value := range x {
			inner, ok := y[name]
			if !ok {
				return fmt.Errorf("the field %s.%s is not known", path, name)
			}
			if err := lost(path+"."+name, value, inner); err != nil {
				return err
			}
		}
	case []any:
		y, _ := b.([]any)
		for i, value := range x {
			if i >= len(y) {
				return fmt.Errorf("%s[%d] is lost", path, i)
			}
			if err := lost(fmt.Sprintf("%s[%d]", path, i), value, y[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// strict reads a small body that may hold nothing else.
func strict(r *http.Request, into any) error {
	decoder := json.NewDecoder(io.LimitReader(r.Body, 64<<10))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// neededBy are the actions that a creation needs (page "Required permissions
// for VPC resources", Instances).
func neededBy(proto *vpcv1.InstancePrototypeInstanceByImage) []string {
	list := []string{
		"is.instance.instance.create", "is.volume.volume.create", "is.image.image.operate", "is.vpc.vpc.operate", "is.subnet.subnet.operate",
	}
	if len(proto.Keys) > 0 {
		list = append(list, "is.key.key.operate")
	}
	if proto.PlacementTarget != nil {
		list = append(list, "is.dedicated-host.dedicated-host.operate")
	}
	if nic := proto.PrimaryNetworkInterface; nic != nil && len(nic.SecurityGroups) > 0 {
		list = append(list, "is.security-group.security-group.operate")
	}
	return list
}

// Rules of the reference for names, user tags and user-data.
var (
	instanceName = regexp.MustCompile(`^([a-z]|[a-z][-a-z0-9]*[a-z0-9]|[0-9][-a-z0-9]*([a-z]|[-a-z][-a-z0-9]*[a-z0-9]))$`)
	userTag      = regexp.MustCompile(`^[A-Za-z0-9:_ .-]{1,128}$`)
)

const maxUserData = 64 << 10

// plan is what a prototype comes to.
type plan struct {
	name, zone, profile, subnet string
	subnets                     []string
}

// check compares a prototype with what exists.
func (s *Sim) check(proto *vpcv1.InstancePrototypeInstanceByImage) (plan, error) {
	p := plan{name: text(proto, "name"), zone: text(proto, "zone", "name"), profile: text(proto, "profile", "name"), subnet: text(proto, "primary_network_interface", "subnet", "id")}
	kind := profileNamed(p.profile)
	switch {
	case !instanceName.MatchString(p.name) || len(p.name) > 63:
		return p, refuse(http.StatusBadRequest, "bad_field", "name %q", p.name)
	case !slices.Contains(Zones, p.zone):
		return p, notFound("Zone", p.zone)
	case kind == nil || !kind.in(p.zone):
		return p, notFound("Instance profile", p.profile)
	case text(proto, "vpc", "id") != VPC:
		return p, notFound("VPC", text(proto, "vpc", "id"))
	case len(text(proto, "user_data")) > maxUserData:
		return p, refuse(http.StatusBadRequest, "user_data_too_large", "user data is too large")
	case text(proto, "resource_group", "id") != "" && text(proto, "resource_group", "id") != ResourceGroup:
		return p, notFound("Resource group", text(proto, "resource_group", "id"))
	}
	for _, check := range []func() error{
		func() error { return s.checkImage(proto, kind) },
		func() error { return checkTags(proto) },
		func() error { return checkRest(proto, kind, p.zone) },
	} {
		if err := check(); err != nil {
			return p, err
		}
	}
	err := p.checkSubnets(proto)
	return p, err
}

func (p *plan) checkSubnets(proto *vpcv1.InstancePrototypeInstanceByImage) error {
	at := slices.Index(Zones, p.zone)
	p.subnets = []string{p.subnet}
	for _, nic := range proto.NetworkInterfaces {
		p.subnets = append(p.subnets, text(nic, "subnet", "id"))
	}
	for _, id := range p.subnets {
		if !slices.Contains(Subnets, id) && !slices.Contains(Tunnels, id) {
			return notFound("Subnet", id)
		}
		if id != Subnets[at] && id != Tunnels[at] {
			return refuse(http.StatusBadRequest, "subnet_zone_mismatch", "subnet %s is in another zone than %s", id, p.zone)
		}
	}
	return nil
}

func (s *Sim) checkImage(proto *vpcv1.InstancePrototypeInstanceByImage, kind *profile) error {
	id := text(proto, "image", "id")
	arch, ok := s.archOf(id)
	if !ok {
		return notFound("Image", id)
	}
	if arch != kind.arch {
		return refuse(http.StatusBadRequest, "image_profile_mismatch", "image %s is for %s", id, arch)
	}
	return nil
}

func checkTags(proto *vpcv1.InstancePrototypeInstanceByImage) error {
	if proto.BootVolumeAttachment == nil {
		return nil
	}
	for _, tag := range proto.BootVolumeAttachment.Volume.UserTags {
		if !userTag.MatchString(tag) {
			return refuse(http.StatusBadRequest, "bad_field", "user tag %q", tag)
		}
	}
	return nil
}

// modes are the constants of the SDK.
var modes = []string{
	"", vpcv1.InstancePrototypeInstanceByImageConfidentialComputeModeDisabledConst,
	vpcv1.InstancePrototypeInstanceByImageConfidentialComputeModeSgxConst, vpcv1.InstancePrototypeInstanceByImageConfidentialComputeModeTdxConst,
}

func checkRest(proto *vpcv1.InstancePrototypeInstanceByImage, kind *profile, zone string) error {
	mode := text(proto, "confidential_compute_mode")
	switch {
	case !slices.Contains(modes, mode):
		return refuse(http.StatusBadRequest, "bad_field", "confidential_compute_mode %q", mode)
	case mode == "tdx" && !kind.tdx:
		return refuse(http.StatusBadRequest, "bad_field", "profile %s has no confidential compute mode tdx", kind.name)
	}
	for i := range proto.Keys {
		if id := text(proto.Keys[i], "id"); id != Key {
			return notFound("Key", id)
		}
	}
	for _, group := range proto.PrimaryNetworkInterface.SecurityGroups {
		if id := text(group, "id"); !groupExists(id) {
			return notFound("Security group", id)
		}
	}
	if host := text(proto, "placement_target", "id"); host != "" && host != Hosts[slices.Index(Zones, zone)] {
		return notFound("Dedicated host", host)
	}
	return nil
}

// text reads a field by its name in JSON, since the SDK has many types for one
// thing.
func text(of any, path ...string) string {
	var value any
	if err := json.Unmarshal([]byte(toJSON(of)), &value); err != nil {
		panic(err)
	}
	for _, name := range path {
		inner, _ := value.(map[string]any)
		value = inner[name]
	}
	found, _ := value.(string)
	return found
}
