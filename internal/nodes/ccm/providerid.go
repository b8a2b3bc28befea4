// SPDX-License-Identifier: Apache-2.0

package ccm

import (
	"regexp"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// Format is a way to write providerIDs. All of them are read.
type Format string

// Formats.
const (
	// FormatAuto is FormatOutrigger for instances that Cluster API's kind
	// OutriggerMachine made, whose providerID Cluster API compares with that of
	// the Node, and FormatProvider for others.
	FormatAuto Format = "auto"
	// FormatProvider is <provider>://<id>, and at Alibaba Cloud
	// alicloud://<region>.<id>.
	FormatProvider Format = "provider"
	// FormatOutrigger is outrigger://<provider>/<id>.
	FormatOutrigger Format = "outrigger"
)

// tagRole is on instances that the kind OutriggerMachine made.
const tagRole = "outrigger-role"

// reference is what a providerID says.
type reference struct {
	id string
	// region is empty where the format has none.
	region string
}

var (
	alibabaID = regexp.MustCompile(`^([a-z0-9]+(?:-[a-z0-9]+)+)\.(i-[A-Za-z0-9]+)$`)
	scheme    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
)

// parse reads a providerID; ok is false for those of other clouds.
func parse(name, providerID string) (ref reference, ok bool) {
	if id, ok := strings.CutPrefix(providerID, "outrigger://"+name+"/"); ok {
		return reference{id: id}, id != ""
	}
	if name == "alibabacloud" {
		if ref, ok := parseAlibaba(providerID); ok {
			return ref, true
		}
	}
	id, ok := strings.CutPrefix(providerID, name+"://")
	switch {
	case !ok || id == "":
		return reference{}, false
	case name == "docker" && strings.HasPrefix(id, "/") && strings.Trim(id, "/") == "":
		return reference{}, false
	case name == "docker" && strings.HasPrefix(id, "/") && !strings.HasPrefix(id, "//"):
		return reference{}, false // docker:////<name> is of the kind DockerMachine, and its id //<name>
	case name == "aws", name == "openstack": // aws:///<zone>/<id>, openstack://<region>/<id>
		id = id[strings.LastIndex(id, "/")+1:]
	}
	return reference{id: id}, id != ""
}

// parseAlibaba reads what Alibaba Cloud's own manager writes: <region>.<id>,
// today after alicloud://.
func parseAlibaba(providerID string) (reference, bool) {
	text, _ := strings.CutPrefix(providerID, "alicloud://")
	text, _ = strings.CutPrefix(text, "alibabacloud://")
	if parts := alibabaID.FindStringSubmatch(text); parts != nil && !scheme.MatchString(text) {
		return reference{id: parts[2], region: parts[1]}, true
	}
	return reference{}, false
}

// providerID writes the one of an instance.
func (o *Options) providerID(i *provider.Instance) string {
	_, machine := i.Tags[tagRole]
	switch {
	case o.Format == FormatOutrigger, o.Format == FormatAuto && machine:
		return "outrigger://" + o.Name + "/" + i.ID
	case o.Name == "alibabacloud" && i.Region != "":
		return "alicloud://" + i.Region + "." + i.ID
	}
	return o.Name + "://" + i.ID
}
