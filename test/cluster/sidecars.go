// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	// sidecarPeriod is how often they look at their objects.
	sidecarPeriod = 100 * time.Millisecond
	// attachFinalizer keeps a VolumeAttachment until its volume is detached, as external-attacher's does.
	attachFinalizer = "external-attacher/" + csiDriver
	// selectedNode is the scheduler's, on a claim that waits for its first pod.
	selectedNode = "volume.kubernetes.io/selected-node"
)

// sidecars do what external-provisioner, external-attacher and external-resizer document, for
// volumes that are made, attached, grown and deleted one after the other.
type sidecars struct {
	t      testing.TB
	api    kubernetes.Interface
	driver csi.ControllerClient
}

func startSidecars(t testing.TB, api kubernetes.Interface, conn *grpc.ClientConn) {
	s := &sidecars{t: t, api: api, driver: csi.NewControllerClient(conn)}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for poll.Sleep(ctx, sidecarPeriod) == nil {
			for _, step := range []func(context.Context) error{s.provision, s.remove, s.attach, s.resize} {
				if err := step(ctx); err != nil && ctx.Err() == nil {
					s.t.Log("sidecar: ", err)
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// provision makes volumes of claims.
func (s *sidecars) provision(ctx context.Context) error {
	list, err := s.api.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		pvc := &list.Items[i]
		if pvc.Status.Phase != corev1.ClaimPending || pvc.Spec.VolumeName != "" || pvc.Spec.StorageClassName == nil {
			continue
		}
		class, err := s.api.StorageV1().StorageClasses().Get(ctx, *pvc.Spec.StorageClassName, metav1.GetOptions{})
		if err != nil || class.Provisioner != csiDriver {
			continue
		}
		if *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer && pvc.Annotations[selectedNode] == "" {
			continue
		}
		if err := s.create(ctx, pvc, class); err != nil {
			return fmt.Errorf("provision %s: %w", pvc.Name, err)
		}
	}
	return nil
}

func (s *sidecars) create(ctx context.Context, pvc *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) error {
	name, fs := "pvc-"+string(pvc.UID), cmp.Or(class.Parameters["csi.storage.k8s.io/fstype"], "ext4")
	if pvc.Spec.VolumeMode != nil && *pvc.Spec.VolumeMode == corev1.PersistentVolumeBlock {
		fs = ""
	}
	if _, err := s.api.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{}); err == nil {
		return nil
	}
	parameters := map[string]string{}
	for key, value := range class.Parameters {
		if !strings.HasPrefix(key, "csi.storage.k8s.io/") {
			parameters[key] = value
		}
	}
	source, err := s.source(ctx, pvc)
	if err != nil {
		return err
	}
	size := pvc.Spec.Resources.Requests[corev1.ResourceStorage]
	made, err := s.driver.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: name, CapacityRange: &csi.CapacityRange{RequiredBytes: size.Value()}, Parameters: parameters,
		VolumeCapabilities: []*csi.VolumeCapability{capability(pvc.Spec.VolumeMode, fs)}, VolumeContentSource: source,
	})
	if err != nil {
		return err
	}
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": csiDriver}}}
	pv.Spec = corev1.PersistentVolumeSpec{
		Capacity:                      corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(made.Volume.CapacityBytes, resource.BinarySI)},
		AccessModes:                   pvc.Spec.AccessModes,
		ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: pvc.Namespace, Name: pvc.Name, UID: pvc.UID},
		PersistentVolumeReclaimPolicy: *class.ReclaimPolicy, StorageClassName: class.Name, MountOptions: class.MountOptions, VolumeMode: pvc.Spec.VolumeMode,
	}
	pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: csiDriver, VolumeHandle: made.Volume.VolumeId, FSType: fs, VolumeAttributes: made.Volume.VolumeContext,
		NodeStageSecretRef: secretOf(class, pvc, "node-stage"), NodePublishSecretRef: secretOf(class, pvc, "node-publish")}
	_, err = s.api.CoreV1().PersistentVolumes().Create(ctx, pv, metav1.CreateOptions{})
	return err
}

