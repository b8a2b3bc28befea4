// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	infrav1 "github.com/outrigger/outrigger/api/infrastructure/v1beta2"
)

// deleteForMoveAnnotation is what clusterctl puts in the place of all other
// annotations of an object that lives on in another management cluster.
const deleteForMoveAnnotation = "clusterctl.cluster.x-k8s.io/delete-for-move"

// keyOf returns the identity of an object. It is the UID that the object had
// when it was first seen: random, and known again where somebody has removed
// the annotation.
func keyOf(o metav1.Object) string {
	if key := o.GetAnnotations()[infrav1.KeyAnnotation]; key != "" {
		return key
	}
	return string(o.GetUID())
}

func beganOf(o metav1.Object) time.Time {
	text := o.GetAnnotations()[infrav1.BeganAnnotation]
	if text == "" {
		return time.Time{}
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at
	}
	// The start time is unknown: at the earliest when the object was created.
	return o.GetCreationTimestamp().Time
}

// annotate adds an annotation that an object does not have.
func annotate(o metav1.Object, key, value string) {
	if o.GetAnnotations()[key] == "" && value != "" {
		all := map[string]string{key: value}
		maps.Copy(all, o.GetAnnotations())
		all[key] = value
		o.SetAnnotations(all)
	}
}

// isMoved reports whether clusterctl has moved an object to another management
// cluster: then not even its conditions may be changed.
func isMoved(o metav1.Object) bool {
	_, moved := o.GetAnnotations()[deleteForMoveAnnotation]
	return moved
}

// external reports whether a cluster's infrastructure is externally managed.
// Cluster API's book has the mark as a label, its code as an annotation.
func external(o metav1.Object) bool {
	_, annotated := o.GetAnnotations()[clusterv1.ManagedByAnnotation]
	_, labelled := o.GetLabels()[clusterv1.ManagedByAnnotation]
	return annotated || labelled
}

func paused(cluster *clusterv1.Cluster, o metav1.Object) bool {
	if cluster != nil && cluster.Spec.Paused != nil && *cluster.Spec.Paused {
		return true
	}
	_, annotated := o.GetAnnotations()[clusterv1.PausedAnnotation]
	return annotated
}
