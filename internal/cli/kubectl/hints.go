// SPDX-License-Identifier: Apache-2.0

package kubectl

import "strings"

// scheduleHint returns what to do about a pod that no node takes.
func scheduleHint(message string) string {
	switch {
	case strings.Contains(message, VMResource):
		return "the nodes have no place for another pod VM: see `kubectl outrigger top`; raise PEERPODS_LIMIT_PER_NODE in " + configMapName + ", or add a node"
	case strings.Contains(message, "node selector"), strings.Contains(message, "affinity"):
		return "label the nodes that may have pod VMs: kubectl label node NODE " + workerLabel + "="
	}
	return "see the requests, node selector and tolerations of the pod, and the scheduling of RuntimeClass " + RuntimeClass
}

// waitingHint returns what to do about a container that does not start.
func waitingHint(reason string) string {
	switch reason {
	case "ImagePullBackOff", "ErrImagePull", "InvalidImageName":
		return "see that the image exists, that the VM reaches the registry, and that the pod names its imagePullSecrets"
	case "CrashLoopBackOff":
		return "see what it said: kubectl logs --previous"
	}
	return "see what the VM said: kubectl outrigger logs --console"
}
