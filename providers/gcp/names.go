// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"fmt"
	"strings"

	"github.com/outrigger/outrigger/provider/kit/names"
)

// location is where an instance is, which is its id.
type location struct{ zone, name string }

func (p location) String() string { return p.zone + "/" + p.name }

// parseID returns false for what no instance of ours can have as its id.
func parseID(id string) (location, bool) {
	zone, name, ok := strings.Cut(id, "/")
	return location{zone, name}, ok && zoneName.MatchString(zone) && names.IsHashed(name)
}

// base returns the last part of a URL or path of a resource.
func base(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }

// Resources may be named in three ways, as in gcloud: in full, by a path from
// the project on, by name. What goes to the cloud is the path.
func absolute(project, value, collection string) (string, error) {
	path := value
	if at := strings.Index(path, "/projects/"); strings.HasPrefix(path, "https://") && at >= 0 {
		path = path[at+1:]
	}
	switch {
	case !strings.Contains(path, "/"):
		path = "projects/" + project + "/" + collection + "/" + path
	case !strings.HasPrefix(path, "projects/"):
		path = "projects/" + project + "/" + path
	}
	owner, name, ok := strings.Cut(strings.TrimPrefix(path, "projects/"), "/"+collection+"/")
	name = strings.TrimPrefix(name, "family/")
	if !ok || !projectName.MatchString(owner) || !resourceName.MatchString(name) {
		return "", fmt.Errorf("%q is neither a name nor projects/PROJECT/%s/NAME", value, collection)
	}
	return path, nil
}

func imagePath(project, value string) (string, error) {
	return absolute(project, value, "global/images")
}

func networkPath(project, value string) (string, error) {
	return absolute(project, value, "global/networks")
}

// subnetworkOf returns the function that makes the path of a subnetwork; a
// name alone is taken to be in the region.
func subnetworkOf(region string) func(project, value string) (string, error) {
	return func(project, value string) (string, error) {
		if _, rest, ok := strings.Cut(value, "regions/"); ok {
			region, _, _ = strings.Cut(rest, "/")
		}
		return absolute(project, value, "regions/"+region+"/subnetworks")
	}
}
