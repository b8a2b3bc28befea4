// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/provider"
)

// An instance that waits in a PodVMPool has a PeerPod as any other, in the namespace of the
// controller. So removal, sweep and lost replies are the same code. A pod takes the
// instance by a write to that PeerPod; from then on the PeerPod stands for an instance in
// use until the pod's own PeerPod is gone.

// LabelPool is the label, on PeerPods, that names their pool.
const LabelPool = "confidentialcontainers.org/pool"

// PoolSecret is the Secret, in the namespace of the controller, with which nodes prove to
// waiting VMs that they are of this cluster: a certificate that the VMs know, and its key.
const PoolSecret = "peerpod-pools"

// VMSpec returns what the cloud is asked for, for each VM of a pool.
func VMSpec(s *v1alpha1.PodVMPoolSpec) provider.InstanceTypeSpec {
	return provider.InstanceTypeSpec{InstanceType: s.InstanceType, VCPUs: s.VCPUs, Memory: s.MemoryMiB, GPUs: s.GPUs, Arch: s.Arch, Image: s.Image}
}

// NewPoolVM returns the PeerPod of another instance of a pool, to be created before it.
func NewPoolVM(pool *v1alpha1.PodVMPool, c Claim, template, authority string) *v1alpha1.PeerPod {
	c.SandboxID = strings.ToLower(rand.Text())
	pp := New(c)
	pp.Name = Name(pool.Name, c.SandboxID)
	pp.Labels = map[string]string{LabelPool: pool.Name}
	pp.Spec.Pool = &v1alpha1.PoolMember{Name: pool.Name, Template: template, Authority: authority, Standby: pool.Spec.Standby}
	return pp
}

// Waits reports whether a PeerPod is of an instance that a pod can take.
func Waits(pp *v1alpha1.PeerPod) bool {
	return pp.Spec.Pool != nil && pp.Spec.Pool.Claim == nil && PhaseOf(pp) == v1alpha1.PhaseReady
}

// Take gives an instance of a pool to the pod of a claim. The error is a conflict of the
// API when anybody has written the PeerPod since it was read, so that of all who try
// one has it. Nobody can give it back.
func (c *Claims) Take(ctx context.Context, pp *v1alpha1.PeerPod, of Claim, at time.Time) (*v1alpha1.PeerPod, error) {
	if !Waits(pp) || pp.ResourceVersion == "" {
		return nil, fmt.Errorf("take PeerPod %s/%s: %w: it does not wait for a pod", pp.Namespace, pp.Name, provider.ErrUnavailable)
	}
	patches, err := Diff(pp.DeepCopy(), func(pp *v1alpha1.PeerPod) {
		pp.Spec.NodeName = of.Node
		pp.Spec.Pool.Claim = &v1alpha1.PoolClaim{Namespace: of.Namespace, Name: Name(of.PodName, of.SandboxID), Time: metav1.NewMicroTime(at)}
	})
	if err != nil {
		return nil, err
	}
	return c.API.Patch(ctx, pp.Namespace, pp.Name, "", patches.Spec)
}

// TookFrom records that the pod's instance is that of a pool.
func TookFrom(poolVM string) Change {
	return func(pp *v1alpha1.PeerPod) { pp.Spec.PoolVM = poolVM }
}
