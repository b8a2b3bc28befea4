// SPDX-License-Identifier: Apache-2.0

// Package alibabacloud runs pod VMs as ECS instances of Alibaba Cloud.
//
// One call of RunInstances makes an instance with its disk, its interfaces and,
// if wanted, a public address, all of which go away with it. Only an elastic
// IP address (EIP) is a resource of its own: it is made after the instance,
// carries its id in a tag, and is released after it. An address whose instance
// is gone is listed as if it was the instance, so that somebody deletes it.
//
// The client token of RunInstances is derived from cluster and sandbox id, and
// each call carries a tag of its own. So a call that succeeds has made an
// instance, and one that the cloud refuses because the token was used with
// other parameters says that the instance exists, or existed: it is then looked
// up by its tags. When it does not appear within the time that the cloud's
// answers may lag behind, it was deleted, and the next token is tried.
package alibabacloud
