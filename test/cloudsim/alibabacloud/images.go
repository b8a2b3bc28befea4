// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"fmt"
	"maps"
	"slices"
)

// Object is a file in the object store: bucket and name. It is a qcow2.
const Object = "my-bucket/podvm-0123456789ab.qcow2"

// image is an image that was imported.
type image struct {
	name, format string
	looks        int // at it, so far
}

// importSteps is at how many looks an import is still going on: were it a time,
// nobody on a busy machine would see that.
const importSteps = 5

// status also returns how far the import is.
func (c *Cloud) statusOfImage(i *image) (status, progress string) {
	switch {
	case i.looks < importSteps:
		return "Creating", fmt.Sprintf("%d%%", 100*i.looks/importSteps)
	case i.format != "QCOW2":
		return "CreateFailed", "100%"
	}
	return "Available", "100%"
}

// Images returns the ids of all images.
func (c *Cloud) Images() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.images))
}

func (c *Cloud) importImage(p *parameters) (map[string]any, error) {
	return c.once("ImportImage", p, func() (map[string]any, error) {
		for _, one := range []struct {
			name    string
			choices []string
		}{
			{"Architecture", []string{"i386", "x86_64", "arm64"}}, {"OSType", []string{"linux", "windows"}}, {"BootMode", []string{"BIOS", "UEFI", "UEFI-Preferred"}},
			{"DiskDeviceMapping.1.Format", []string{"RAW", "VHD", "QCOW2", "VMDK"}}, {"Features.NvmeSupport", []string{"supported", "unsupported"}},
		} {
			if err := oneOf("InvalidParameter", p.text(one.name), one.choices...); err != nil {
				return nil, err
			}
		}
		if p.text("DiskDeviceMapping.1.OSSBucket")+"/"+p.text("DiskDeviceMapping.1.OSSObject") != Object {
			return nil, refuse("InvalidOSSObject.NotFound", "The object does not exist.")
		}
		name, id := p.text("ImageName"), newID("m-")
		for _, other := range c.images {
			if other.name == name {
				return nil, refuse("InvalidImageName.Duplicated", "There is an image %s.", name)
			}
		}
		c.images[id] = &image{name, p.text("DiskDeviceMapping.1.Format"), 0}
		return object{"ImageId": id}, nil
	})
}

func (c *Cloud) deleteImage(p *parameters) (map[string]any, error) {
	id := p.text("ImageId")
	if c.images[id] == nil {
		return nil, refuse("InvalidImageId.NotFound", "The image %q does not exist.", id)
	}
	if status, _ := c.statusOfImage(c.images[id]); status == "Creating" && !p.bool("Force") {
		return nil, refuse("IncorrectImageStatus", "The image is %s.", status)
	}
	p.bool("Force")
	delete(c.images, id)
	return object{}, nil
}

func (c *Cloud) describeImages(p *parameters) (map[string]any, error) {
	p.text("Status")
	wanted, name := p.text("ImageId"), p.text("ImageName")
	var list []object
	for _, id := range slices.Sorted(maps.Keys(c.images)) {
		i := c.images[id]
		if wanted != "" && wanted != id || name != "" && name != i.name {
			continue
		}
		status, progress := c.statusOfImage(i)
		i.looks++
		list = append(list, object{"ImageId": id, "ImageName": i.name, "Status": status, "Progress": progress, "Architecture": "x86_64", "Size": imageSize})
	}
	return object{"Images": object{"Image": list}, "TotalCount": len(list), "PageNumber": p.number("PageNumber", 1), "PageSize": p.number("PageSize", 10)}, nil
}
