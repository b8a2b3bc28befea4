// SPDX-License-Identifier: Apache-2.0

// Package aws runs pod VMs as EC2 instances.
//
// One call of RunInstances makes the instance with its disks and interfaces,
// all tagged and all gone with it. The call's client token is derived from
// cluster and sandbox id, so repeating it gives the same instance. EC2 counts
// a token for each zone, and remembers it for a day after the instance has
// ended: [token] has generations, and where several subnets are configured the
// instance is looked up before it is made.
//
// Elastic addresses are the only children that an instance's end does not
// remove. They are allocated when the instance exists, carry its id as a tag,
// are released before it is terminated, and are listed as an instance when it
// is gone, so that whoever deletes what is listed releases them.
//
// EC2 is eventually consistent: for some seconds what was made is not found.
// Whatever is not found is therefore asked for again for a while before it
// counts as gone.
package aws
