// SPDX-License-Identifier: Apache-2.0

package conformance

// Checks are all checks, in the order they run. The list in the package's
// documentation is made from it.
func Checks() []Check {
	var all []Check
	for _, part := range [][]Check{createChecks, keyChecks, cancelChecks, deleteChecks, listChecks, powerChecks, otherChecks} {
		all = append(all, part...)
	}
	return all
}

var createChecks = []Check{
	{"create", "CreateInstance returns when the cloud has accepted the instance and its primary address is known.", nil, checkCreate},
	{"create-user-data-once", "cloudConfig is generated once and handed over as user-data.", nil, checkUserDataOnce},
	{"create-user-data-error", "On an error the provider has removed what it made or returns an Instance whose ID the caller can delete.", nil, checkUserDataError},
	{"create-unknown-type", "A type that the cloud does not know is ErrInvalidArgument (or ErrNotFound).", nil, checkUnknownType},
	{"create-unknown-image", "An image that the cloud does not know is ErrInvalidArgument (or ErrNotFound).", nil, checkUnknownImage},
	{"create-parallel", "All methods are safe for concurrent use; instances have ids and addresses of their own.", nil, checkParallel},
}

var keyChecks = []Check{
	{"key-repeated", "Two calls with the same key give the same instance.", nil, checkKeyRepeated},
	{"key-concurrent", "Two calls with the same key at the same time give the same instance.", nil, checkKeyConcurrent},
	{"key-reopened", "Two calls with the same key from different processes give the same instance.", []need{needsReopen}, checkKeyReopened},
	{"key-concurrent-processes", "Two calls with the same key at the same time from different processes give the same instance.", []need{needsReopen}, checkKeyConcurrentProcesses},
	{"key-lost-reply", "Two calls with the same key after a lost reply give the same instance.", nil, checkKeyLostReply},
	{"key-different", "Different keys give different instances.", nil, checkKeyDifferent},
}

var cancelChecks = []Check{
	{"cancel-before", "All methods return soon after their context ends, also when it has ended before.", nil, checkCancelBefore},
	{"cancel-midway", "CreateInstance returns soon after its context ends, and what it made can be listed and deleted.", nil, checkCancelMidway},
}

var deleteChecks = []Check{
	{"delete", "DeleteInstance removes an instance and everything that belongs to it.", nil, checkDelete},
	{"delete-repeated", "Deleting what is being deleted or does not exist any more returns nil.", nil, checkDeleteRepeated},
	{"delete-concurrent", "Deleting what is being deleted returns nil, also at the same time.", nil, checkDeleteConcurrent},
	{"delete-absent", "Deleting what does not exist returns nil.", nil, checkDeleteAbsent},
	{"delete-empty-id", "Deleting the empty id is ErrInvalidArgument.", nil, checkDeleteEmptyID},
	{"delete-reopened", "A new process can delete what an earlier one made.", []need{needsReopen}, checkDeleteReopened},
	{"delete-while-creating", "All methods are safe for concurrent use: an instance deleted while it is made leaves nothing.", []need{needsLister}, checkDeleteWhileCreating},
}

var listChecks = []Check{
	{"list-owner", "ListInstances answers every instance whose tags include all of match.", []need{needsLister}, checkListOwner},
	{"list-content", "ListInstances fills key and tags; time and state are right where given.", []need{needsLister}, checkListContent},
	{"list-others", "ListInstances does not show instances of others.", []need{needsLister}, checkListOthers},
	{"list-empty-match", "ListInstances with an empty match is ErrInvalidArgument.", []need{needsLister}, checkListEmptyMatch},
	{"list-deleted", "ListInstances shows a deleted instance no longer than it costs money.", []need{needsLister}, checkListDeleted},
	{"list-reopened", "A new process lists what an earlier one made.", []need{needsLister, needsReopen}, checkListReopened},
	{"get", "GetInstance answers the instance, with its key and tags.", []need{needsGetter}, checkGet},
	{"get-absent", "GetInstance answers ErrNotFound for an id that does not exist.", []need{needsGetter}, checkGetAbsent},
	{"get-deleted", "GetInstance answers ErrNotFound for an instance that was deleted.", []need{needsGetter}, checkGetDeleted},
}

var powerChecks = []Check{
	{"console", "Console answers the last tailBytes bytes; fewer if there are no more.", []need{needsConsole}, checkConsole},
	{"console-absent", "Console answers ErrNotFound for an id that does not exist.", []need{needsConsole}, checkConsoleAbsent},
	{"power", "PowerOff and PowerOn succeed when the state is already the wanted one.", []need{needsPower}, checkPower},
	{"types", "The catalogue names every type once, with its size and architecture.", []need{needsTypes}, checkTypes},
	{"node-address", "NodeAddress is an address at which instances reach this node.", []need{needsAddress}, checkNodeAddress},
}

var otherChecks = []Check{
	{"verify", "ConfigVerifier finds a configuration right with which instances can be made, and leaves nothing behind.", nil, checkVerify},
	{"teardown", "Teardown does not delete instances.", []need{needsReopen}, checkTeardown},
}
