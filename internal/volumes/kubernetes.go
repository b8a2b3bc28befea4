// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/provider"
)

// Indices of the cache, see [Index].
const (
	byHandle = "spec.csi.volumeHandle"
	byNodeID = "spec.drivers.nodeID"
)

// Kubernetes are the pods of a cluster.
type Kubernetes struct {
	// Driver is the name of the CSI driver whose volumes are asked about.
	Driver string
	// Cache finds volumes and nodes by their ids; the controller needs it, with [Index].
	Cache client.Reader
	// API reads what must not be old.
	API client.Reader
	// Handlers are the runtime handlers whose pods run in VMs.
	Handlers []string
}

// Index adds the indices that the [Kubernetes] of a driver needs to a cache.
func Index(ctx context.Context, cache client.FieldIndexer, driver string) error {
	err := cache.IndexField(ctx, &corev1.PersistentVolume{}, byHandle, func(o client.Object) []string {
		if source := o.(*corev1.PersistentVolume).Spec.CSI; source != nil && source.Driver == driver {
			return []string{source.VolumeHandle}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return cache.IndexField(ctx, &storagev1.CSINode{}, byNodeID, func(o client.Object) []string {
		if id := nodeIDOf(o.(*storagev1.CSINode), driver); id != "" {
			return []string{id}
		}
		return nil
	})
}

func nodeIDOf(n *storagev1.CSINode, driver string) string {
	for _, d := range n.Spec.Drivers {
		if d.Name == driver {
			return d.NodeID
		}
	}
	return ""
}

// Placement implements [Workloads].
func (k *Kubernetes) Placement(ctx context.Context, volumeID, nodeID string) (Placement, error) {
	claim, err := k.claimOf(ctx, volumeID)
	if err != nil {
		return "", err
	}
	node, err := k.nodeOf(ctx, nodeID)
	if err != nil {
		return "", err
	}
	var pods corev1.PodList
	if err := k.API.List(ctx, &pods, client.InNamespace(claim.Namespace), client.MatchingFields{"spec.nodeName": node}); err != nil {
		return "", unavailable(err, "list the pods of node %s in namespace %s", node, claim.Namespace)
	}
	return k.placementOf(ctx, pods.Items, claim, node)
}

// placementOf returns the one placement of the pods that use a claim.
func (k *Kubernetes) placementOf(ctx context.Context, pods []corev1.Pod, claim client.ObjectKey, node string) (Placement, error) {
	users := map[Placement]string{}
	for i := range pods {
		p := &pods[i]
		if !uses(p, claim.Name) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		where, err := k.placement(ctx, p)
		if err != nil {
			return "", err
		}
		users[where] = p.Name
	}
	switch {
	case len(users) == 0:
		return "", fmt.Errorf("%w: no pod of claim %s is on node %s", errPrecondition, claim, node)
	case len(users) > 1:
		return "", fmt.Errorf("%w: on node %s claim %s is used by pod %s, which runs in a VM, and by pod %s, which does not: a disk is either the VM's or the node's: delete one of the pods",
			errPrecondition, node, claim, users[InVM], users[OnNode])
	case users[InVM] != "":
		return InVM, nil
	}
	return OnNode, nil
}

// claimOf returns the claim that a volume is bound to.
func (k *Kubernetes) claimOf(ctx context.Context, volumeID string) (client.ObjectKey, error) {
	var found corev1.PersistentVolumeList
	if err := k.Cache.List(ctx, &found, client.MatchingFields{byHandle: volumeID}); err != nil {
		return client.ObjectKey{}, unavailable(err, "find the PersistentVolume of volume %s", volumeID)
	}
	if len(found.Items) == 0 && k.Driver != Name {
		if err := k.listed(ctx, volumeID, &found); err != nil {
			return client.ObjectKey{}, err
		}
	}
	var claims []client.ObjectKey
	for i := range found.Items {
		var pv corev1.PersistentVolume // as it is now
		if err := k.API.Get(ctx, client.ObjectKeyFromObject(&found.Items[i]), &pv); err != nil {
			return client.ObjectKey{}, unavailable(err, "read PersistentVolume %s", found.Items[i].Name)
		}
		if ref := pv.Spec.ClaimRef; ref != nil && pv.Status.Phase != corev1.VolumeReleased {
			claims = append(claims, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
		}
	}
	switch len(claims) {
	case 1:
		return claims[0], nil
	case 0:
		if len(found.Items) > 0 {
			return client.ObjectKey{}, fmt.Errorf("%w: PersistentVolume %s of volume %s has no claim", provider.ErrUnavailable, found.Items[0].Name, volumeID)
		}
		return client.ObjectKey{}, fmt.Errorf("%w %s", errNoVolume, volumeID)
	}
	return client.ObjectKey{}, fmt.Errorf("%w: volume %s is that of several PersistentVolumes, with the claims %s and %s: delete one of them", errPrecondition, volumeID, claims[0], claims[1])
}

// listed finds what the cache may not have yet: for a wrapped driver "none" is a decision.
func (k *Kubernetes) listed(ctx context.Context, volumeID string, found *corev1.PersistentVolumeList) error {
	if err := k.API.List(ctx, found); err != nil {
		return unavailable(err, "find the PersistentVolume of volume %s", volumeID)
	}
	found.Items = slices.DeleteFunc(found.Items, func(pv corev1.PersistentVolume) bool {
		return pv.Spec.CSI == nil || pv.Spec.CSI.Driver != k.Driver || pv.Spec.CSI.VolumeHandle != volumeID
	})
	return nil
}

// nodeOf returns the name of the Node that has an id of [NodeOptions.ID].
func (k *Kubernetes) nodeOf(ctx context.Context, id string) (string, error) {
	var found storagev1.CSINodeList
	if err := k.Cache.List(ctx, &found, client.MatchingFields{byNodeID: id}); err != nil {
		return "", unavailable(err, "find the Node with id %s", id)
	}
	switch len(found.Items) {
	case 1:
		return found.Items[0].Name, nil
	case 0:
		return "", fmt.Errorf("%w: no Node has the id %s in its CSINode", provider.ErrNotFound, id)
	}
	return "", fmt.Errorf("%w: Nodes %s and %s both have the id %s in their CSINode", errPrecondition, found.Items[0].Name, found.Items[1].Name, id)
}

// uses reports whether a pod has a claim.
func uses(p *corev1.Pod, claim string) bool {
	return slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
		return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == claim ||
			v.Ephemeral != nil && p.Name+"-"+v.Name == claim // a generic ephemeral volume's claim
	})
}

// placement returns where a pod runs, which its RuntimeClass says.
func (k *Kubernetes) placement(ctx context.Context, p *corev1.Pod) (Placement, error) {
	if p.Spec.RuntimeClassName == nil || *p.Spec.RuntimeClassName == "" {
		return OnNode, nil
	}
	var class nodev1.RuntimeClass
	if err := k.API.Get(ctx, client.ObjectKey{Name: *p.Spec.RuntimeClassName}, &class); err != nil {
		return "", unavailable(err, "read RuntimeClass %s of pod %s/%s", *p.Spec.RuntimeClassName, p.Namespace, p.Name)
	}
	if slices.Contains(k.Handlers, class.Handler) {
		return InVM, nil
	}
	return OnNode, nil
}

// Pod implements [Workloads].
func (k *Kubernetes) Pod(ctx context.Context, namespace, name, uid string) (*Pod, error) {
	if namespace == "" || name == "" || uid == "" {
		return nil, invalid("volume_context does not name the pod: podInfoOnMount of CSIDriver %s must be true", k.Driver)
	}
	var p corev1.Pod
	if err := k.API.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p); err != nil {
		return nil, unavailable(err, "read pod %s/%s", namespace, name)
	}
	// The API server has a static pod's mirror, whose UID is another.
	if mirror := p.Annotations[corev1.MirrorPodAnnotationKey]; string(p.UID) != uid && mirror != uid {
		return nil, fmt.Errorf("%w: pod %s/%s with UID %s is gone: the one of that name has UID %s", errPrecondition, namespace, name, uid, p.UID)
	}
	where, err := k.placement(ctx, &p)
	if err != nil {
		return nil, err
	}
	pod := &Pod{Placement: where}
	if s := p.Spec.SecurityContext; s != nil {
		pod.FSGroup = s.FSGroup
		pod.FSGroupChangePolicy = string(*cmp.Or(s.FSGroupChangePolicy, new(corev1.PodFSGroupChangePolicy)))
	}
	return pod, nil
}

// Attached implements [Workloads].
func (k *Kubernetes) Attached(ctx context.Context, volumeID, nodeID string) (found Placement, err error) {
	err = k.eachAttachment(ctx, k.API, func(volume, node string, where Placement) {
		if volume == volumeID && node == nodeID {
			found = where
		}
	})
	return found, err
}

// IsNode implements [Workloads]: the instance is in the CSINode of the driver, or in the Node's providerID.
func (k *Kubernetes) IsNode(ctx context.Context, instanceID string) (bool, error) {
	var drivers storagev1.CSINodeList
	var nodes corev1.NodeList
	if err := cmp.Or(k.Cache.List(ctx, &drivers), k.Cache.List(ctx, &nodes)); err != nil {
		return false, unavailable(err, "list the Nodes, of which one may be instance %s", instanceID)
	}
	end := "/" + strings.ToLower(strings.TrimPrefix(instanceID, "/")) // Azure keeps no case
	return slices.ContainsFunc(drivers.Items, func(n storagev1.CSINode) bool { return nodeIDOf(&n, k.Driver) == instanceID }) ||
		slices.ContainsFunc(nodes.Items, func(n corev1.Node) bool { return strings.HasSuffix(strings.ToLower(n.Spec.ProviderID), end) }), nil
}

// InVMs implements [Workloads]: the publish context is in the VolumeAttachments.
func (k *Kubernetes) InVMs(ctx context.Context) (map[string][]string, error) {
	all := map[string][]string{}
	err := k.eachAttachment(ctx, k.Cache, func(volume, node string, where Placement) {
		if where == InVM {
			all[volume] = append(all[volume], node)
		}
	})
	return all, err
}

// eachAttachment calls do for each VolumeAttachment that says that a volume of ours is attached.
func (k *Kubernetes) eachAttachment(ctx context.Context, from client.Reader, do func(volumeID, nodeID string, where Placement)) error {
	var attachments storagev1.VolumeAttachmentList
	if err := from.List(ctx, &attachments); err != nil {
		return unavailable(err, "list VolumeAttachments")
	}
	for _, a := range attachments.Items {
		if a.Spec.Attacher != k.Driver || !a.Status.Attached || a.Spec.Source.PersistentVolumeName == nil {
			continue
		}
		var pv corev1.PersistentVolume
		var node storagev1.CSINode
		if k.Cache.Get(ctx, client.ObjectKey{Name: *a.Spec.Source.PersistentVolumeName}, &pv) != nil || pv.Spec.CSI == nil ||
			k.Cache.Get(ctx, client.ObjectKey{Name: a.Spec.NodeName}, &node) != nil || nodeIDOf(&node, k.Driver) == "" {
			continue // of a volume or a Node that is gone
		}
		where := cmp.Or(Placement(a.Status.AttachmentMetadata[keyPlacement]), OnNode) // another driver's has no such key
		do(pv.Spec.CSI.VolumeHandle, nodeIDOf(&node, k.Driver), where)
	}
	return nil
}

// unavailable returns an error with the class that the API server's has here: what is not there
// may come, and everything else is tried again.
func unavailable(err error, format string, args ...any) error {
	class := provider.ErrUnavailable
	if apierrors.IsForbidden(err) {
		class = provider.ErrPermissionDenied
	}
	return fmt.Errorf("%w: "+format+": %v", append(append([]any{class}, args...), err)...)
}
