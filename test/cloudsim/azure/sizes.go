// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"
)

// size is a VM size.
type size struct {
	name, family    string
	cores           int64
	memory          string // GB
	arch            string
	gpus            int64
	zones           []string
	confidential    string
	noTrustedLaunch bool
	spot            bool
	restricted      bool
}

// sizes are some of Azure's ("Sizes for virtual machines in Azure").
var sizes = []*size{
	{"Standard_DC2as_v5", "standardDCASv5Family", 2, "8", "x64", 0, []string{"1", "2", "3"}, "SNP", true, true, false},
	{"Standard_DC4as_v5", "standardDCASv5Family", 4, "16", "x64", 0, []string{"1", "2", "3"}, "SNP", true, true, false},
	{"Standard_DC8as_v5", "standardDCASv5Family", 8, "32", "x64", 0, []string{"2"}, "SNP", true, true, false},
	{"Standard_DC2es_v5", "standardDCESv5Family", 2, "8", "x64", 0, []string{"1", "3"}, "TDX", true, true, false},
	{"Standard_EC4as_v5", "standardECASv5Family", 4, "32", "x64", 0, []string{"1", "2"}, "SNP", true, true, true},
	{"Standard_B1s", "standardBSFamily", 1, "1", "x64", 0, nil, "", false, false, false},
	{"Standard_D2s_v5", "standardDSv5Family", 2, "8", "x64", 0, []string{"1", "2", "3"}, "", false, true, false},
	{"Standard_D4s_v5", "standardDSv5Family", 4, "16", "x64", 0, []string{"1", "2"}, "", false, true, false},
	{"Standard_D2ps_v5", "standardDPSv5Family", 2, "8", "Arm64", 0, []string{"1"}, "", true, true, false},
	{"Standard_NC4as_T4_v3", "Standard NCASv3_T4 Family", 4, "28", "x64", 1, []string{"1", "2"}, "", false, true, false},
	{"Standard_NC24ads_A100_v4", "StandardNCADSA100v4Family", 24, "220", "x64", 1, []string{"3"}, "", false, true, false},
}

func sizeNamed(name string) *size {
	for _, s := range sizes {
		if strings.EqualFold(s.name, name) {
			return s
		}
	}
	return nil
}

func (s *size) sku() *armcompute.ResourceSKU {
	sku := &armcompute.ResourceSKU{
		ResourceType: to.Ptr("virtualMachines"), Name: to.Ptr(s.name), Family: to.Ptr(s.family), Locations: []*string{to.Ptr(Region)},
		LocationInfo: []*armcompute.ResourceSKULocationInfo{{Location: to.Ptr(Region), Zones: to.SliceOfPtrs(s.zones...)}},
	}
	if s.restricted {
		sku.Restrictions = append(sku.Restrictions, &armcompute.ResourceSKURestrictions{
			Type: to.Ptr(armcompute.ResourceSKURestrictionsTypeLocation), ReasonCode: to.Ptr(armcompute.ResourceSKURestrictionsReasonCodeNotAvailableForSubscription),
			Values: []*string{to.Ptr(Region)}, RestrictionInfo: &armcompute.ResourceSKURestrictionInfo{Locations: []*string{to.Ptr(Region)}},
		})
	}
	for _, capability := range [][2]string{
		{"vCPUs", strconv.FormatInt(s.cores, 10)}, {"MemoryGB", s.memory}, {"CpuArchitectureType", s.arch}, {"GPUs", strconv.FormatInt(s.gpus, 10)},
		{"ConfidentialComputingType", s.confidential}, {"TrustedLaunchDisabled", map[bool]string{true: "True"}[s.noTrustedLaunch]},
		{"LowPriorityCapable", map[bool]string{true: "True", false: "False"}[s.spot]}, {"HyperVGenerations", "V1,V2"}, {"MaxNetworkInterfaces", "2"},
	} {
		if capability[1] != "" && capability[1] != "0" {
			sku.Capabilities = append(sku.Capabilities, &armcompute.ResourceSKUCapabilities{Name: to.Ptr(capability[0]), Value: to.Ptr(capability[1])})
		}
	}
	return sku
}

// listSizes returns other kinds of SKUs too, as Azure does.
func (c *Cloud) listSizes(k *call) *failure {
	filter := k.r.URL.Query().Get("$filter")
	items := []any{&armcompute.ResourceSKU{ResourceType: to.Ptr("disks"), Name: to.Ptr("Premium_LRS"), Locations: []*string{to.Ptr(Region)}}}
	if filter != "location eq '"+Region+"'" {
		items = nil
	} else {
		for _, s := range sizes {
			items = append(items, s.sku())
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.page(k, items)
}

func (c *Cloud) listUsages(k *call) *failure {
	if k.names[1] != Region {
		return fail(http.StatusBadRequest, "NoRegisteredProviderFound", "No registered resource provider found for location '%s'.", k.names[1])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	usage := func(name, text string, used, limit int64) *armcompute.Usage {
		return &armcompute.Usage{CurrentValue: to.Ptr(int32(used)), Limit: to.Ptr(limit), Unit: to.Ptr("Count"), Name: &armcompute.UsageName{Value: to.Ptr(name), LocalizedValue: to.Ptr(text)}}
	}
	return c.page(k, []any{
		usage("availabilitySets", "Availability Sets", 0, 2500),
		usage("cores", "Total Regional vCPUs", c.usedCores(), c.options.Cores),
		usage("virtualMachines", "Virtual Machines", int64(len(c.vms)), 25000),
		usage("lowPriorityCores", "Total Regional Spot vCPUs", 0, 3),
		usage("standardDCASv5Family", "Standard DCASv5 Family vCPUs", 0, 100_000),
	})
}

// page returns one page of a list, with a link to the next one. The caller
// holds mu.
func (c *Cloud) page(k *call, items []any) *failure {
	query := k.r.URL.Query()
	from := 0
	if token := query.Get("$skipToken"); token != "" {
		n, err := strconv.Atoi(token)
		if err != nil || n < 0 {
			return fail(http.StatusBadRequest, "InvalidParameter", "$skipToken %q is none of ours.", token)
		}
		from = min(n, len(items))
	}
	to := min(from+c.options.PageSize, len(items))
	body := map[string]any{"value": append([]any{}, items[from:to]...)}
	if to < len(items) {
		next := url.Values{"api-version": {query.Get("api-version")}, "$skipToken": {fmt.Sprint(to)}}
		if filter := query.Get("$filter"); filter != "" {
			next.Set("$filter", filter)
		}
		body["nextLink"] = c.Server.URL + k.r.URL.Path + "?" + next.Encode()
	}
	reply(k.w, http.StatusOK, body)
	return nil
}
