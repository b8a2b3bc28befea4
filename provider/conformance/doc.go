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
// Checks of an optional capability that the provider lacks are skipped with a
// message that names the interface.
//
// # Checks
//
//   - create: CreateInstance returns when the cloud has accepted the instance
//     and its primary address is known.
//   - create-user-data-once: cloudConfig is generated once and handed over as
//     user-data.
//   - create-user-data-error: A cloudConfig that fails is ErrInvalidArgument;
//     the provider has removed what it made or returns an Instance whose ID the
//     caller can delete.
//   - create-unknown-type: A type that the cloud does not know is
//     ErrInvalidArgument (or ErrNotFound).
//   - create-unknown-image: An image that the cloud does not know is
//     ErrInvalidArgument (or ErrNotFound).
//   - create-address: An instance's addresses are its own, not loopback.
//   - create-name: An instance's name is a DNS label.
//   - create-names-differ: An instance's name tells it from others of the same
//     pod name.
//   - create-pod-name-long: podName can be anything: 253 characters.
//   - create-pod-name-odd: podName can be anything: capitals, blanks, slashes,
//     quotes, Unicode.
//   - create-pod-name-empty: podName can be anything, also empty.
//   - create-arguments: The provider neither changes nor keeps spec.Tags.
//   - create-parallel: All methods are safe for concurrent use; instances have
//     ids and addresses of their own.
//   - create-user-data-none: No cloudConfig, nil, is empty user-data.
//   - create-user-data-empty: A provider takes empty user-data.
//   - create-user-data-limit: A provider takes MinUserData bytes of user-data.
//   - create-user-data-exact: User-data arrives byte by byte.
//   - create-user-data-huge: User-data that is more than the cloud takes is
//     ErrInvalidArgument and never cut.
//   - create-cpus-only: VCPUs can be asked for without Memory.
//   - create-memory-only: Memory can be asked for without VCPUs.
//   - create-size-huge: A size that the cloud has not got is
//     ErrInvalidArgument, ErrCapacity or ErrQuota (or ErrNotFound).
//   - create-size-negative: A negative size is ErrInvalidArgument.
//   - create-unknown-arch: An architecture that the cloud does not know is
//     ErrInvalidArgument (or ErrNotFound).
//   - create-unknown-gpu: GPUs that the cloud has not got are
//     ErrInvalidArgument, ErrCapacity or ErrQuota (or ErrNotFound).
//   - error-names-type: The error for an unknown type holds its name.
//   - error-names-image: The error for an unknown image holds its name.
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
//   - key-similar: All characters of a key count.
//   - key-empty: The empty key is ErrInvalidArgument.
//   - key-uuid: A key can be a UUID.
//   - key-odd: A key is up to 64 letters, digits, '-', '_' and '.'.
//   - key-other-spec: The same key with another spec gives the same instance or
//     ErrAlreadyExists.
//   - key-after-delete: A key is free again when its instance is deleted.
//   - key-after-error: A key is free again when its creation has failed for
//     good.
//   - key-stopped: The same key gives the same instance, also when it is
//     stopped.
//   - cancel-before: All methods return soon after their context ends, also
//     when it has ended before.
//   - cancel-reads: All methods return soon after their context ends, also when
//     it ends in the middle.
//   - cancel-midway: CreateInstance returns soon after its context ends, and
//     what it made can be listed and deleted.
//   - cancel-retryable: A call that failed because its context ended can be
//     tried again, and its class says so.
//   - cancel-delete: A deletion that was cut short can be repeated.
//   - cancel-power: PowerOff and PowerOn that were cut short can be repeated.
//   - cancel-open: NewProviderContext returns soon after its context ends.
//   - cancel-verify: VerifyConfig returns soon after its context ends, and can
//     be repeated.
//   - cancel-teardown: TeardownContext returns soon after its context ends.
//   - delete: DeleteInstance removes an instance and everything that belongs to
//     it.
//   - delete-repeated: Deleting what is being deleted or does not exist any
//     more returns nil.
//   - delete-concurrent: Deleting what is being deleted returns nil, also at
//     the same time.
//   - delete-absent: Deleting what does not exist returns nil.
//   - delete-empty-id: Deleting the empty id is ErrInvalidArgument.
//   - delete-reopened: A new process can delete what an earlier one made.
//   - delete-while-creating: All methods are safe for concurrent use: an
//     instance deleted while it is made leaves nothing.
//   - delete-garbage: Deleting an id that the cloud can never have given
//     returns nil or ErrInvalidArgument, and deletes nothing.
//   - delete-others: DeleteInstance deletes nothing else.
//   - delete-parallel: All methods are safe for concurrent use: instances are
//     deleted at the same time.
//   - delete-stopped: DeleteInstance removes a stopped instance and everything
//     that belongs to it.
//   - delete-no-access: Deleting with a credential that was revoked, or in an
//     account that there is not, is an error and not ErrNotFound: nobody has
//     seen that the instance is gone.
//   - delete-rounds: Making and deleting goes on as long as one likes, and
//     leaves nothing.
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
//   - list-many: Pagination is the provider's affair: ListInstances answers
//     every instance.
//   - list-match-all: ListInstances answers only instances whose tags include
//     all of match.
//   - list-unknown-tag: A match that nothing has gives an empty list.
//   - list-tag-characters: Values of tags keep every character that they may
//     have: letters, digits, '-', '_', '.' and ':'.
//   - list-addresses: ListInstances answers the addresses that CreateInstance
//     did.
//   - list-name: ListInstances answers the name that CreateInstance did.
//   - list-created: Created is when the cloud made the instance; zero when
//     unknown.
//   - list-state: An instance comes to run by itself, and its state says so
//     where given.
//   - list-concurrent: All methods are safe for concurrent use: lists at the
//     same time show the same.
//   - list-own: What a list answers belongs to the caller, who may change it.
//   - list-no-access: ListInstances without access to the account is an error,
//     never an empty list.
//   - list-reopened-content: A new process lists keys and tags that an earlier
//     one gave.
//   - get: GetInstance answers the instance, with its key and tags.
//   - get-absent: GetInstance answers ErrNotFound for an id that does not
//     exist.
//   - get-deleted: GetInstance answers ErrNotFound for an instance that was
//     deleted.
//   - get-garbage: GetInstance answers ErrNotFound or ErrInvalidArgument for an
//     id that the cloud can never have given.
//   - get-no-access: GetInstance without access to the account is an error
//     other than ErrNotFound: callers delete what is not found.
//   - console: Console answers the last tailBytes bytes; fewer if there are no
//     more.
//   - console-absent: Console answers ErrNotFound for an id that does not
//     exist.
//   - console-deleted: Console answers ErrNotFound for an instance that was
//     deleted.
//   - console-huge: Console answers all there is when tailBytes is more.
//   - console-negative: Console of a negative number of bytes is
//     ErrInvalidArgument.
//   - power: PowerOff and PowerOn succeed when the state is already the wanted
//     one.
//   - power-absent: PowerOff and PowerOn answer ErrNotFound for an id that does
//     not exist.
//   - power-deleted: PowerOn answers ErrNotFound for an instance that was
//     deleted, and does not bring it back.
//   - power-address: A stopped instance keeps its addresses.
//   - power-listed: ListInstances answers instances in any state in which they
//     cost money: stopped ones too.
//   - power-concurrent: PowerOff and PowerOn succeed when others do the same at
//     the same time.
//   - types: The catalogue names every type once, with its size and
//     architecture.
//   - types-repeated: The catalogue is the same until the cloud changes.
//   - node-address: NodeAddress is an address at which instances reach this
//     node.
//   - node-address-repeated: NodeAddress is the same while the provider lives.
//   - balancer: EnsureLoadBalancer answers where clients connect to; look-ups
//     answer the same, with key and tags.
//   - balancer-repeated: Two calls with the same key give the same load
//     balancer.
//   - balancer-concurrent: Two calls with the same key at the same time give
//     the same load balancer.
//   - balancer-reopened: Two calls with the same key from different processes
//     give the same load balancer.
//   - balancer-lost-reply: Two calls with the same key after a lost reply give
//     one load balancer.
//   - balancer-ports: A load balancer listens on the ports that it was told
//     last.
//   - balancer-backends: A load balancer leads to the backends that it was told
//     last, which may be none.
//   - balancer-refused: A spec that no provider can take is ErrInvalidArgument.
//   - balancer-absent: GetLoadBalancer answers ErrNotFound for a key that has
//     none.
//   - balancer-list: ListLoadBalancers answers every load balancer whose tags
//     include all of match, with its key.
//   - balancer-list-others: ListLoadBalancers does not show load balancers of
//     others.
//   - balancer-list-empty-match: ListLoadBalancers with an empty match is
//     ErrInvalidArgument.
//   - balancer-delete: DeleteLoadBalancer removes a load balancer and
//     everything that belongs to it.
//   - balancer-delete-instance: DeleteLoadBalancer removes no instance.
//   - balancer-delete-absent: Deleting a load balancer that does not exist
//     returns nil.
//   - balancer-delete-no-access: Deleting a load balancer without access to the
//     account is an error and not ErrNotFound.
//   - balancer-after-delete: A key is free again when its load balancer is
//     deleted.
//   - verify: ConfigVerifier finds a configuration right with which instances
//     can be made, and leaves nothing behind.
//   - verify-repeated: ConfigVerifier can be repeated, also at the same time.
//   - verify-harmless: ConfigVerifier does not touch instances.
//   - teardown: Teardown does not delete instances.
//   - teardown-then-calls: Calls that come after Teardown return soon.
package conformance
