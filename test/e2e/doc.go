// SPDX-License-Identifier: Apache-2.0

// Package e2e is the end-to-end suite that every provider passes: pods of a
// Kubernetes cluster, each in a VM of its own.
//
//	go test -v ./test/e2e -provider NAME -kubeconfig FILE -registry HOST/FOLDER
//
// runs it in a cluster where Outrigger is installed. With the build tag
// integration and no -kubeconfig it makes a cluster of its own and installs
// deploy/overlays/NAME there. See docs/e2e.md.
package e2e
