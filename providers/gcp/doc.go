// SPDX-License-Identifier: Apache-2.0

// Package gcp makes pod VMs in Google Compute Engine.
//
// It speaks the REST API itself: the calls it needs are smaller than
// Google's client libraries by an order of magnitude.
//
// One instances.insert makes the whole instance, disk and interfaces and
// external addresses included, and all of them go away with it. Its name holds
// a hash of the key, and names are unique in a zone; the request id is made
// from the key as well, so that the same insert is the same operation from
// whichever process it comes. Owner tags are labels, by which the cloud
// filters, and word for word the description, since labels may not hold every
// character.
//
// Disks of volumes are made in the same way, and a guest finds one by its device name.
package gcp
