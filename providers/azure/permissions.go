// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
)

// groupActions are what the provider may do in the resource group; the role in
// docs/providers/azure.md has the same, from the calls that tests have seen.
var groupActions = []string{
	"Microsoft.Compute/disks/delete",
	"Microsoft.Compute/disks/read",
	"Microsoft.Compute/disks/write",
	"Microsoft.Compute/virtualMachines/deallocate/action",
	"Microsoft.Compute/virtualMachines/delete",
	"Microsoft.Compute/virtualMachines/read",
	"Microsoft.Compute/virtualMachines/retrieveBootDiagnosticsData/action",
	"Microsoft.Compute/virtualMachines/start/action",
	"Microsoft.Compute/virtualMachines/write",
	"Microsoft.Network/networkInterfaces/delete",
	"Microsoft.Network/networkInterfaces/join/action",
	"Microsoft.Network/networkInterfaces/read",
	"Microsoft.Network/networkInterfaces/write",
	"Microsoft.Network/publicIPAddresses/delete",
	"Microsoft.Network/publicIPAddresses/join/action",
	"Microsoft.Network/publicIPAddresses/read",
	"Microsoft.Network/publicIPAddresses/write",
}

const (
	joinSubnet = "Microsoft.Network/virtualNetworks/subnets/join/action"
	joinGroup  = "Microsoft.Network/networkSecurityGroups/join/action"
)

// permission is what somebody may do at a scope (Permissions, List For Resource
// Group, api-version 2022-04-01).
type permission struct {
	Actions    []string `json:"actions"`
	NotActions []string `json:"notActions"`
}

func (p permission) allows(action string) bool {
	return anyMatch(p.Actions, action) && !anyMatch(p.NotActions, action)
}

func anyMatch(patterns []string, action string) bool {
	for _, pattern := range patterns {
		if wildcard(strings.ToLower(pattern), strings.ToLower(action)) {
			return true
		}
	}
	return false
}

// wildcard reports whether text is like pattern, whose * stands for any letters.
func wildcard(pattern, text string) bool {
	head, tail, found := strings.Cut(pattern, "*")
	if !found {
		return pattern == text
	}
	rest, ok := strings.CutPrefix(text, head)
	for ok {
		if wildcard(tail, rest) {
			return true
		}
		if rest == "" {
			return false
		}
		rest = rest[1:]
	}
	return false
}

// permissions returns what we may do at a scope, which is a resource id.
func (p *Provider) permissions(ctx context.Context, scope string) ([]permission, error) {
	var all []permission
	next := runtime.JoinPaths(p.cloud.arm.Endpoint(), scope, "providers/Microsoft.Authorization/permissions") + "?api-version=2022-04-01"
	for next != "" {
		request, err := runtime.NewRequest(ctx, http.MethodGet, next)
		if err != nil {
			return nil, err
		}
		response, err := p.cloud.arm.Pipeline().Do(request)
		if err != nil {
			return nil, err
		}
		if !runtime.HasStatusCode(response, http.StatusOK) {
			return nil, runtime.NewResponseError(response)
		}
		var page struct {
			Value    []permission `json:"value"`
			NextLink string       `json:"nextLink"`
		}
		if err := runtime.UnmarshalAsJSON(response, &page); err != nil {
			return nil, err
		}
		all, next = append(all, page.Value...), page.NextLink
	}
	return all, nil
}

// lacking returns the actions that we may not do at a scope.
func (p *Provider) lacking(ctx context.Context, scope string, actions ...string) ([]string, error) {
	granted, err := p.permissions(ctx, scope)
	if err != nil {
		return nil, fmt.Errorf("permissions at %s: %w", scope, err)
	}
	var missing []string
	for _, action := range actions {
		allowed := false
		for _, g := range granted {
			allowed = allowed || g.allows(action)
		}
		if !allowed {
			missing = append(missing, action)
		}
	}
	return missing, nil
}
