// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"net/http"
	"slices"
	"strings"
)

// call is a request that was understood.
type call struct {
	w     http.ResponseWriter
	r     *http.Request
	route *route
	// group and names are those in the path, in lower case.
	group string
	names []string
}

// name is the last one: that of the resource.
func (k *call) name() string { return k.names[len(k.names)-1] }

// route is one operation of the resource manager.
type route struct {
	verb string
	// path is the type of resource with its names as *, below the provider;
	// group says that it is in a resource group.
	path  string
	group bool
	// versions are the api-versions that know all that we use of it.
	versions []string
	// action is the permission it needs.
	action string
	// api is the name of Microsoft's generated fake that answers, if one does.
	api    string
	handle func(*Cloud, *call) *failure
}

var (
	// The older one is that of clients in use for long.
	computeVersions = []string{"2026-04-01", "2022-08-01"}
	diskVersions    = []string{"2026-03-02"}
	galleryVersions = []string{"2025-12-03"}
	networkVersions = []string{"2025-05-01"}
)

const (
	compute = "Microsoft.Compute/"
	network = "Microsoft.Network/"
)

// routes are all operations there are. The permissions are those of "Azure
// permissions for Compute" and "... for Networking" (learn.microsoft.com).
var routes = []*route{
	{"PUT", compute + "virtualMachines/*", true, computeVersions, compute + "virtualMachines/write", "", (*Cloud).putVM},
	{"DELETE", compute + "virtualMachines/*", true, computeVersions, compute + "virtualMachines/delete", "", (*Cloud).deleteVM},
	{"POST", compute + "virtualMachines/*/deallocate", true, computeVersions, compute + "virtualMachines/deallocate/action", "", (*Cloud).deallocate},
	{"POST", compute + "virtualMachines/*/attachDetachDataDisks", true, computeVersions[:1], compute + "virtualMachines/attachDetachDataDisks/action", "", (*Cloud).changeDisks},
	{"POST", compute + "virtualMachines/*/start", true, computeVersions, compute + "virtualMachines/start/action", "", (*Cloud).start},
	{"POST", compute + "virtualMachines/*/retrieveBootDiagnosticsData", true, computeVersions, compute + "virtualMachines/retrieveBootDiagnosticsData/action", "VirtualMachinesClient.RetrieveBootDiagnosticsData", (*Cloud).fakeCompute},
	{"GET", compute + "virtualMachines/*", true, computeVersions, compute + "virtualMachines/read", "VirtualMachinesClient.Get", (*Cloud).fakeCompute},
	{"GET", compute + "virtualMachines", true, computeVersions, compute + "virtualMachines/read", "", (*Cloud).listVMs},
	{"GET", compute + "disks", true, diskVersions, compute + "disks/read", "", (*Cloud).listDisks},
	{"DELETE", compute + "disks/*", true, diskVersions, compute + "disks/delete", "", (*Cloud).deleteDisk},
	{"PUT", compute + "disks/*", true, diskVersions, compute + "disks/write", "", (*Cloud).putDisk},
	{"GET", compute + "disks/*", true, diskVersions, compute + "disks/read", "", (*Cloud).getDisk},
	{"PATCH", compute + "disks/*", true, diskVersions, compute + "disks/write", "", (*Cloud).patchDisk},
	{"GET", compute + "snapshots", true, diskVersions, compute + "snapshots/read", "", (*Cloud).listSnapshots},
	{"GET", compute + "snapshots/*", true, diskVersions, compute + "snapshots/read", "", (*Cloud).getDisk},
	{"PUT", compute + "snapshots/*", true, diskVersions, compute + "snapshots/write", "", (*Cloud).putSnapshot},
	{"DELETE", compute + "snapshots/*", true, diskVersions, compute + "snapshots/delete", "", (*Cloud).deleteSnapshot},
	{"POST", compute + "disks/*/beginGetAccess", true, diskVersions, compute + "disks/beginGetAccess/action", "", (*Cloud).beginGetAccess},
	{"POST", compute + "disks/*/endGetAccess", true, diskVersions, compute + "disks/endGetAccess/action", "", (*Cloud).endGetAccess},
	{"PUT", compute + "galleries/*", true, galleryVersions, compute + "galleries/write", "", (*Cloud).putGallery},
	{"GET", compute + "galleries/*", true, galleryVersions, compute + "galleries/read", "", (*Cloud).getGallery},
	{"DELETE", compute + "galleries/*", true, galleryVersions, compute + "galleries/delete", "", (*Cloud).deleteGallery},
	{"PUT", compute + "galleries/*/images/*", true, galleryVersions, compute + "galleries/images/write", "", (*Cloud).putGallery},
	{"DELETE", compute + "galleries/*/images/*", true, galleryVersions, compute + "galleries/images/delete", "", (*Cloud).deleteGallery},
	{"PUT", compute + "galleries/*/images/*/versions/*", true, galleryVersions, compute + "galleries/images/versions/write", "", (*Cloud).putGallery},
	{"DELETE", compute + "galleries/*/images/*/versions/*", true, galleryVersions, compute + "galleries/images/versions/delete", "", (*Cloud).deleteGallery},
	{"GET", compute + "skus", false, []string{"2021-07-01"}, compute + "skus/read", "", (*Cloud).listSizes},
	{"GET", compute + "locations/*/usages", false, computeVersions, compute + "locations/usages/read", "", (*Cloud).listUsages},
	{"GET", compute + "locations/*/operations/*", false, nil, compute + "locations/operations/read", "", (*Cloud).pollOperation},
	{"GET", compute + "locations/*/DiskOperations/*", false, nil, compute + "locations/DiskOperations/read", "", (*Cloud).pollOperation},
	{"GET", network + "locations/*/operations/*", false, nil, network + "locations/operations/read", "", (*Cloud).pollOperation},
	{"GET", compute + "images/*", true, computeVersions, compute + "images/read", "ImagesClient.Get", (*Cloud).fakeCompute},
	{"GET", compute + "galleries/*/images/*", true, galleryVersions, compute + "galleries/images/read", "GalleryImagesClient.Get", (*Cloud).getGallery},
	{"GET", compute + "galleries/*/images/*/versions/*", true, galleryVersions, compute + "galleries/images/versions/read", "GalleryImageVersionsClient.Get", (*Cloud).getGallery},
	{"GET", compute + "locations/*/communityGalleries/*/images/*/versions/*", false, galleryVersions, compute + "locations/communityGalleries/images/versions/read", "CommunityGalleryImageVersionsClient.Get", (*Cloud).fakeCompute},
	{"GET", compute + "locations/*/sharedGalleries/*/images/*/versions/*", false, galleryVersions, compute + "locations/sharedGalleries/images/versions/read", "SharedGalleryImageVersionsClient.Get", (*Cloud).fakeCompute},
	{"GET", network + "networkInterfaces/*", true, networkVersions, network + "networkInterfaces/read", "InterfacesClient.Get", (*Cloud).fakeNetwork},
	{"GET", network + "networkInterfaces", true, networkVersions, network + "networkInterfaces/read", "", (*Cloud).listNICs},
	{"DELETE", network + "networkInterfaces/*", true, networkVersions, network + "networkInterfaces/delete", "", (*Cloud).deleteNIC},
	{"GET", network + "publicIPAddresses", true, networkVersions, network + "publicIPAddresses/read", "", (*Cloud).listIPs},
	{"DELETE", network + "publicIPAddresses/*", true, networkVersions, network + "publicIPAddresses/delete", "", (*Cloud).deleteIP},
	{"GET", network + "virtualNetworks/*/subnets/*", true, networkVersions, network + "virtualNetworks/subnets/read", "SubnetsClient.Get", (*Cloud).fakeNetwork},
	{"GET", network + "networkSecurityGroups/*", true, networkVersions, network + "networkSecurityGroups/read", "SecurityGroupsClient.Get", (*Cloud).fakeNetwork},
}

