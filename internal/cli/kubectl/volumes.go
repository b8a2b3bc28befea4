// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/internal/directvolume"
)

const (
	storageGroup = "/apis/storage.k8s.io/v1"
	// The programs of our CSI driver.
	volumeController = "outrigger-csi-controller"
	volumeNode       = "outrigger-csi-node"
)

// claimsOfVolumes returns the names of the claims of a pod's volumes, by volume.
func (p *pod) claimsOfVolumes() (claims [][2]string) {
	for _, v := range p.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			claims = append(claims, [2]string{v.Name, v.PersistentVolumeClaim.ClaimName})
		case v.Ephemeral != nil:
			claims = append(claims, [2]string{v.Name, p.Metadata.Name + "-" + v.Name}) // as Kubernetes names them
		}
	}
	return claims
}

// addVolumes adds the pod's volumes to its tree: claim, PersistentVolume with the disk, attachment.
func (d *Description) addVolumes(ctx context.Context, c *cluster) error {
	claims := d.pod.claimsOfVolumes()
	if len(claims) == 0 {
		return nil
	}
	attachments, err := list[storagev1.VolumeAttachment](ctx, c, api(storageGroup, "", "volumeattachments"), nil)
	if err != nil && !apierrors.IsForbidden(err) {
		return fmt.Errorf("list VolumeAttachments: %w", err)
	}
	for _, of := range claims {
		part, err := d.ofVolume(ctx, c, of[1], attachments)
		if err != nil {
			return err
		}
		d.Tree.Parts = append(d.Tree.Parts, &Part{Kind: "Volume", Name: of[0], State: part.State, Parts: []*Part{part}})
	}
	return nil
}

func (d *Description) ofVolume(ctx context.Context, c *cluster, name string, attachments []storagev1.VolumeAttachment) (*Part, error) {
	where := "Claim " + name
	var claim corev1.PersistentVolumeClaim
	err := c.Get(ctx, core(d.pod.Metadata.Namespace, "persistentvolumeclaims", name), &claim)
	switch {
	case apierrors.IsNotFound(err):
		d.problem(where, "NoClaim", "the pod's namespace has no PersistentVolumeClaim of that name", "create it: the pod waits for it")
		return &Part{Kind: "Claim", Name: name, State: "missing"}, nil
	case err != nil:
		return nil, fmt.Errorf("look at PersistentVolumeClaim %s: %w", name, err)
	}
	part := &Part{Kind: "Claim", Name: name, State: string(claim.Status.Phase), Detail: compact(sizeOf(claim.Status.Capacity))}
	if claim.Spec.StorageClassName != nil {
		part.Detail = append(part.Detail, prefix("class ", *claim.Spec.StorageClassName))
	}
	if claim.Spec.VolumeName == "" {
		d.problem(where, "Unbound", "no PersistentVolume is bound to it", "see why: kubectl describe pvc "+name+" -n "+d.pod.Metadata.Namespace)
		return part, nil
	}
	volume, err := volumePart(ctx, c, claim.Spec.VolumeName)
	if err != nil {
		return nil, err
	}
	part.Parts = []*Part{volume}
	for i := range attachments {
		if a := &attachments[i]; a.Spec.Source.PersistentVolumeName != nil && *a.Spec.Source.PersistentVolumeName == claim.Spec.VolumeName {
			volume.Parts = append(volume.Parts, d.ofAttachment(a, where))
		}
	}
	return part, nil
}

func sizeOf(resources corev1.ResourceList) string {
	if size, ok := resources[corev1.ResourceStorage]; ok {
		return size.String()
	}
	return ""
}

func volumePart(ctx context.Context, c *cluster, name string) (*Part, error) {
	var volume corev1.PersistentVolume
	if err := c.Get(ctx, core("", "persistentvolumes", name), &volume); apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return &Part{Kind: "PersistentVolume", Name: name, State: "unknown", Detail: []string{firstLine(err.Error())}}, nil
	} else if err != nil {
		return nil, fmt.Errorf("look at PersistentVolume %s: %w", name, err)
	}
	part := &Part{Kind: "PersistentVolume", Name: name, State: string(volume.Status.Phase)}
	if csi := volume.Spec.CSI; csi != nil {
		part.Detail = compact("disk "+csi.VolumeHandle, "driver "+csi.Driver, prefix("file system ", csi.FSType))
	}
	return part, nil
}

// ofAttachment describes where a disk is attached, as the driver has said.
func (d *Description) ofAttachment(a *storagev1.VolumeAttachment, where string) *Part {
	part := &Part{Kind: "Attachment", Name: a.Name, State: "attaching", Detail: compact("node "+a.Spec.NodeName, prefix("placement ", a.Status.AttachmentMetadata["outrigger.dev/placement"]),
		prefix("serial number ", a.Status.AttachmentMetadata["outrigger.dev/serial"]))}
	if a.Status.Attached {
		part.State = "attached"
	}
	for reason, e := range map[string]*storagev1.VolumeError{"AttachFailed": a.Status.AttachError, "DetachFailed": a.Status.DetachError} {
		if e != nil {
			d.problem(where, reason, e.Message, "see docs/volumes.md")
		}
	}
	return part
}

// sidecars are the containers without which the driver's controller does nothing.
var sidecars = []string{"csi-provisioner", "csi-attacher", "csi-resizer"}

// volumes checks the CSI driver, if it is installed.
func (k *checker) volumes(ctx context.Context) doctor.Result {
	const hint = "kubectl apply -k deploy/csi"
	err := k.c.Get(ctx, api(storageGroup, "", "csidrivers", directvolume.Driver), &object{})
	if apierrors.IsNotFound(err) {
		return doctor.Good("the CSI driver %s is not installed: pods have no volumes of it", directvolume.Driver)
	}
	if err != nil {
		return unread(err, "CSIDriver "+directvolume.Driver)
	}
	for _, one := range [][2]string{{deploymentKind, volumeController}, {daemonSetKind, volumeNode}} {
		if r := k.workload(ctx, one[0], one[1]); r.Status != doctor.OK {
			return r
		}
	}
	var w workload
	if err := k.c.Get(ctx, api(apps, k.app.system, "deployments", volumeController), &w); err != nil {
		return unread(err, "Deployment "+volumeController)
	}
	missing := slices.DeleteFunc(slices.Clone(sidecars), func(name string) bool {
		return slices.ContainsFunc(w.Spec.Template.Spec.Containers, func(c containerImage) bool { return c.Name == name })
	})
	if len(missing) > 0 {
		return doctor.Fail(hint, "Deployment %s lacks %s", volumeController, strings.Join(missing, ", "))
	}
	classes, err := list[storagev1.StorageClass](ctx, k.c, api(storageGroup, "", "storageclasses"), nil)
	if err != nil {
		return unread(err, "the list of StorageClasses")
	}
	if !slices.ContainsFunc(classes, func(c storagev1.StorageClass) bool { return c.Provisioner == directvolume.Driver }) {
		return doctor.Warn("kubectl apply -f deploy/samples/storageclass.yaml", "no StorageClass has the provisioner %s", directvolume.Driver)
	}
	return doctor.Good("%s", directvolume.Driver)
}
