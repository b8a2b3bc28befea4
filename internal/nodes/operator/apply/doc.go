// SPDX-License-Identifier: Apache-2.0

// Package apply makes the objects of a cluster equal to those of a bundle, and
// removes what left the bundle.
//
// An object's content, which is everything but its metadata and status, is
// replaced as a whole: what others put into it goes. Its labels and annotations
// are merged: those of others stay. An object that is as it should be is not
// written. To know that without asking the API server to try, each object
// carries two sums, in annotations: of what the bundle wanted, and of what the
// API server made of that, defaults included.
package apply
