// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// KindGallery is that of galleries, their images and versions.
const KindGallery = "gallery"

// artifact is a gallery, an image of one, or a version of an image.
type artifact struct {
	id       string
	body     map[string]any
	state    string
	deleting bool
	content  map[int64][]byte
}

// upload is how a disk is written.
type upload struct {
	size    int64
	open    bool
	closed  bool
	ranges  map[int64][]byte
	content map[string]any
}

// uploads is where disks are written.
const uploads = "/upload/"

// readBody holds a body against a type of the SDK's models. The caller holds mu.
func (c *Cloud) readBody(k *call, kind string) (map[string]any, *failure) {
	var tree map[string]any
	if err := json.NewDecoder(io.LimitReader(k.r.Body, 1<<20)).Decode(&tree); err != nil {
		return nil, fail(http.StatusBadRequest, "InvalidRequestContent", "%v", err)
	}
	if wrong := c.schema.check(kind, any(tree), ""); len(wrong) > 0 {
		c.violate("%s %s: %s", k.r.Method, k.r.URL.Path, strings.Join(wrong, "; "))
		return nil, fail(http.StatusBadRequest, "InvalidRequestContent", "%s", strings.Join(wrong, "; "))
	}
	if _, located := tree["location"]; located && tree["location"] != Region {
		return nil, fail(http.StatusBadRequest, "LocationNotAvailableForResourceType", "The provided location '%v' is not available.", tree["location"])
	}
	return tree, nil
}

// at returns a member of a member.
func at(tree map[string]any, path ...string) any {
	var now any = tree
	for _, name := range path {
		members, _ := now.(map[string]any)
		now = members[name]
	}
	return now
}

func tagsIn(tree map[string]any) map[string]string {
	read := map[string]string{}
	members, _ := tree["tags"].(map[string]any)
	for name, value := range members {
		read[name], _ = value.(string)
	}
	return read
}

// minUpload is "creationData.uploadSizeBytes" of Disks.
const minUpload = 20<<20 + 512

func (c *Cloud) putDisk(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	tree, f := c.readBody(k, "Disk")
	if f != nil {
		return f
	}
	if at(tree, "properties", "creationData", "createOption") != "Upload" {
		return c.putStored(k, tree)
	}
	size, _ := at(tree, "properties", "creationData", "uploadSizeBytes").(float64)
	id := partID(k.group, compute+"disks", k.name())
	switch {
	case size < minUpload || (int64(size)-512)%(1<<20) != 0:
		return bad("creationData.uploadSizeBytes", "The upload size is not that of a VHD of fixed size: %v.", size)
	case c.disks[strings.ToLower(id)] != nil:
		return fail(http.StatusConflict, "PropertyChangeNotAllowed", "Changing the disk '%s' is not allowed.", id)
	}
	d := &disk{id: id, tags: tagsIn(tree), upload: &upload{size: int64(size), ranges: map[int64][]byte{}, content: tree}}
	c.disks[strings.ToLower(id)] = d
	c.World.Add(cloudsim.KindDisk, id, d.tags)
	o := c.begin(k, diskOperations)
	c.after(1, o.done)
	reply(k.w, http.StatusAccepted, map[string]any{"name": k.name(), "location": Region})
	return nil
}

// uploading returns a disk that is there to be written. The caller holds mu.
func (c *Cloud) uploading(k *call) (*disk, *failure) {
	d := c.disks[strings.ToLower(partID(k.group, compute+"disks", k.name()))]
	if d == nil || d.upload == nil {
		return nil, fail(http.StatusNotFound, notThere, "The disk '%s' was not found.", k.name())
	}
	return d, nil
}

func (c *Cloud) beginGetAccess(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, f := c.uploading(k)
	if f != nil {
		return f
	}
	tree, f := c.readBody(k, "GrantAccessData")
	switch {
	case f != nil:
		return f
	case tree["access"] != "Write":
		return bad("access", "A disk to be uploaded is written.")
	case d.upload.closed:
		return fail(http.StatusConflict, "OperationNotAllowed", "Disk %s was written already.", d.id)
	}
	d.upload.open = true
	path := uploads + last(strings.ToLower(d.id))
	o := c.begin(k, diskOperations)
	o.result = map[string]any{"accessSAS": c.Server.URL + path + "?sig=" + c.identity.sign(path) + "&se=2027-01-01"}
	c.after(1, o.done)
	k.w.WriteHeader(http.StatusAccepted)
	return nil
}

func (c *Cloud) endGetAccess(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	d, f := c.uploading(k)
	if f != nil {
		return f
	}
	d.upload.open, d.upload.closed = false, true
	o := c.begin(k, diskOperations)
	c.after(1, o.done)
	k.w.WriteHeader(http.StatusAccepted)
	return nil
}

// maxRange is the most that one Put Page writes.
const maxRange = 4 << 20

