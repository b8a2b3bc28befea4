// SPDX-License-Identifier: Apache-2.0

// Package openshift has the parts that we read and write of OpenShift's API
// group config.openshift.io/v1: the fields that the operator needs and no
// others, so that a program that uses it links no module of OpenShift. The
// names of kinds and fields are those of the cluster's own resource
// definitions, which test/openshift installs.
//
// An object read with these types lacks all that is not listed here. Write
// none back: not with Update, nor with a merge patch made of two of them.
// ClusterOperator, the one kind that we write, is written by server-side apply
// of what changes, which package status does.
//
// +kubebuilder:object:generate=true
// +groupName=config.openshift.io
package openshift

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "config.openshift.io", Version: "v1"}

// KubeControllerManagerKind is watched as metadata only; the object's name is
// [ClusterName].
var KubeControllerManagerKind = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "KubeControllerManager"}

// Names of the only object of a kind.
const (
	// ClusterName is that of Infrastructure, Network, Proxy, APIServer and
	// FeatureGate.
	ClusterName = "cluster"
	// ClusterVersionName is that of ClusterVersion.
	ClusterVersionName = "version"
)

// AddToScheme registers the kinds.
func AddToScheme(scheme *runtime.Scheme) error {
	add[Infrastructure](scheme, "Infrastructure")
	add[Network](scheme, "Network")
	add[Proxy](scheme, "Proxy")
	add[APIServer](scheme, "APIServer")
	add[FeatureGate](scheme, "FeatureGate")
	add[ClusterOperator](scheme, "ClusterOperator")
	add[ClusterVersion](scheme, "ClusterVersion")
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}

func add[T any, P object[T]](scheme *runtime.Scheme, kind string) {
	scheme.AddKnownTypeWithName(GroupVersion.WithKind(kind), P(new(T)))
	scheme.AddKnownTypeWithName(GroupVersion.WithKind(kind+"List"), &List[T, P]{})
}

// List is the list of a kind, in which a cache reads its objects.
//
// +kubebuilder:object:generate=false
type List[T any, P object[T]] struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []T `json:"items"`
}

type object[T any] interface {
	*T
	runtime.Object
	DeepCopyInto(*T)
}

// DeepCopyObject implements [runtime.Object].
func (l *List[T, P]) DeepCopyObject() runtime.Object {
	c := &List[T, P]{TypeMeta: l.TypeMeta, Items: make([]T, len(l.Items))}
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	for i := range l.Items {
		P(&l.Items[i]).DeepCopyInto(&c.Items[i])
	}
	return c
}
