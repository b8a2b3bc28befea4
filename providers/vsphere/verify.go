// SPDX-License-Identifier: Apache-2.0

package vsphere

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/outrigger/outrigger/provider"
)

// verifyLimit bounds ConfigVerifier.
const verifyLimit = 30 * time.Second

// ConfigVerifier implements provider.Provider. It reports everything that is
// wrong, unless vCenter cannot be asked.
func (p *Provider) ConfigVerifier() error { return p.VerifyConfig(context.Background()) }

// VerifyConfig implements provider.ContextVerifier.
func (p *Provider) VerifyConfig(ctx context.Context) (err error) {
	defer explain(&err, "verify")
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	c, err := p.conn.open(ctx)
	if err != nil {
		return err
	}
	p.forget(nil)
	s, err := p.site(ctx, c)
	if err != nil {
		return err
	}
	return p.verifyPrivileges(ctx, c, s)
}

// Privileges are those of a role for this provider, by what it is given on.
// The methods are those that need them, and those that need none beyond
// System.View are not here.
var Privileges = []Privilege{
	{"the template", "VirtualMachine.Provisioning.DeployTemplate", "CloneVM_Task"},
	{"the folder", "VirtualMachine.Inventory.CreateFromExisting", "CloneVM_Task"},
	{"the folder", "VirtualMachine.Config.AdvancedConfig", "CloneVM_Task"},
	{"the folder", "VirtualMachine.Config.CPUCount", "CloneVM_Task"},
	{"the folder", "VirtualMachine.Config.Memory", "CloneVM_Task"},
	{"the folder", "VirtualMachine.Config.Annotation", "CloneVM_Task"},
	{"the folder", "VirtualMachine.Config.EditDevice", "CloneVM_Task"},
	{"the folder", "VirtualMachine.Provisioning.Clone", "CloneVM_Task"}, // of disks
	{"the folder", "VirtualMachine.Inventory.CreateNew", "CreateVM_Task"},
	{"the folder", "VirtualMachine.Config.AddNewDisk", "CreateVM_Task"},
	{"the folder", "VirtualMachine.Config.AddExistingDisk", "ReconfigVM_Task"},
	{"the folder", "VirtualMachine.Config.RemoveDisk", "ReconfigVM_Task"},
	{"the folder", "VirtualMachine.Config.DiskExtend", "ReconfigVM_Task"},
	{"the folder", "VirtualMachine.Interact.PowerOn", "PowerOnVM_Task"},
	{"the folder", "VirtualMachine.Interact.PowerOff", "PowerOffVM_Task"},
	{"the folder", "VirtualMachine.Inventory.Delete", "Destroy_Task"},
	{"the resource pools", "Resource.AssignVMToPool", "CloneVM_Task"},
	{"the datastore", "Datastore.AllocateSpace", "CloneVM_Task"},
	{"the network", "Network.Assign", "CloneVM_Task"},
}

// Privilege is one row of a role.
type Privilege struct{ On, ID, Method string }

// verifyPrivileges asks for all of them in one call.
func (p *Provider) verifyPrivileges(ctx context.Context, c *vim25.Client, s *site) error {
	entities := map[string][]types.ManagedObjectReference{
		"the template": {s.template.ref},
		"the folder":   {s.folder},
	}
	for _, in := range s.pools {
		entities["the resource pools"] = append(entities["the resource pools"], in.ref)
	}
	if s.datastore != nil {
		entities["the datastore"] = []types.ManagedObjectReference{*s.datastore}
	}
	if s.network != nil {
		entities["the network"] = []types.ManagedObjectReference{s.network.Reference()}
	}
	granted, err := p.granted(ctx, c, entities)
	if err != nil {
		return err
	}
	var missing []string
	for _, need := range Privileges {
		if slices.ContainsFunc(entities[need.On], func(e types.ManagedObjectReference) bool { return !granted[e][need.ID] }) {
			missing = append(missing, need.ID+" on "+need.On)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: -user-name (GOVC_USERNAME) %s lacks %s", provider.ErrPermissionDenied, p.cfg.User, strings.Join(missing, ", "))
	}
	return nil
}

// granted returns which privileges the session has on each entity.
func (p *Provider) granted(ctx context.Context, c *vim25.Client, entities map[string][]types.ManagedObjectReference) (map[types.ManagedObjectReference]map[string]bool, error) {
	key, err := p.conn.sessionKey(ctx)
	if err != nil {
		return nil, err
	}
	req := &types.HasPrivilegeOnEntities{This: *c.ServiceContent.AuthorizationManager, SessionId: key}
	for _, refs := range entities {
		req.Entity = append(req.Entity, refs...)
	}
	for _, need := range Privileges {
		if !slices.Contains(req.PrivId, need.ID) {
			req.PrivId = append(req.PrivId, need.ID)
		}
	}
	res, err := methods.HasPrivilegeOnEntities(ctx, c, req)
	if err != nil {
		return nil, fmt.Errorf("ask for privileges: %w", err)
	}
	answer := map[types.ManagedObjectReference]map[string]bool{}
	for _, entity := range res.Returnval {
		answer[entity.Entity] = map[string]bool{}
		for _, a := range entity.PrivAvailability {
			answer[entity.Entity][a.PrivId] = a.IsGranted
		}
	}
	return answer, nil
}

func (c *connection) sessionKey(ctx context.Context) (string, error) {
	unlock, err := c.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	return c.key, nil
}