// servePages is Put Page of the storage.
func (c *Cloud) servePages(w http.ResponseWriter, r *http.Request) bool {
	name, ok := strings.CutPrefix(r.URL.Path, uploads)
	if !ok {
		return false
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRange+1))
	if err != nil {
		return true // the caller has gone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	refuse := func(status int, code string) {
		w.Header().Set("x-ms-error-code", code)
		w.WriteHeader(status)
	}
	var from, to int64
	_, err = fmt.Sscanf(r.Header.Get("x-ms-range"), "bytes=%d-%d", &from, &to)
	d := c.disks[strings.ToLower(partID(ResourceGroup, compute+"disks", name))]
	switch {
	case r.Header.Get("Authorization") != "":
		c.violate("the token of the resource manager was sent to the storage")
		refuse(http.StatusForbidden, "AuthenticationFailed")
	case r.URL.Query().Get("sig") != c.identity.sign(r.URL.Path) || d == nil || d.upload == nil || !d.upload.open:
		refuse(http.StatusForbidden, "AuthenticationFailed")
	case r.Method != http.MethodPut || r.URL.Query().Get("comp") != "page" || r.Header.Get("x-ms-page-write") != "update" || r.Header.Get("x-ms-version") == "":
		refuse(http.StatusBadRequest, "InvalidHeaderValue")
	case err != nil, int64(len(body)) != to-from+1, len(body) > maxRange, from%512 != 0, (to+1)%512 != 0, to >= d.upload.size:
		refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidPageRange")
	default:
		d.upload.ranges[from] = body
		w.WriteHeader(http.StatusCreated)
	}
	return true
}

// artifactID is that of what the path names, and kind its type.
func artifactID(k *call) (id, parent, kind string) {
	names := k.names[1:]
	id = partID(k.group, compute+"galleries", names[0])
	kind = "Gallery"
	if len(names) > 1 {
		parent, id, kind = id, id+"/images/"+names[1], "GalleryImage"
	}
	if len(names) > 2 {
		parent, id, kind = id, id+"/versions/"+names[2], "GalleryImageVersion"
	}
	return strings.ToLower(id), strings.ToLower(parent), kind
}

func (c *Cloud) putGallery(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	id, parent, kind := artifactID(k)
	tree, f := c.readBody(k, kind)
	switch {
	case f != nil:
		return f
	case parent != "" && c.gallery[parent] == nil && !known(images, parent):
		return fail(http.StatusNotFound, "ParentResourceNotFound", "%s does not exist", parent)
	case c.gallery[id] != nil:
		c.violate("PUT would overwrite %s", id)
		return fail(http.StatusConflict, "PropertyChangeNotAllowed", "%s exists", id)
	}
	made := &artifact{id: id, body: tree, state: "Creating"}
	if kind == "GalleryImageVersion" {
		if made.content, f = c.contentOf(tree); f != nil {
			return f
		}
	}
	c.gallery[id] = made
	c.World.Add(KindGallery, id, tagsIn(tree))
	o := c.begin(k, computeOperations)
	c.after(2, func() {
		if f := c.struck("gallery:" + kind); f != nil {
			made.state = "Failed"
			o.fail(f.Code, f.Message)
			return
		}
		made.state = "Succeeded"
		o.done()
	})
	reply(k.w, http.StatusCreated, made.view())
	return nil
}

// contentOf returns what is on the disk that a version is made of.
func (c *Cloud) contentOf(tree map[string]any) (map[int64][]byte, *failure) {
	source, _ := at(tree, "properties", "storageProfile", "osDiskImage", "source", "id").(string)
	d := c.disks[strings.ToLower(source)]
	switch {
	case d == nil || d.upload == nil:
		return nil, fail(http.StatusNotFound, notThere, "The disk '%s' was not found.", source)
	case !d.upload.closed:
		return nil, fail(http.StatusConflict, "OperationNotAllowed", "Disk %s is in state ActiveUpload.", source)
	}
	return d.upload.ranges, nil
}

func (a *artifact) view() map[string]any {
	properties := map[string]any{"provisioningState": a.state}
	members, _ := a.body["properties"].(map[string]any)
	for name, value := range members {
		properties[name] = value
	}
	return map[string]any{"id": a.id, "name": last(a.id), "location": Region, "properties": properties}
}

func (c *Cloud) getGallery(k *call) *failure {
	id, _, _ := artifactID(k)
	c.mu.Lock()
	found := c.gallery[id]
	if found != nil && !found.deleting {
		reply(k.w, http.StatusOK, found.view())
	}
	c.mu.Unlock()
	switch {
	case found != nil && !found.deleting:
		return nil
	case k.route.api != "":
		return c.fakeCompute(k)
	}
	return fail(http.StatusNotFound, notThere, "%s does not exist", id)
}

func (c *Cloud) deleteGallery(k *call) *failure {
	id, _, _ := artifactID(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	found := c.gallery[id]
	if found == nil {
		k.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	for other := range c.gallery {
		if strings.HasPrefix(other, id+"/") {
			return fail(http.StatusConflict, "CannotDeleteResource", "Can not delete resource before nested resources are deleted: %s", other)
		}
	}
	return c.removal(k, KindGallery, id, computeOperations, &found.deleting, func() { delete(c.gallery, id) })
}

// ImageContent returns the ranges that were written of a version's disk, by
// their offsets.
func (c *Cloud) ImageContent(id string) map[int64][]byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if found := c.gallery[strings.ToLower(id)]; found != nil {
		return found.content
	}
	return nil
}
