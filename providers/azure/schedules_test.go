// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/test/cloudsim"
	azuresim "github.com/outrigger/outrigger/test/cloudsim/azure"
)

const compute, network = "Microsoft.Compute/", "Microsoft.Network/"

// scheduleFaults is what may happen at any time.
var scheduleFaults = []cloudsim.Fault{
	cloudsim.LostReply(compute + "virtualMachines/write"),
	cloudsim.LostReply(compute + "virtualMachines/delete"),
	cloudsim.LostReply(network + "networkInterfaces/delete"),
	cloudsim.LostReply(compute + "disks/delete"),
	cloudsim.Unreachable(compute + "virtualMachines/write"),
	cloudsim.Unreachable(compute + "virtualMachines/*"),
	cloudsim.Unreachable(network + "*/read"),
	cloudsim.Unreachable("token"),
	cloudsim.Slow(compute+"virtualMachines/write", 15*time.Millisecond), cloudsim.GoesOn(compute+"virtualMachines/write", 15*time.Millisecond),
	cloudsim.Slow(compute+"virtualMachines/read", 10*time.Millisecond),
	cloudsim.Slow(compute+"virtualMachines/delete", 10*time.Millisecond),
	cloudsim.Refused(compute+"virtualMachines/write", 429, "TooManyRequests"),
	cloudsim.Refused(compute+"virtualMachines/read", 429, "TooManyRequests").Repeated(6),
	cloudsim.Refused(compute+"virtualMachines/write", 503, "ServiceUnavailable").Repeated(6),
	cloudsim.Refused(compute+"virtualMachines/write", 500, "InternalExecutionError"),
	cloudsim.Refused(compute+"virtualMachines/write", 409, "SkuNotAvailable"),
	cloudsim.Refused(compute+"virtualMachines/write", 409, "AllocationFailed"),
	cloudsim.Refused(compute+"virtualMachines/write", 403, "AuthorizationFailed"),
	cloudsim.Refused(compute+"virtualMachines/read", 403, "AuthorizationFailed"),
	cloudsim.Refused(compute+"virtualMachines/delete", 409, "AnotherOperationInProgress"),
	cloudsim.Refused(compute+"virtualMachines/delete", 500, "InternalExecutionError").Repeated(6),
	cloudsim.Refused(network+"networkInterfaces/delete", 400, "NicReservedForAnotherVm"),
	cloudsim.Refused(network+"networkInterfaces/read", 500, "InternalServerError").Repeated(6),
	// A server that does the work and then answers with an error.
	{Action: compute + "virtualMachines/write", Status: 500, Code: "InternalExecutionError", After: true},
	{Action: compute + "virtualMachines/delete", Status: 503, Code: "ServiceUnavailable", After: true},
	// Steps inside the cloud.
	cloudsim.Refused("vm:allocate", 0, "AllocationFailed"),
	cloudsim.Refused("vm:allocate", 0, "ZonalAllocationFailed"),
	cloudsim.Refused("vm:allocate", 0, "InternalExecutionError"),
	cloudsim.Refused("vm:delete", 0, "InternalExecutionError"),
	cloudsim.Refused("vm:cascade", 0, "broken"),
}

// TestSchedules has several zones, so that capacity is looked for elsewhere,
// public addresses, and another cluster in the resource group whose sandboxes
// have the same ids.
func TestSchedules(t *testing.T) {
	cloudsim.RunSchedules(t, 1000, func(t testing.TB, random *rand.Rand) cloudsim.Stand {
		cloud := azuresim.New(t, azuresim.Options{})
		for _, key := range cloudsim.ScheduleKeys() {
			foreign := cloudsim.ForeignTags(key)
			cloud.AddForeign(vmName(foreign[provider.TagCluster], key), foreign)
		}
		cloud.AddForeign("aks-nodepool1-vm0", map[string]string{"aks-managed-poolName": "nodepool1"})
		cfg := workload(t, cloud)
		cfg.UsePublicIP = random.IntN(2) == 0
		if random.IntN(2) == 0 {
			cfg.Zones = []string{"1", "2"}
		}
		t.Cleanup(func() {
			for _, wrong := range cloud.Wrong() {
				t.Error(wrong)
			}
		})
		s := &stand{t: t, cloud: cloud, cfg: cfg}
		return cloudsim.Stand{
			World:  cloud.World,
			Open:   func() (provider.Provider, error) { return s.reopen(), nil },
			Spec:   provider.InstanceTypeSpec{MultiNic: random.IntN(4) == 0},
			Faults: scheduleFaults, MaxLag: 3,
		}
	})
}
