// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/to"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v8"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// machine is a virtual machine.
type machine struct {
	id    string
	model armcompute.VirtualMachine
	// provisioning, power and failure are its state.
	provisioning, power string
	failed              *failure
	created             time.Time
	cores               int64
	// turn counts operations: the steps of an older one do not go on.
	turn int
	// making is the operation of the PUT, removing that of the DELETE.
	making, removing *operation
	nics             []string // resource ids
	wrote            string   // on the console
}

// tags returns the tags of a model.
func tags(m map[string]*string) map[string]string {
	plain := map[string]string{}
	for name, v := range m {
		plain[name] = value(v)
	}
	return plain
}

func vmID(group, name string) string {
	return "/subscriptions/" + SubscriptionID + "/resourceGroups/" + group + "/providers/" + compute + "virtualMachines/" + name
}

// groupOf returns the resource group as it was first written.
func groupOf(k *call) string {
	for _, name := range groups {
		if strings.EqualFold(name, k.group) {
			return name
		}
	}
	return k.group
}

func pathName(r *http.Request) string {
	path := strings.TrimSuffix(r.URL.Path, "/")
	return path[strings.LastIndex(path, "/")+1:]
}

func (c *Cloud) putVM(k *call) *failure {
	body, err := io.ReadAll(http.MaxBytesReader(k.w, k.r.Body, 4<<20))
	if err != nil {
		return fail(http.StatusRequestEntityTooLarge, "RequestContentTooLarge", "The request content is too large.")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	model, f := c.readModel(k, body)
	if f != nil {
		return f
	}
	if f := c.precondition(k); f != nil {
		return f
	}
	vm := &machine{
		id: vmID(groupOf(k), pathName(k.r)), model: *model, provisioning: "Creating", created: time.Now().UTC(),
		cores: sizeNamed(string(value(model.Properties.HardwareProfile.VMSize))).cores,
	}
	c.vms[k.name()] = vm
	c.World.Add(cloudsim.KindInstance, vm.id, tags(model.Tags))
	vm.making = c.begin(k, computeOperations)
	c.make(vm)
	shown := c.view(vm, false)
	reply(k.w, http.StatusCreated, &shown)
	return nil
}

// readModel checks the body by the models and by the rules.
func (c *Cloud) readModel(k *call, body []byte) (*armcompute.VirtualMachine, *failure) {
	var tree any
	if err := json.Unmarshal(body, &tree); err != nil {
		return nil, fail(http.StatusBadRequest, "InvalidRequestContent", "The request content was invalid and could not be deserialized: %v", err)
	}
	if wrong := c.schema.check("VirtualMachine", tree, ""); len(wrong) > 0 {
		c.violate("PUT of a VM: %s", strings.Join(wrong, "; "))
		return nil, fail(http.StatusBadRequest, "InvalidRequestContent", "%s", strings.Join(wrong, "; "))
	}
	var model armcompute.VirtualMachine
	if err := json.Unmarshal(body, &model); err != nil {
		return nil, fail(http.StatusBadRequest, "InvalidRequestContent", "%v", err)
	}
	return &model, c.checkModel(k, &model)
}

// precondition is of the header If-None-Match.
func (c *Cloud) precondition(k *call) *failure {
	vm := c.vms[k.name()]
	header := k.r.Header.Get("If-None-Match")
	switch {
	case header != "" && header != "*":
		return fail(http.StatusBadRequest, "InvalidHeaderValue", "If-None-Match takes only *.")
	case vm == nil:
		return nil
	case vm.provisioning == "Deleting":
		return fail(http.StatusConflict, "Conflict", "The virtual machine '%s' is being deleted.", k.name())
	case header == "*":
		return fail(http.StatusPreconditionFailed, "PreconditionFailed", "The precondition If-None-Match failed: '%s' exists.", k.name())
	}
	c.violate("PUT would overwrite VM %s", k.name())
	return fail(http.StatusConflict, "PropertyChangeNotAllowed", "Changing the virtual machine '%s' is not allowed.", k.name())
}

// make takes a VM through its steps. The guest says that it is ready long after
// it runs.
func (c *Cloud) make(vm *machine) {
	stages := []stage{
		{1, func() { c.makeParts(vm) }},
		{1, func() { c.allocate(vm) }},
		{1, func() { vm.power, vm.wrote = "running", consoleText }},
		{37, func() {
			vm.provisioning = "Succeeded"
			vm.making.done()
		}},
	}
	switch c.options.Stuck {
	case Accepted:
		stages = nil
	case Running:
		stages = stages[:3]
	}
	c.walk(vm, vm.turn, stages)
}

// stage is what happens so many steps after the stage before it.
type stage struct {
	steps int
	do    func()
}

// walk goes through the stages unless another operation begins or the VM has
// failed.
func (c *Cloud) walk(vm *machine, turn int, stages []stage) {
	if len(stages) == 0 {
		return
	}
	c.after(stages[0].steps, func() {
		if vm.turn == turn && vm.provisioning == "Creating" {
			stages[0].do()
			c.walk(vm, turn, stages[1:])
		}
	})
}

func (c *Cloud) allocate(vm *machine) {
	f := c.struck("vm:allocate")
	if f == nil {
		vm.power = "starting"
		return
	}
	vm.provisioning, vm.failed = "Failed", fail(http.StatusConflict, f.Code, "%s", f.Message)
	vm.making.fail(f.Code, f.Message)
}

// view is the VM as Azure shows it. The user-data is shown to nobody who does
// not ask for it.
func (c *Cloud) view(vm *machine, withState bool) armcompute.VirtualMachine {
	shown := vm.model
	properties := *vm.model.Properties
	shown.Properties = &properties
	shown.ID, shown.Name, shown.Type = to.Ptr(vm.id), to.Ptr(last(vm.id)), to.Ptr(compute+"virtualMachines")
	properties.UserData = nil
	properties.ProvisioningState, properties.TimeCreated = to.Ptr(vm.provisioning), to.Ptr(vm.created)
	properties.VMID = to.Ptr("00000000-0000-4000-8000-" + fmt.Sprintf("%012x", vm.created.UnixNano()&0xffffffffffff))
	network := *properties.NetworkProfile
	properties.NetworkProfile, network.NetworkInterfaceConfigurations = &network, nil
	for i, id := range vm.nics {
		network.NetworkInterfaces = append(network.NetworkInterfaces, &armcompute.NetworkInterfaceReference{
			ID: to.Ptr(id), Properties: &armcompute.NetworkInterfaceReferenceProperties{Primary: to.Ptr(i == 0), DeleteOption: to.Ptr(armcompute.DeleteOptionsDelete)},
		})
	}
	if withState {
		properties.InstanceView = &armcompute.VirtualMachineInstanceView{Statuses: vm.statuses()}
	}
	return shown
}

// statuses are as "States and billing status of Azure Virtual Machines"
// (learn.microsoft.com) has them.
func (vm *machine) statuses() []*armcompute.InstanceViewStatus {
	code, message := "ProvisioningState/"+strings.ToLower(vm.provisioning), ""
	if vm.failed != nil {
		code, message = "ProvisioningState/failed/"+vm.failed.code, vm.failed.message
	}
	list := []*armcompute.InstanceViewStatus{{Code: to.Ptr(code), Message: to.Ptr(message)}}
	if vm.power != "" {
		list = append(list, &armcompute.InstanceViewStatus{Code: to.Ptr("PowerState/" + vm.power)})
	}
	return list
}

func last(id string) string { return id[strings.LastIndex(id, "/")+1:] }

// visible returns a VM that reads show already.
func (c *Cloud) visible(name string) *machine {
	vm := c.vms[strings.ToLower(name)]
	if vm == nil || !c.World.Visible(cloudsim.KindInstance, vm.id) {
		return nil
	}
	return vm
}

func notFound(kind, name string) *failure {
	return fail(http.StatusNotFound, "ResourceNotFound", "The Resource '%s/%s' under resource group '%s' was not found.", kind, name, ResourceGroup)
}

func (c *Cloud) listVMs(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	var items []any
	for _, name := range slices.Sorted(maps.Keys(c.vms)) {
		if vm := c.visible(name); vm != nil && inGroup(vm.id, k.group) {
			shown := c.view(vm, false)
			items = append(items, &shown)
		}
	}
	return c.page(k, items)
}

func inGroup(id, group string) bool {
	return strings.Contains(strings.ToLower(id), "/resourcegroups/"+group+"/")
}

func (c *Cloud) deleteVM(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	vm := c.vms[k.name()]
	if vm == nil {
		k.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if force := k.r.URL.Query().Get("forceDeletion"); force != "" && force != "true" && force != "false" {
		return fail(http.StatusBadRequest, "InvalidParameter", "forceDeletion is %q", force)
	}
	operation := c.begin(k, computeOperations)
	if vm.provisioning == "Deleting" {
		operation.done() // the first one goes on
		k.w.WriteHeader(http.StatusAccepted)
		return nil
	}
	if vm.provisioning == "Creating" {
		vm.making.status, vm.making.code, vm.making.message = canceled, "OperationPreempted", "The operation has been preempted by a more recent operation."
	}
	vm.turn++
	before := vm.provisioning
	// In the books it is not on its way out: the deletion may fail late, and
	// nobody else can have its name meanwhile.
	vm.provisioning, vm.removing = "Deleting", operation
	c.after(2, func() { c.finishRemoval(vm, before) })
	k.w.WriteHeader(http.StatusAccepted)
	return nil
}

// finishRemoval removes the VM, and with it what its model says.
func (c *Cloud) finishRemoval(vm *machine, before string) {
	if f := c.struck("vm:delete"); f != nil {
		vm.provisioning, vm.failed = before, nil
		if before == "Creating" {
			vm.provisioning, vm.failed = "Failed", fail(http.StatusConflict, "OperationPreempted", "The operation has been preempted by a more recent operation.")
		}
		vm.removing.fail(f.Code, f.Message)
		return
	}
	delete(c.vms, strings.ToLower(last(vm.id)))
	c.World.Remove(cloudsim.KindInstance, vm.id)
	vm.removing.done()
	c.releaseParts(vm, c.struck("vm:cascade") != nil)
}

func (c *Cloud) deallocate(k *call) *failure { return c.power(k, "deallocating", "deallocated") }
func (c *Cloud) start(k *call) *failure      { return c.power(k, "starting", "running") }

// power takes a VM to another power state.
func (c *Cloud) power(k *call, during, after string) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := k.names[1]
	vm := c.vms[name]
	switch {
	case vm == nil:
		return notFound(compute+"virtualMachines", name)
	case vm.provisioning == "Creating":
		return fail(http.StatusConflict, "Conflict", "The virtual machine is being created.")
	case vm.provisioning == "Deleting":
		return fail(http.StatusConflict, "OperationNotAllowed", "The virtual machine '%s' is marked for deletion.", name)
	case vm.provisioning == "Updating":
		return fail(http.StatusConflict, "AnotherOperationInProgress", "Another operation on this virtual machine is in progress.")
	}
	operation := c.begin(k, computeOperations)
	k.w.WriteHeader(http.StatusAccepted)
	if vm.power == after {
		operation.done()
		return nil
	}
	vm.turn++
	turn := vm.turn
	vm.provisioning, vm.power = "Updating", during
	c.after(2, func() {
		if vm.turn != turn {
			operation.fail("OperationPreempted", "The operation has been preempted by a more recent operation.")
			return
		}
		vm.provisioning, vm.power = "Succeeded", after
		operation.done()
		if after == "running" {
			vm.wrote += consoleText
		}
	})
	return nil
}
