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
