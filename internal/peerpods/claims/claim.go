// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
)

// Claim says for whom an instance is about to be made.
type Claim struct {
	Provider  string
	SandboxID string
	Cluster   string
	Node      string
	Namespace string
	PodName   string
	// PodUID makes the Pod the owner; without it only adaptor and controller
	// remove the PeerPod.
	PodUID types.UID
	// InitdataDigest is algorithm:hex of the guest's initdata; empty without.
	InitdataDigest string
}

// AnnotationInitdata holds the digest of the guest's initdata.
const AnnotationInitdata = "confidentialcontainers.org/initdata-digest"

// New returns the PeerPod of a claim, to be created before the instance.
// Status does not survive a creation: see [Claims.Claim].
func New(c Claim) *v1alpha1.PeerPod {
	pp := &v1alpha1.PeerPod{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PeerPod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace:  c.Namespace,
			Name:       Name(c.PodName, c.SandboxID),
			Finalizers: []string{Finalizer},
		},
		Spec: v1alpha1.PeerPodSpec{
			CloudProvider: c.Provider,
			SandboxID:     c.SandboxID,
			NodeName:      c.Node,
			PodName:       c.PodName,
			PodUID:        string(c.PodUID),
			ClusterID:     c.Cluster,
		},
	}
	if c.PodUID != "" && c.PodName != "" {
		yes := true
		pp.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: c.PodName, UID: c.PodUID, Controller: &yes, BlockOwnerDeletion: &yes,
		}}
	}
	if c.InitdataDigest != "" {
		pp.Annotations = map[string]string{AnnotationInitdata: c.InitdataDigest}
	}
	return pp
}

// PodUID returns the UID of the PeerPod's pod; empty when it was not recorded.
// PeerPods of earlier versions have it as their owner only.
func PodUID(pp *v1alpha1.PeerPod) types.UID {
	return cmp.Or(types.UID(pp.Spec.PodUID), podOwner(pp).UID)
}

// PodName returns the name of the PeerPod's pod; empty when unknown.
func PodName(pp *v1alpha1.PeerPod) string { return cmp.Or(pp.Spec.PodName, podOwner(pp).Name) }

func podOwner(pp *v1alpha1.PeerPod) (owner metav1.OwnerReference) {
	for _, owner = range pp.OwnerReferences {
		if owner.Kind == "Pod" {
			return owner
		}
	}
	return metav1.OwnerReference{}
}

// Finalizer keeps a PeerPod until its instance is gone.
const Finalizer = "peer.pod/finalizer"

// nameHash is how many characters of the sandbox's hash are in a name: 60 bits.
const nameHash = 12

// maxName is the longest label value, so that a name can be one.
const maxName = 63

// Name returns the name of a sandbox's PeerPod: the pod's, cut if need be, and
// a hash of the sandbox id. The same sandbox always has the same name: an
// adaptor that lost the answer to its claim, or was killed before it noted the
// name, claims again and finds its own object instead of making a second one. A
// random part, as earlier versions had, made two. The id itself is hashed since
// its characters and length are not those of object names.
func Name(podName, sandboxID string) string {
	sum := sha256.Sum256([]byte(sandboxID))
	hash := strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:nameHash]
	pod := podName[:min(len(podName), maxName-1-nameHash)]
	if pod = strings.Trim(pod, "-."); pod == "" {
		pod = "sandbox"
	}
	return pod + "-" + hash
}
