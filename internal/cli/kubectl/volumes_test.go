// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"testing"
)

// TestDescribeVolumes: from the pod's volume to the disk, and what its driver said last.
func TestDescribeVolumes(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Pending"})["spec"].(o)["volumes"] = []any{
		o{"name": "data", "persistentVolumeClaim": o{"claimName": "data-0"}},
		o{"name": "scratch", "ephemeral": o{}},
		o{"name": "none", "emptyDir": o{}},
	}
	f.put(core("shop", "persistentvolumeclaims", "data-0"), o{"spec": o{"volumeName": "pvc-1", "storageClassName": "outrigger"},
		"status": o{"phase": "Bound", "capacity": o{"storage": "10Gi"}}})
	f.put(core("", "persistentvolumes", "pvc-1"), o{"spec": o{"csi": o{"driver": "csi.outrigger.dev", "volumeHandle": "vol-0a1b", "fsType": "ext4"}}, "status": o{"phase": "Bound"}})
	f.put(api(storageGroup, "", "volumeattachments"), o{"items": []any{
		o{"metadata": o{"name": "csi-1"}, "spec": o{"attacher": "csi.outrigger.dev", "nodeName": "node1", "source": o{"persistentVolumeName": "pvc-1"}},
			"status": o{"attached": false, "attachError": o{"message": "in use: instance i-7 has it"}}},
		o{"metadata": o{"name": "csi-2"}, "spec": o{"nodeName": "node2", "source": o{"persistentVolumeName": "pvc-2"}}},
	}})
	f.put(core("shop", "persistentvolumeclaims", "web-scratch"), o{"spec": o{"storageClassName": "outrigger"}, "status": o{"phase": "Pending"}})
	out := f.succeeds("describe", "pod", "web")
	wants(t, out, "Claim data-0: AttachFailed: in use: instance i-7 has it", "Claim web-scratch: Unbound", "kubectl describe pvc web-scratch -n shop", `├─ Volume data  Bound
│  └─ Claim data-0  Bound  (10Gi; class outrigger)
│     └─ PersistentVolume pvc-1  Bound  (disk vol-0a1b; driver csi.outrigger.dev; file system ext4)
│        └─ Attachment csi-1  attaching  (node node1)
└─ Volume scratch  Pending
   └─ Claim web-scratch  Pending  (class outrigger)
`)
	wantsNot(t, out, "csi-2", "none")
}

// TestCheckVolumes: a driver without what it needs is named, and a cluster without the driver is well.
func TestCheckVolumes(t *testing.T) {
	f := healthy(t)
	_, out, _ := f.run("check")
	wants(t, out, "csi.outrigger.dev is not installed")
	f.put(api(storageGroup, "", "csidrivers", "csi.outrigger.dev"), o{"metadata": o{"name": "csi.outrigger.dev"}})
	f.put(api(storageGroup, "", "storageclasses"), o{"items": []any{o{"provisioner": "ebs.csi.aws.com"}}})
	_, out, _ = f.run("check")
	wants(t, out, "outrigger-csi-controller")
	ready := func(name string, containers ...any) {
		status := o{"observedGeneration": 0, "desiredNumberScheduled": 1, "numberReady": 1, "updatedNumberScheduled": 1, "readyReplicas": 1, "updatedReplicas": 1}
		kind := "deployments"
		if name == volumeNode {
			kind = "daemonsets"
		}
		f.put(api(apps, "confidential-containers-system", kind, name), o{"metadata": o{"name": name},
			"spec": o{"replicas": 1, "template": o{"spec": o{"containers": containers}}}, "status": status})
	}
	ready(volumeNode)
	ready(volumeController, o{"name": "csi-provisioner"}, o{"name": "csi-resizer"})
	_, out, _ = f.run("check")
	wants(t, out, "lacks csi-attacher")
	ready(volumeController, o{"name": "csi-provisioner"}, o{"name": "csi-resizer"}, o{"name": "csi-attacher"})
	_, out, _ = f.run("check")
	wants(t, out, "no StorageClass has the provisioner csi.outrigger.dev")
	f.put(api(storageGroup, "", "storageclasses"), o{"items": []any{o{"provisioner": "csi.outrigger.dev"}}})
	_, out, _ = f.run("check")
	wantsNot(t, out, "no StorageClass", "csi.outrigger.dev is not installed", "lacks csi")
}