// secretOf returns the Secret that a class names for a call of the node (external-provisioner's StorageClass parameters).
func secretOf(class *storagev1.StorageClass, pvc *corev1.PersistentVolumeClaim, call string) *corev1.SecretReference {
	const prefix = "csi.storage.k8s.io/"
	name := class.Parameters[prefix+call+"-secret-name"]
	if name == "" {
		return nil
	}
	namespace := strings.ReplaceAll(class.Parameters[prefix+call+"-secret-namespace"], "${pvc.namespace}", pvc.Namespace)
	return &corev1.SecretReference{Name: strings.ReplaceAll(name, "${pvc.name}", pvc.Name), Namespace: namespace}
}

// source returns the volume of the claim of which a claim is to be a copy; nil if it is of none.
func (s *sidecars) source(ctx context.Context, pvc *corev1.PersistentVolumeClaim) (*csi.VolumeContentSource, error) {
	of := pvc.Spec.DataSource
	if of == nil {
		return nil, nil
	}
	if of.Kind != "PersistentVolumeClaim" {
		return nil, fmt.Errorf("claim %s: a copy of a %s: the cluster of the tests has copies of claims", pvc.Name, of.Kind)
	}
	from, err := s.api.CoreV1().PersistentVolumeClaims(pvc.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	pv, err := s.api.CoreV1().PersistentVolumes().Get(ctx, from.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return &csi.VolumeContentSource{Type: &csi.VolumeContentSource_Volume{Volume: &csi.VolumeContentSource_VolumeSource{VolumeId: pv.Spec.CSI.VolumeHandle}}}, nil
}

func capability(mode *corev1.PersistentVolumeMode, fs string) *csi.VolumeCapability {
	c := &csi.VolumeCapability{
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fs}},
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
	}
	if mode != nil && *mode == corev1.PersistentVolumeBlock {
		c.AccessType = &csi.VolumeCapability_Block{Block: &csi.VolumeCapability_BlockVolume{}}
	}
	return c
}

// remove deletes volumes whose claims are gone, when nothing has them attached.
func (s *sidecars) remove(ctx context.Context) error {
	list, err := s.api.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	attachments, err := s.api.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pv := range list.Items {
		if slices.ContainsFunc(attachments.Items, func(va storagev1.VolumeAttachment) bool { return *va.Spec.Source.PersistentVolumeName == pv.Name }) {
			continue // external-attacher has a finalizer on it
		}
		if pv.Spec.CSI == nil || pv.Spec.CSI.Driver != csiDriver || pv.Status.Phase != corev1.VolumeReleased || pv.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete {
			continue
		}
		if _, err := s.driver.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle}); err != nil {
			continue // in use: later
		}
		if err := s.api.CoreV1().PersistentVolumes().Delete(ctx, pv.Name, metav1.DeleteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// attach publishes and unpublishes volumes as VolumeAttachments say.
func (s *sidecars) attach(ctx context.Context) error {
	list, err := s.api.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		va := &list.Items[i]
		done := va.Status.Attached && va.DeletionTimestamp == nil
		if va.Spec.Attacher != csiDriver || done || va.DeletionTimestamp != nil && !slices.Contains(va.Finalizers, attachFinalizer) {
			continue
		}
		if err := s.follow(ctx, va); err != nil {
			return fmt.Errorf("VolumeAttachment of %s: %w", *va.Spec.Source.PersistentVolumeName, err)
		}
	}
	return nil
}

