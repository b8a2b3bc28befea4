// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits that the definition does not say.
const (
	maxMetadataValue = 256 << 10 // definition, Metadata.items.value
	maxMetadata      = 512 << 10 // page "Set custom metadata"
	maxLabels        = 64        // page "Labels overview"
	maxDescription   = 2048
)

var (
	labelKey   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	labelValue = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
)

// checkInstance checks what an insert says against what exists.
func (s *Sim) checkInstance(zone string, body map[string]any) error {
	machine, ok := partial(text(body, "machineType"), "zones/"+zone+"/machineTypes")
	k := kindNamed(machine, zone)
	if !ok || k == nil || k.state != "" {
		return missing("resource.machineType", text(body, "machineType"))
	}
	for _, check := range []func() error{
		func() error { return checkText(body) },
		func() error { return s.checkDisks(zone, body) },
		func() error { return s.checkInterfaces(body) },
		func() error { return checkScheduling(k, body) },
		func() error { return checkTags(body) },
	} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func checkText(body map[string]any) error {
	if len(text(body, "description")) > maxDescription {
		return invalid("resource.description", "…", "Must be at most 2048 characters.")
	}
	if err := checkLabels("resource.labels", object(body, "labels")); err != nil {
		return err
	}
	total := 0
	for i, item := range objects(object(body, "metadata"), "items") {
		if len(text(item, "value")) > maxMetadataValue {
			return invalid(fmt.Sprintf("resource.metadata.items[%d].value", i), "…", "Metadata value is too long: 262144 bytes at most.")
		}
		total += len(text(item, "key")) + len(text(item, "value"))
	}
	if total > maxMetadata {
		return refuse(http.StatusBadRequest, "metadataTooLarge", "Metadata size exceeds 512 KB.")
	}
	return nil
}

func checkLabels(field string, labels map[string]any) error {
	if len(labels) > maxLabels {
		return invalid(field, "", "Labels size is too large: 64 at most.")
	}
	for key, value := range labels {
		if !labelKey.MatchString(key) || !labelValue.MatchString(fmt.Sprint(value)) {
			return invalid(field, key+": "+fmt.Sprint(value), "Label keys and values must match [a-z0-9_-]{0,63}.")
		}
	}
	return nil
}

func (s *Sim) checkDisks(zone string, body map[string]any) error {
	disks := objects(body, "disks")
	if len(disks) == 0 || disks[0]["boot"] != true {
		return refuse(http.StatusBadRequest, "required", "Required field 'resource.disks[0]' not specified: a boot disk")
	}
	params := object(disks[0], "initializeParams")
	name, ok := partial(text(params, "sourceImage"), "global/images")
	if !ok {
		name, ok = partial(text(params, "sourceImage"), "global/images/family")
	}
	image, exists := s.image(name)
	if !ok || !exists {
		return notFound(text(params, "sourceImage"))
	}
	if kind, ok := partial(text(params, "diskType"), "zones/"+zone+"/diskTypes"); !ok || !slices.Contains(diskTypes, kind) {
		return missing("resource.disks[0].initializeParams.diskType", text(params, "diskType"))
	}
	// An int64 is a text of digits in JSON, and Google reads numbers too; without
	// one the disk has the size of the image.
	given := fmt.Sprint(cmp.Or(params["diskSizeGb"], any(image.size)))
	if size, _ := strconv.Atoi(given); size < image.size {
		return invalid("resource.disks[0].initializeParams.diskSizeGb", text(params, "diskSizeGb"),
			fmt.Sprintf("Requested disk size cannot be smaller than the image size (%d GB)", image.size))
	}
	return checkLabels("resource.disks[0].initializeParams.labels", object(params, "labels"))
}

func (s *Sim) checkInterfaces(body map[string]any) error {
	nics := objects(body, "networkInterfaces")
	if len(nics) == 0 {
		return refuse(http.StatusBadRequest, "required", "At least one network interface is required.")
	}
	var seen []string
	for i, nic := range nics {
		field := fmt.Sprintf("resource.networkInterfaces[%d]", i)
		network, ok := partial(text(nic, "network"), "global/networks")
		if !ok || network != Network && network != OtherNetwork {
			return missing(field+".network", text(nic, "network"))
		}
		if slices.Contains(seen, network) {
			return invalid(field+".network", network, "Networks must be distinct for NICs attached to a VM.")
		}
		seen = append(seen, network)
		subnetwork := text(nic, "subnetwork")
		if name, ok := partial(subnetwork, "regions/"+Region+"/subnetworks"); subnetwork != "" && (!ok || name != Subnetwork || network != Network) {
			return missing(field+".subnetwork", subnetwork)
		}
		if subnetwork == "" && network == Network {
			return invalid(field+".subnetwork", "", "Network interface must specify a subnet if the network resource is in custom subnet mode.")
		}
	}
	return nil
}

func checkScheduling(k *kind, body map[string]any) error {
	rules := object(body, "scheduling")
	maintenance := text(rules, "onHostMaintenance")
	if technology := text(object(body, "confidentialInstanceConfig"), "confidentialInstanceType"); technology != "" {
		if !slices.Contains(k.confidential, technology) {
			return invalid("resource.machineType", k.name, "Machine type does not support "+technology+".")
		}
		if maintenance != "TERMINATE" {
			return refuse(http.StatusBadRequest, "invalid", "Confidential VMs do not support live migration: set onHostMaintenance to TERMINATE")
		}
	}
	if k.gpus > 0 && maintenance != "TERMINATE" {
		return refuse(http.StatusBadRequest, "invalid", "Instances with guest accelerators do not support live migration.")
	}
	if text(rules, "provisioningModel") == "SPOT" && (rules["automaticRestart"] != false || maintenance == "MIGRATE") {
		return refuse(http.StatusBadRequest, "invalid", "Scheduling must have automaticRestart be false when preemptible is true.")
	}
	if text(rules, "instanceTerminationAction") != "" && text(rules, "provisioningModel") != "SPOT" {
		return refuse(http.StatusBadRequest, "invalid", "instanceTerminationAction is only for Spot VMs")
	}
	return nil
}

func checkTags(body map[string]any) error {
	for key, value := range object(object(body, "params"), "resourceManagerTags") {
		if managerTags[key] != fmt.Sprint(value) || strings.HasPrefix(key, "tagKeys/") != strings.HasPrefix(fmt.Sprint(value), "tagValues/") {
			return invalid("resource.params.resourceManagerTags", key+": "+fmt.Sprint(value), "The tag does not exist.")
		}
	}
	return nil
}
