// SPDX-License-Identifier: Apache-2.0

// Package conformance proves that a provider keeps the contract of package
// provider.
//
// A provider's own test calls [Run]:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, func(t *testing.T) conformance.Subject {
//			p, err := mycloud.New(config(t))
//			if err != nil {
//				t.Fatal(err)
//			}
//			return conformance.Subject{Provider: p, Reopen: func() provider.Provider { ... }}
//		})
//	}
//
// A program calls [Execute] and gets a [Result] for each check. [Check.Run]
// needs no more of a test than [T] has.
//
// Every check has instances, keys and owner tags of its own, so checks can
// share a cloud with each other and with anything else that lives there. What
// a check makes is written down and deleted when it ends, also when it fails;
// the check then fails if a list, or [Subject.Leaks], still shows something.
// Lists and look-ups may lag behind: the suite asks again until
// [Limits].Settle has passed.
//
// Checks of an optional power that the provider lacks are skipped with a
// message that names the interface.
//
// # Checks
//
//   - create: CreateInstance returns when the cloud has accepted the instance
//     and its primary address is known.
//   - create-user-data-once: cloudConfig is generated once and handed over as
//     user-data.
//   - create-user-data-error: On an error the provider has removed what it
//     made or returns an Instance whose ID the caller can delete.
//   - create-unknown-type: A type that the cloud does not know is
//     ErrInvalidArgument (or ErrNotFound).
//   - create-unknown-image: An image that the cloud does not know is
//     ErrInvalidArgument (or ErrNotFound).
//   - create-parallel: All methods are safe for concurrent use; instances have
//     ids and addresses of their own.
//   - key-repeated: Two calls with the same key give the same instance.
//   - key-concurrent: Two calls with the same key at the same time give the
//     same instance.
//   - key-reopened: Two calls with the same key from different processes give
//     the same instance.
//   - key-concurrent-processes: Two calls with the same key at the same time
//     from different processes give the same instance.
//   - key-lost-reply: Two calls with the same key after a lost reply give the
//     same instance.
//   - key-different: Different keys give different instances.
//   - cancel-before: All methods return soon after their context ends, also
//     when it has ended before.
//   - cancel-midway: CreateInstance returns soon after its context ends, and
//     what it made can be listed and deleted.
//   - delete: DeleteInstance removes an instance and everything that belongs
//     to it.
//   - delete-repeated: Deleting what is being deleted or does not exist any
//     more returns nil.
//   - delete-concurrent: Deleting what is being deleted returns nil, also at
//     the same time.
//   - delete-absent: Deleting what does not exist returns nil.
//   - delete-empty-id: Deleting the empty id is ErrInvalidArgument.
//   - delete-reopened: A new process can delete what an earlier one made.
//   - delete-while-creating: All methods are safe for concurrent use: an
//     instance deleted while it is made leaves nothing.
//   - list-owner: ListInstances answers every instance whose tags include all
//     of match.
//   - list-content: ListInstances fills key and tags; time and state are right
//     where given.
//   - list-others: ListInstances does not show instances of others.
//   - list-empty-match: ListInstances with an empty match is
//     ErrInvalidArgument.
//   - list-deleted: ListInstances shows a deleted instance no longer than it
//     costs money.
//   - list-reopened: A new process lists what an earlier one made.
//   - get: GetInstance answers the instance, with its key and tags.
//   - get-absent: GetInstance answers ErrNotFound for an id that does not
//     exist.
//   - get-deleted: GetInstance answers ErrNotFound for an instance that was
//     deleted.
//   - console: Console answers the last tailBytes bytes; fewer if there are no
//     more.
//   - console-absent: Console answers ErrNotFound for an id that does not
//     exist.
//   - power: PowerOff and PowerOn succeed when the state is already the wanted
//     one.
//   - types: The catalogue names every type once, with its size and
//     architecture.
//   - node-address: NodeAddress is an address at which instances reach this
//     node.
//   - verify: ConfigVerifier finds a configuration right with which instances
//     can be made, and leaves nothing behind.
//   - teardown: Teardown does not delete instances.
package conformance