func (s *sidecars) follow(ctx context.Context, va *storagev1.VolumeAttachment) error {
	pv, err := s.api.CoreV1().PersistentVolumes().Get(ctx, *va.Spec.Source.PersistentVolumeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node, err := s.nodeID(ctx, va.Spec.NodeName)
	if err != nil {
		return err
	}
	if va.DeletionTimestamp != nil {
		if _, err := s.driver.ControllerUnpublishVolume(ctx, &csi.ControllerUnpublishVolumeRequest{VolumeId: pv.Spec.CSI.VolumeHandle, NodeId: node}); err != nil {
			return err
		}
		return s.patchAttachment(ctx, va.Name, "", map[string]any{"metadata": map[string]any{"finalizers": nil}})
	}
	if err := s.patchAttachment(ctx, va.Name, "", map[string]any{"metadata": map[string]any{"finalizers": []string{attachFinalizer}}}); err != nil {
		return err
	}
	published, err := s.driver.ControllerPublishVolume(ctx, &csi.ControllerPublishVolumeRequest{
		VolumeId: pv.Spec.CSI.VolumeHandle, NodeId: node, VolumeCapability: capability(pv.Spec.VolumeMode, pv.Spec.CSI.FSType), VolumeContext: pv.Spec.CSI.VolumeAttributes,
	})
	if err != nil {
		return err
	}
	return s.patchAttachment(ctx, va.Name, "status", map[string]any{"status": map[string]any{"attached": true, "attachmentMetadata": published.PublishContext}})
}

func (s *sidecars) nodeID(ctx context.Context, node string) (string, error) {
	n, err := s.api.StorageV1().CSINodes().Get(ctx, node, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	for _, d := range n.Spec.Drivers {
		if d.Name == csiDriver {
			return d.NodeID, nil
		}
	}
	return "", fmt.Errorf("node %s does not have the driver", node)
}

func (s *sidecars) patchAttachment(ctx context.Context, name, subresource string, patch map[string]any) error {
	data, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	var sub []string
	if subresource != "" {
		sub = append(sub, subresource)
	}
	_, err = s.api.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{}, sub...)
	return err
}

// resize grows volumes whose claims ask for more.
func (s *sidecars) resize(ctx context.Context) error {
	list, err := s.api.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, pvc := range list.Items {
		if pvc.Status.Phase != corev1.ClaimBound {
			continue
		}
		pv, err := s.api.CoreV1().PersistentVolumes().Get(ctx, pvc.Spec.VolumeName, metav1.GetOptions{})
		if err != nil || pv.Spec.CSI == nil || pv.Spec.CSI.Driver != csiDriver {
			continue
		}
		want, have := pvc.Spec.Resources.Requests[corev1.ResourceStorage], pv.Spec.Capacity[corev1.ResourceStorage]
		if want.Cmp(have) <= 0 {
			continue
		}
		grown, err := s.driver.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: pv.Spec.CSI.VolumeHandle, CapacityRange: &csi.CapacityRange{RequiredBytes: want.Value()}, VolumeCapability: capability(pv.Spec.VolumeMode, pv.Spec.CSI.FSType),
		})
		if err != nil {
			return fmt.Errorf("expand %s: %w", pvc.Name, err)
		}
		if err := s.noteSize(ctx, &pvc, pv.Name, grown); err != nil {
			return err
		}
	}
	return nil
}

func (s *sidecars) noteSize(ctx context.Context, pvc *corev1.PersistentVolumeClaim, pv string, grown *csi.ControllerExpandVolumeResponse) error {
	size := resource.NewQuantity(grown.CapacityBytes, resource.BinarySI).String()
	// The claim first: a volume that has its size is not looked at again.
	status := fmt.Sprintf(`{"status":{"capacity":{"storage":%q},"allocatedResources":{"storage":%[1]q}}}`, size)
	if grown.NodeExpansionRequired {
		status = fmt.Sprintf(`{"status":{"conditions":[{"type":%q,"status":"True"}],"allocatedResources":{"storage":%q},"allocatedResourceStatuses":{"storage":"NodeResizePending"}}}`,
			corev1.PersistentVolumeClaimFileSystemResizePending, size)
	}
	if _, err := s.api.CoreV1().PersistentVolumeClaims(pvc.Namespace).Patch(ctx, pvc.Name, types.MergePatchType, []byte(status), metav1.PatchOptions{}, "status"); err != nil {
		return err
	}
	_, err := s.api.CoreV1().PersistentVolumes().Patch(ctx, pv, types.MergePatchType, []byte(fmt.Sprintf(`{"spec":{"capacity":{"storage":%q}}}`, size)), metav1.PatchOptions{})
	return err
}
