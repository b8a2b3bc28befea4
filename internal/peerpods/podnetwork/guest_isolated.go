// SPDX-License-Identifier: Apache-2.0

package podnetwork

import "fmt"

// SetupIsolated makes the pod's namespace in the VM with nothing but loopback,
// for a sandbox that has no network namespace on the node. Calling it again is
// harmless.
func SetupIsolated(podNetns string) error {
	pod, err := ensureNamespace(podNetns)
	if err != nil {
		return fmt.Errorf("set up the pod's namespace in the VM: %w", err)
	}
	defer pod.Close()
	if err := pod.loopbackUp(); err != nil {
		return fmt.Errorf("set up the pod's namespace in the VM: %w", err)
	}
	return nil
}
