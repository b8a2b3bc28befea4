// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// The microversions that the Compute API speaks: those of Nova 26 (Zed).
const (
	oldestMinor = 1
	newestMinor = 93
)

// microversion returns the minor number of the microversion that a request of
// the Compute API asks for, or writes the refusal and returns false.
func (k *call) microversion() (int, bool) {
	text, ok := strings.CutPrefix(strings.ToLower(k.r.Header.Get("OpenStack-API-Version")), "compute ")
	if !ok {
		text = k.r.Header.Get("X-OpenStack-Nova-API-Version")
	}
	switch text {
	case "":
		return oldestMinor, true
	case "latest":
		return k.cloud.NewestMinor, true
	}
	major, rest, _ := strings.Cut(text, ".")
	_, wrong := strconv.Atoi(major)
	minor, err := strconv.Atoi(rest)
	if err != nil || wrong != nil {
		k.fail(http.StatusBadRequest, "badRequest", fmt.Sprintf("API Version String %s is of invalid format. Must be of format MajorNum.MinorNum.", text))
		return 0, false
	}
	if major != "2" || minor < oldestMinor || minor > k.cloud.NewestMinor {
		k.fail(http.StatusNotAcceptable, "computeFault", fmt.Sprintf("Version %s is not supported by the API. Minimum is 2.%d and maximum is 2.%d.", text, oldestMinor, k.cloud.NewestMinor))
		return 0, false
	}
	return minor, true
}

// computeVersion serves the root of the Compute API, which says what it speaks.
func (c *Cloud) computeVersion() {
	c.mux.HandleFunc("GET "+v2+"{$}", func(out http.ResponseWriter, r *http.Request) {
		k := &call{cloud: c, out: out, r: r}
		k.answer(http.StatusOK, map[string]any{"version": map[string]any{
			"id": "v2.1", "status": "CURRENT", "version": "2." + strconv.Itoa(c.NewestMinor), "min_version": "2." + strconv.Itoa(oldestMinor),
			"updated": "2013-07-23T11:33:21Z", "links": []map[string]string{{"rel": "self", "href": "https://" + r.Host + v2}}, "media-types": []any{},
		}})
	})
}

// shown is a flavor as a server shows it.
func (f flavor) shown(minor int) map[string]any {
	if minor < 47 {
		return map[string]any{"id": f.ID, "links": []any{}}
	}
	return map[string]any{"original_name": f.Name, "vcpus": f.VCPUs, "ram": f.RAM, "disk": f.Disk, "ephemeral": 0, "swap": 0, "extra_specs": map[string]string{}}
}

// newer returns what the microversion of a new server does not know.
func (n *newServer) newer(minor int) string {
	for _, device := range n.Server.Devices {
		if device.Type != "" && minor < 67 {
			return fmt.Sprintf("Invalid input for field/attribute 0. Value: %v. ", device) + "Additional properties are not allowed ('volume_type' was unexpected)"
		}
		if device.Type != "" && device.Type != VolumeType {
			return "Block Device Mapping is Invalid: Volume type " + device.Type + " could not be found."
		}
	}
	if len(n.Server.Files) > 0 && minor >= 57 {
		return fmt.Sprintf("Invalid input for field/attribute server. Value: %v. Additional properties are not allowed ('personality' was unexpected)", n.Server)
	}
	return ""
}