// permissionsRoute is at any scope, and everybody may ask what he may do.
var permissionsRoute = &route{verb: "GET", versions: []string{"2022-04-01"}, action: "Microsoft.Authorization/permissions/read", handle: (*Cloud).permissions}

const permissionsPath = "/providers/microsoft.authorization/permissions"

// find returns the operation that a request is. Azure ignores the case of paths.
func find(r *http.Request) (*route, string, []string) {
	path := strings.ToLower(r.URL.Path)
	if strings.HasSuffix(path, permissionsPath) && r.Method == http.MethodGet {
		return permissionsRoute, "", []string{strings.TrimSuffix(path, permissionsPath)}
	}
	rest, ok := strings.CutPrefix(path, "/subscriptions/")
	subscription, rest, _ := strings.Cut(rest, "/")
	if !ok || subscription == "" {
		return nil, "", nil
	}
	group := ""
	if inGroup, ok := strings.CutPrefix(rest, "resourcegroups/"); ok {
		group, rest, _ = strings.Cut(inGroup, "/")
	}
	rest, ok = strings.CutPrefix(rest, "providers/")
	if !ok {
		return nil, "", nil
	}
	for _, route := range routes {
		if route.verb != r.Method || route.group != (group != "") {
			continue
		}
		if names, ok := match(strings.ToLower(route.path), rest); ok {
			return route, group, append([]string{subscription}, names...)
		}
	}
	return nil, "", nil
}

