// SPDX-License-Identifier: Apache-2.0

// Package bundle makes the objects of a platform's cloud controller manager out
// of a folder of data, so that a new platform needs no code.
//
// A bundle is a folder:
//
//	bundle.yaml     what the platform is, and what its containers need: [Metadata]
//	assets/         manifests of the cluster, on OpenShift and on plain Kubernetes
//	openshift/      further ones, only on OpenShift
//	kubernetes/     further ones, only on plain Kubernetes
//	bootstrap/      static Pods for the machine that a cluster is installed from
//
// A manifest is a file with one or more YAML documents. If its name ends in
// .tmpl it is a text/template first, over the values that [Values] lists; a
// value that does not exist is an error. Everything is decoded strictly.
//
// A manifest may be complete, or name what it is an addition to:
//
//	metadata:
//	  annotations:
//	    ccm.outrigger.dev/base: cloud-controller-manager
//
// Then it is merged into that base, as kubectl patch does: lists of containers,
// volumes, variables and so on by name. The bases, in the folder bases, are the
// Deployment, the DaemonSet and the static Pod that keep all operand rules; of
// what they start bundle.yaml says program, flags, configuration and secrets.
//
// [Bundle.Render] is the one function that controllers and commands need. It
//  1. expands templates and merges bases,
//  2. decodes strictly, and refuses unknown kinds and objects that are there twice,
//  3. puts all objects into [Values].Namespace, and that wherever the manifests
//     name [DefaultNamespace]; kube-system stays,
//  4. sets images by the names of containers, in Pods, Deployments and DaemonSets,
//  5. appends the proxy's variables to the main containers of Deployments and
//     DaemonSets,
//  6. adds what each platform gets, from the folder added: a PodDisruptionBudget,
//     a Service, and on plain Kubernetes accounts and their rights,
//  7. on a single replica sets replicas to 1 and leaves the PodDisruptionBudget out.
//
// It reads nothing but its arguments, and returns new objects each time.
package bundle
