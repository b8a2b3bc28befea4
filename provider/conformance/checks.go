// SPDX-License-Identifier: Apache-2.0

package conformance

// Checks returns all checks in the order in which they run.
func Checks() []Check {
	var all []Check
	for _, part := range [][]Check{
		createChecks, userDataChecks, sizeChecks, keyChecks, cancelChecks, deleteChecks,
		listChecks, getChecks, powerChecks, balancerChecks, diskChecks, attachChecks, snapshotChecks, otherChecks,
	} {
		all = append(all, part...)
	}
	return all
}

var createChecks = []Check{
	{"create", "CreateInstance returns when the cloud has accepted the instance and its primary address is known.", nil, checkCreate},
	{"create-user-data-once", "cloudConfig is generated once and handed over as user-data.", nil, checkUserDataOnce},
	{"create-user-data-error", "A cloudConfig that fails is ErrInvalidArgument; the provider has removed what it made or returns an Instance whose ID the caller can delete.", nil, checkUserDataError},
	{"create-unknown-type", "A type that the cloud does not know is ErrInvalidArgument (or ErrNotFound).", nil, checkUnknownType},
	{"create-unknown-image", "An image that the cloud does not know is ErrInvalidArgument (or ErrNotFound).", nil, checkUnknownImage},
	{"create-address", "An instance's addresses are its own, not loopback.", nil, checkAddressOwn},
	{"create-name", "An instance's name is a DNS label.", nil, checkName},
	{"create-names-differ", "An instance's name tells it from others of the same pod name.", nil, checkNamesDiffer},
	{"create-pod-name-long", "podName can be anything: 253 characters.", nil, checkPodNameLong},
	{"create-pod-name-odd", "podName can be anything: capitals, blanks, slashes, quotes, Unicode.", nil, checkPodNameOdd},
	{"create-pod-name-empty", "podName can be anything, also empty.", nil, checkPodNameEmpty},
	{"create-arguments", "The provider neither changes nor keeps spec.Tags.", nil, checkArguments},
	{"create-parallel", "All methods are safe for concurrent use; instances have ids and addresses of their own.", nil, checkParallel},
}

var userDataChecks = []Check{
	{"create-user-data-none", "No cloudConfig, nil, is empty user-data.", nil, checkUserDataNone},
	{"create-user-data-empty", "A provider takes empty user-data.", nil, checkUserDataEmpty},
	{"create-user-data-limit", "A provider takes MinUserData bytes of user-data.", nil, checkUserDataLimit},
	{"create-user-data-exact", "User-data arrives byte by byte.", []need{needsUserData}, checkUserDataExact},
	{"create-user-data-huge", "User-data that is more than the cloud takes is ErrInvalidArgument and never cut.", nil, checkUserDataHuge},
}

var sizeChecks = []Check{
	{"create-cpus-only", "VCPUs can be asked for without Memory.", nil, checkCPUsOnly},
	{"create-memory-only", "Memory can be asked for without VCPUs.", nil, checkMemoryOnly},
	{"create-size-huge", "A size that the cloud has not got is ErrInvalidArgument, ErrCapacity or ErrQuota (or ErrNotFound).", nil, checkSizeHuge},
	{"create-size-negative", "A negative size is ErrInvalidArgument.", nil, checkSizeNegative},
	{"create-unknown-arch", "An architecture that the cloud does not know is ErrInvalidArgument (or ErrNotFound).", nil, checkUnknownArch},
	{"create-unknown-gpu", "GPUs that the cloud has not got are ErrInvalidArgument, ErrCapacity or ErrQuota (or ErrNotFound).", nil, checkUnknownGPU},
	{"create-zone", "An instance that asks for a zone is there, by the answer too.", nil, checkZone},
	{"create-unknown-zone", "A zone in which there can be no instance is ErrInvalidArgument, which names it.", nil, checkUnknownZone},
	{"error-names-type", "The error for an unknown type holds its name.", nil, checkErrorNamesType},
	{"error-names-image", "The error for an unknown image holds its name.", nil, checkErrorNamesImage},
}

var keyChecks = []Check{
	{"key-repeated", "Two calls with the same key give the same instance.", nil, checkKeyRepeated},
	{"key-concurrent", "Two calls with the same key at the same time give the same instance.", nil, checkKeyConcurrent},
	{"key-reopened", "Two calls with the same key from different processes give the same instance.", []need{needsReopen}, checkKeyReopened},
	{"key-concurrent-processes", "Two calls with the same key at the same time from different processes give the same instance.", []need{needsReopen}, checkKeyConcurrentProcesses},
	{"key-lost-reply", "Two calls with the same key after a lost reply give the same instance.", nil, checkKeyLostReply},
	{"key-different", "Different keys give different instances.", nil, checkKeyDifferent},
	{"key-similar", "All characters of a key count.", nil, checkKeySimilar},
	{"key-empty", "The empty key is ErrInvalidArgument.", nil, checkKeyEmpty},
	{"key-uuid", "A key can be a UUID.", nil, checkKeyUUID},
	{"key-odd", "A key is up to 64 letters, digits, '-', '_' and '.'.", nil, checkKeyOdd},
	{"key-other-spec", "The same key with another spec gives the same instance or ErrAlreadyExists.", nil, checkKeyOtherSpec},
	{"key-after-delete", "A key is free again when its instance is deleted.", nil, checkKeyAfterDelete},
	{"key-after-error", "A key is free again when its creation has failed for good.", nil, checkKeyAfterError},
	{"key-stopped", "The same key gives the same instance, also when it is stopped.", []need{needsPower}, checkKeyStopped},
}

