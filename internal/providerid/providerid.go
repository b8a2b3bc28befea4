// SPDX-License-Identifier: Apache-2.0

// Package providerid reads the providerIDs of Nodes, in all forms that they have in this project
// and in the cloud controller managers of the clouds.
package providerid

import (
	"regexp"
	"strings"
)

// Reference is what a providerID says.
type Reference struct {
	ID string
	// Region is empty where the format has none.
	Region string
}

var (
	alibabaID = regexp.MustCompile(`^([a-z0-9]+(?:-[a-z0-9]+)+)\.(i-[A-Za-z0-9]+)$`)
	scheme    = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*://`)
)

// Parse reads a providerID of the provider called name; ok is false for those of other clouds.
func Parse(name, providerID string) (ref Reference, ok bool) {
	if id, ok := strings.CutPrefix(providerID, "outrigger://"+name+"/"); ok {
		return Reference{ID: id}, id != ""
	}
	if name == "alibabacloud" {
		if ref, ok := parseAlibaba(providerID); ok {
			return ref, true
		}
	}
	id, ok := strings.CutPrefix(providerID, name+"://")
	switch {
	case !ok || id == "":
		return Reference{}, false
	case name == "docker" && strings.HasPrefix(id, "/") && strings.Trim(id, "/") == "":
		return Reference{}, false
	case name == "docker" && strings.HasPrefix(id, "/") && !strings.HasPrefix(id, "//"):
		return Reference{}, false // docker:////<name> is of the kind DockerMachine, and its id //<name>
	case name == "aws", name == "openstack": // aws:///<zone>/<id>, openstack://<region>/<id>
		id = id[strings.LastIndex(id, "/")+1:]
	}
	return Reference{ID: id}, id != ""
}

// parseAlibaba reads what Alibaba Cloud's own manager writes: <region>.<id>,
// today after alicloud://.
func parseAlibaba(providerID string) (Reference, bool) {
	text, _ := strings.CutPrefix(providerID, "alicloud://")
	text, _ = strings.CutPrefix(text, "alibabacloud://")
	if parts := alibabaID.FindStringSubmatch(text); parts != nil && !scheme.MatchString(text) {
		return Reference{ID: parts[2], Region: parts[1]}, true
	}
	return Reference{}, false
}
