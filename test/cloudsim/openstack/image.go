// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
)

// KindImage is that of images which tests have made.
const KindImage = "image"

// image is one of Glance's ("Show image").
type image struct {
	id, name, status, owner string
	visibility              string
	properties              map[string]string
	content                 []byte
	reads                   int // while it is being saved
}

var standardImages = []*image{
	{id: Image, name: "podvm", status: "active", owner: ProjectID, visibility: "private"},
	{id: QueuedImage, name: "podvm", status: "queued", owner: ProjectID, visibility: "private"},
}

func (i *image) json() map[string]any {
	body := map[string]any{
		"id": i.id, "name": i.name, "status": i.status, "owner": i.owner, "visibility": i.visibility,
		"created_at": fixedStamp, "updated_at": fixedStamp, "min_disk": 1, "min_ram": 0,
	}
	for key, value := range i.properties {
		body[key] = value
	}
	return body
}

func (c *Cloud) imageRoutes() {
	for _, standard := range standardImages {
		own := *standard
		c.images = append(c.images, &own)
	}
	const v2 = "/image/v2/images"
	c.versions("/image/", "v2.9")
	c.handle("GET "+v2+"/{id}", "get_image", nil, c.showImage)
	c.handle("GET "+v2, "get_images", []string{"name", "owner", "status", "limit", "marker"}, c.listImages)
	c.handle("POST "+v2, "add_image", nil, c.addImage)
	c.handle("PUT "+v2+"/{id}/file", "upload_image", nil, c.uploadImage)
	c.handle("DELETE "+v2+"/{id}", "delete_image", nil, c.deleteImage)
}

func (c *Cloud) imageOf(k *call) *image {
	id := k.r.PathValue("id")
	if i := slices.IndexFunc(c.images, func(i *image) bool { return i.id == id }); i >= 0 {
		return c.images[i]
	}
	k.fail(http.StatusNotFound, "Not Found", "No image found with ID "+id)
	return nil
}

// bootable reports whether servers can be made of an image.
func (c *Cloud) bootable(id string) bool {
	return slices.ContainsFunc(c.images, func(i *image) bool { return i.id == id && i.status == "active" })
}

func (c *Cloud) showImage(k *call) {
	i := c.imageOf(k)
	if i == nil {
		return
	}
	if i.status == "saving" {
		if i.reads++; i.reads > 2 {
			i.status = "active"
		}
	}
	k.answer(http.StatusOK, i.json())
}

func (c *Cloud) listImages(k *call) {
	query := k.r.URL.Query()
	list := []map[string]any{}
	for _, i := range c.images {
		if wanted(query.Get("name"), i.name) && wanted(query.Get("owner"), i.owner) && wanted(query.Get("status"), i.status) {
			list = append(list, i.json())
		}
	}
	k.answer(http.StatusOK, map[string]any{"images": list, "first": "/v2/images", "schema": "/v2/schemas/images"})
}

func wanted(asked, is string) bool { return asked == "" || asked == is }

// newImage is the body of POST /v2/images ("Create image") with the properties
// of the schema cim-dist that Nova knows.
type newImage struct {
	ID              string `json:"id"`
	Name            string `json:"name"`
	Visibility      string `json:"visibility"`
	ContainerFormat string `json:"container_format"`
	DiskFormat      string `json:"disk_format"`
	Architecture    string `json:"architecture"`
	OSType          string `json:"os_type"`
	Firmware        string `json:"hw_firmware_type"`
	Machine         string `json:"hw_machine_type"`
}

var uuidSyntax = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

func (c *Cloud) addImage(k *call) {
	var body newImage
	if !k.read(&body) || !k.short(map[string]string{"name": body.Name}) {
		return
	}
	switch {
	case !slices.Contains([]string{"ami", "ari", "aki", "bare", "ovf", "ova", "docker", "compressed"}, body.ContainerFormat),
		!slices.Contains([]string{"ami", "ari", "aki", "vhd", "vhdx", "vmdk", "raw", "qcow2", "vdi", "iso", "ploop"}, body.DiskFormat),
		!slices.Contains([]string{"public", "private", "shared", "community"}, body.Visibility),
		!uuidSyntax.MatchString(body.ID),
		body.Firmware != "" && body.Firmware != "uefi" && body.Firmware != "bios":
		k.fail(http.StatusBadRequest, "Bad Request", "Provided object does not match schema 'image'")
		return
	case slices.ContainsFunc(c.images, func(i *image) bool { return i.id == body.ID }):
		k.fail(http.StatusConflict, "Conflict", "Image ID "+body.ID+" already exists!")
		return
	}
	made := &image{id: body.ID, name: body.Name, status: "queued", owner: ProjectID, visibility: body.Visibility, properties: map[string]string{
		"container_format": body.ContainerFormat, "disk_format": body.DiskFormat, "architecture": body.Architecture,
		"os_type": body.OSType, "hw_firmware_type": body.Firmware, "hw_machine_type": body.Machine,
	}}
	maps.DeleteFunc(made.properties, func(_, value string) bool { return value == "" })
	c.images = append(c.images, made)
	c.World.Add(KindImage, made.id, nil)
	k.answer(http.StatusCreated, made.json())
}

// uploadImage is "Upload binary image data": the format is believed, except for
// qcow2, whose header Glance inspects.
func (c *Cloud) uploadImage(k *call) {
	i := c.imageOf(k)
	if i == nil {
		return
	}
	if k.r.Header.Get("Content-Type") != "application/octet-stream" {
		k.fail(http.StatusUnsupportedMediaType, "Unsupported Media Type", "want application/octet-stream")
		return
	}
	if i.status != "queued" {
		k.fail(http.StatusConflict, "Conflict", "Image status transition from "+i.status+" to saving is not allowed")
		return
	}
	content, err := io.ReadAll(k.r.Body)
	if err != nil {
		return // the caller has gone; the image stays queued
	}
	if i.properties["disk_format"] == "qcow2" && !bytes.HasPrefix(content, []byte("QFI\xfb")) {
		k.fail(http.StatusUnsupportedMediaType, "Unsupported Media Type", "Image content does not match disk_format")
		return
	}
	i.content, i.status = content, "saving"
	k.answer(http.StatusNoContent, nil)
}

func (c *Cloud) deleteImage(k *call) {
	i := c.imageOf(k)
	if i == nil {
		return
	}
	c.images = slices.DeleteFunc(c.images, func(other *image) bool { return other == i })
	c.World.Remove(KindImage, i.id)
	k.answer(http.StatusNoContent, nil)
}

// ImageContent returns what was uploaded into an image.
func (c *Cloud) ImageContent(id string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.images {
		if i.id == id {
			return i.content
		}
	}
	return nil
}