var cancelChecks = []Check{
	{"cancel-before", "All methods return soon after their context ends, also when it has ended before.", nil, checkCancelBefore},
	{"cancel-reads", "All methods return soon after their context ends, also when it ends in the middle.", nil, checkCancelReads},
	{"cancel-midway", "CreateInstance returns soon after its context ends, and what it made can be listed and deleted.", nil, checkCancelMidway},
	{"cancel-retryable", "A call that failed because its context ended can be tried again, and its class says so.", nil, checkCancelRetryable},
	{"cancel-delete", "A deletion that was cut short can be repeated.", nil, checkCancelDelete},
	{"cancel-power", "PowerOff and PowerOn that were cut short can be repeated.", []need{needsPower}, checkCancelPower},
	{"cancel-open", "NewProviderContext returns soon after its context ends.", []need{needsOpen}, checkCancelOpen},
	{"cancel-verify", "VerifyConfig returns soon after its context ends, and can be repeated.", []need{needsContextVerifier}, checkCancelVerify},
	{"cancel-teardown", "TeardownContext returns soon after its context ends.", []need{needsContextCloser, needsReopen}, checkCancelTeardown},
}

var deleteChecks = []Check{
	{"delete", "DeleteInstance removes an instance and everything that belongs to it.", nil, checkDelete},
	{"delete-repeated", "Deleting what is being deleted or does not exist any more returns nil.", nil, checkDeleteRepeated},
	{"delete-concurrent", "Deleting what is being deleted returns nil, also at the same time.", nil, checkDeleteConcurrent},
	{"delete-absent", "Deleting what does not exist returns nil.", nil, checkDeleteAbsent},
	{"delete-empty-id", "Deleting the empty id is ErrInvalidArgument.", nil, checkDeleteEmptyID},
	{"delete-reopened", "A new process can delete what an earlier one made.", []need{needsReopen}, checkDeleteReopened},
	{"delete-while-creating", "All methods are safe for concurrent use: an instance deleted while it is made leaves nothing.", []need{needsLister}, checkDeleteWhileCreating},
	{"delete-garbage", "Deleting an id that the cloud can never have given returns nil or ErrInvalidArgument, and deletes nothing.", nil, checkDeleteGarbage},
	{"delete-others", "DeleteInstance deletes nothing else.", nil, checkDeleteOthers},
	{"delete-parallel", "All methods are safe for concurrent use: instances are deleted at the same time.", nil, checkDeleteParallel},
	{"delete-stopped", "DeleteInstance removes a stopped instance and everything that belongs to it.", []need{needsPower}, checkDeleteStopped},
	{"delete-no-access", "Deleting with a credential that was revoked, or in an account that there is not, is an error and not ErrNotFound: nobody has seen that the instance is gone.", []need{needsNoAccess}, checkDeleteNoAccess},
	{"delete-rounds", "Making and deleting goes on as long as one likes, and leaves nothing.", nil, checkRounds},
}

var listChecks = []Check{
	{"list-owner", "ListInstances returns every instance whose tags include all of match.", []need{needsLister}, checkListOwner},
	{"list-content", "ListInstances fills key and tags; time and state are right where given.", []need{needsLister}, checkListContent},
	{"list-others", "ListInstances does not show instances of others.", []need{needsLister}, checkListOthers},
	{"list-empty-match", "ListInstances with an empty match is ErrInvalidArgument.", []need{needsLister}, checkListEmptyMatch},
	{"list-deleted", "ListInstances shows a deleted instance no longer than it costs money.", []need{needsLister}, checkListDeleted},
	{"list-reopened", "A new process lists what an earlier one made.", []need{needsLister, needsReopen}, checkListReopened},
	{"list-many", "Pagination is the provider's affair: ListInstances returns every instance.", []need{needsLister}, checkListMany},
	{"list-match-all", "ListInstances returns only instances whose tags include all of match.", []need{needsLister}, checkListMatchAll},
	{"list-unknown-tag", "A match that nothing has gives an empty list.", []need{needsLister}, checkListUnknownTag},
	{"list-tag-characters", "Values of tags keep every character that they may have: letters, digits, '-', '_', '.' and ':'.", []need{needsLister}, checkListTagCharacters},
	{"list-addresses", "ListInstances returns the addresses that CreateInstance did.", []need{needsLister}, checkListAddresses},
	{"list-name", "ListInstances returns the name that CreateInstance did.", []need{needsLister}, checkListName},
	{"list-created", "Created is when the cloud made the instance; zero when unknown.", []need{needsLister}, checkCreated},
	{"list-state", "An instance comes to run by itself, and its state says so where given.", []need{needsLister}, checkListState},
	{"list-concurrent", "All methods are safe for concurrent use: lists at the same time show the same.", []need{needsLister}, checkListConcurrent},
	{"list-while-starting", "ListInstances works while an instance is being made, and shows it with its key and tags or not at all.", []need{needsLister}, checkListWhileStarting},
	{"list-pool", "ListInstances returns instances without a node's tag, as those of a pool are, with the tags that they have.", []need{needsLister}, checkListPool},
	{"list-own", "What a list answers belongs to the caller, who may change it.", []need{needsLister}, checkListOwn},
	{"list-no-access", "ListInstances without access to the account is an error, never an empty list.", []need{needsLister, needsNoAccess}, checkListNoAccess},
	{"list-reopened-content", "A new process lists keys and tags that an earlier one gave.", []need{needsLister, needsReopen}, checkListReopenedContent},
}

