// SPDX-License-Identifier: Apache-2.0

// Package deploy holds the tests of what is installed in clusters: the
// kustomize overlays, the Helm chart, the images and the guides about them.
//
// They render with the pinned kustomize and helm that `make setup` builds. After
// a wanted change, write the renders in testdata again with
//
//	go test ./test/deploy -update
package deploy