func match(pattern, path string) ([]string, bool) {
	want, have := strings.Split(pattern, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return nil, false
	}
	var names []string
	for i := range want {
		switch {
		case want[i] == "*" && have[i] != "":
			names = append(names, have[i])
		case want[i] != have[i]:
			return nil, false
		}
	}
	return names, true
}

// action names a request for the script and the log.
func action(r *http.Request) string {
	if strings.HasSuffix(r.URL.Path, "/oauth2/v2.0/token") {
		return "token"
	}
	if strings.HasPrefix(r.URL.Path, uploads) {
		return "blob:PutPage"
	}
	if route, _, _ := find(r); route != nil {
		return route.action
	}
	return ""
}

func (c *Cloud) serve(w http.ResponseWriter, r *http.Request) {
	if c.serveIdentity(w, r) || c.serveConsole(w, r) || c.servePages(w, r) {
		return
	}
	if f := c.resourceManager(w, r); f != nil {
		f.write(w)
	}
}

func (c *Cloud) resourceManager(w http.ResponseWriter, r *http.Request) *failure {
	if f := c.authorized(r); f != nil {
		return f
	}
	route, group, names := find(r)
	if route == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.violate("%s %s is not an operation", r.Method, r.URL.Path)
		return fail(http.StatusNotFound, "InvalidResourceType", "The resource type could not be found for %s %s.", r.Method, r.URL.Path)
	}
	k := &call{w: w, r: r, route: route, group: group, names: names}
	if f := c.admit(k); f != nil {
		return f
	}
	return route.handle(c, k)
}

// admit checks what is the same for every operation.
func (c *Cloud) admit(k *call) *failure {
	version := k.r.URL.Query().Get("api-version")
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case version == "":
		c.violate("%s %s has no api-version", k.r.Method, k.r.URL.Path)
		return fail(http.StatusBadRequest, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required for all requests.")
	case k.route.versions != nil && !slices.Contains(k.route.versions, version):
		c.violate("%s %s has api-version %s", k.r.Method, k.r.URL.Path, version)
		return fail(http.StatusBadRequest, "NoRegisteredProviderFound", "No registered resource provider found for API version '%s'.", version)
	case k.route == permissionsRoute:
		return c.checkScope(k.names[0])
	case k.names[0] != SubscriptionID:
		return fail(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", k.names[0])
	case k.group != "" && !slices.Contains(groups, k.group):
		return fail(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", k.group)
	case !c.may(k.route.action):
		return forbidden(k.route.action, k.r.URL.Path)
	}
	return nil
}

func forbidden(action, at string) *failure {
	return fail(http.StatusForbidden, "AuthorizationFailed", "The client '%s' does not have authorization to perform action '%s' over scope '%s' or the scope is invalid.", ClientID, action, at)
}

// groups are the resource groups there are.
var groups = []string{ResourceGroup, "network_group", "images_group", "data_group"}

func (c *Cloud) checkScope(scope string) *failure {
	parts := strings.Split(scope, "/")
	if len(parts) < 5 || parts[1] != "subscriptions" || parts[3] != "resourcegroups" {
		return fail(http.StatusNotFound, "NotFound", "The scope %s does not exist.", scope)
	}
	if parts[2] != SubscriptionID {
		return fail(http.StatusNotFound, "SubscriptionNotFound", "The subscription '%s' could not be found.", parts[2])
	}
	if !slices.Contains(groups, parts[4]) {
		return fail(http.StatusNotFound, "ResourceGroupNotFound", "Resource group '%s' could not be found.", parts[4])
	}
	return nil
}

// may reports whether the application has a permission. The caller holds mu.
func (c *Cloud) may(action string) bool { return !slices.Contains(c.denied, action) }

func (c *Cloud) permissions(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	reply(k.w, http.StatusOK, map[string]any{"value": []any{
		map[string]any{"actions": []string{"Microsoft.Authorization/*/read"}, "notActions": []string{}},
		map[string]any{"actions": []string{"Microsoft.Compute/*", "Microsoft.Network/*"}, "notActions": append([]string{}, c.denied...)},
	}})
	return nil
}