var getChecks = []Check{
	{"get", "GetInstance returns the instance, with its key and tags.", []need{needsGetter}, checkGet},
	{"get-absent", "GetInstance returns ErrNotFound for an id that does not exist.", []need{needsGetter}, checkGetAbsent},
	{"get-deleted", "GetInstance returns ErrNotFound for an instance that was deleted.", []need{needsGetter}, checkGetDeleted},
	{"get-garbage", "GetInstance returns ErrNotFound or ErrInvalidArgument for an id that the cloud can never have given.", []need{needsGetter}, checkGetGarbage},
	{"get-no-access", "GetInstance without access to the account is an error other than ErrNotFound: callers delete what is not found.", []need{needsGetter, needsNoAccess}, checkGetNoAccess},
}

var powerChecks = []Check{
	{"console", "Console returns the last tailBytes bytes; fewer if there are no more.", []need{needsConsole}, checkConsole},
	{"console-absent", "Console returns ErrNotFound for an id that does not exist.", []need{needsConsole}, checkConsoleAbsent},
	{"console-deleted", "Console returns ErrNotFound for an instance that was deleted.", []need{needsConsole}, checkConsoleDeleted},
	{"console-huge", "Console returns all there is when tailBytes is more.", []need{needsConsole}, checkConsoleHuge},
	{"console-negative", "Console of a negative number of bytes is ErrInvalidArgument.", []need{needsConsole}, checkConsoleNegative},
	{"power", "PowerOff and PowerOn succeed when the state is already the wanted one.", []need{needsPower}, checkPower},
	{"power-absent", "PowerOff and PowerOn answer ErrNotFound for an id that does not exist.", []need{needsPower}, checkPowerAbsent},
	{"power-deleted", "PowerOn returns ErrNotFound for an instance that was deleted, and does not bring it back.", []need{needsPower}, checkPowerDeleted},
	{"power-address", "A stopped instance keeps its addresses.", []need{needsPower, needsLister}, checkPowerAddress},
	{"power-listed", "ListInstances returns instances in any state in which they cost money: stopped ones too.", []need{needsPower, needsLister}, checkPowerListed},
	{"power-content", "An instance that was stopped, and started again, keeps its key and tags.", []need{needsPower, needsLister}, checkPowerContent},
	{"power-user-data", "An instance that was stopped and started again has the user-data that it was made with.", []need{needsPower, needsUserData}, checkPowerUserData},
	{"power-concurrent", "PowerOff and PowerOn succeed when others do the same at the same time.", []need{needsPower}, checkPowerConcurrent},
	{"types", "The catalogue names every type once, with its size and architecture.", []need{needsTypes}, checkTypes},
	{"types-repeated", "The catalogue is the same until the cloud changes.", []need{needsTypes}, checkTypesRepeated},
	{"node-address", "NodeAddress is an address at which instances reach this node.", []need{needsAddress}, checkNodeAddress},
	{"node-address-repeated", "NodeAddress is the same while the provider lives.", []need{needsAddress}, checkNodeAddressRepeated},
}

var otherChecks = []Check{
	{"verify", "ConfigVerifier finds a configuration right with which instances can be made, and leaves nothing behind.", nil, checkVerify},
	{"verify-repeated", "ConfigVerifier can be repeated, also at the same time.", nil, checkVerifyRepeated},
	{"verify-harmless", "ConfigVerifier does not touch instances.", nil, checkVerifyHarmless},
	{"teardown", "Teardown does not delete instances.", []need{needsReopen}, checkTeardown},
	{"teardown-then-calls", "Calls that come after Teardown return soon.", []need{needsReopen}, checkTeardownThenCalls},
}
