// SPDX-License-Identifier: Apache-2.0

// Package ibmcloud makes pod VMs in a VPC of IBM Cloud.
//
// The API has no idempotency token, but the name of an instance is unique in
// its region: it is made from cluster and key, so the cloud refuses a second
// instance, whichever process, zone or profile asks for it. Instances can be
// tagged only after they were made, and a process may die in between; boot
// volumes take their user tags in the same request. So owner tags are on the
// boot volume, and lists begin with the volumes. Disks are volumes, too, and have
// a tag more.
package ibmcloud
