// SPDX-License-Identifier: Apache-2.0

package conformance

import "slices"

// Checks returns all checks in the order in which they run. The table in
// docs/capi-conformance.md is made from it.
func Checks() []Check {
	return slices.Concat(crdChecks, clusterChecks, machineChecks, failureChecks, filterChecks, pauseChecks, deleteChecks, moveChecks, restartChecks, templateChecks, poolChecks, olderChecks, releaseChecks)
}

var crdChecks = []Check{
	{"crd-name", "A definition is named after its kind's plural as core computes it, and its group.", nil, checkCRD("spec.names.kind", "KIND")},
	{"crd-scope", "The kinds are namespaced.", nil, checkCRD("spec.scope", "Namespaced")},
	{"crd-list", "The kind of a list is that of its objects and \"List\".", nil, checkCRD("spec.names.listKind", "KINDList")},
	{"crd-contract-label", "A definition carries the label cluster.x-k8s.io/v1beta2 with versions that are served.", nil, checkCRDLabel},
	{"crd-status", "InfraCluster and InfraMachine have a status subresource.", nil, checkCRDStatus},
	{"core-permissions", "A ClusterRole with the label cluster.x-k8s.io/aggregate-to-manager lets core work on kinds of another group than infrastructure.cluster.x-k8s.io.", nil, checkAggregation},
	{"cluster-fields", "InfraCluster has the fields that core reads: spec.controlPlaneEndpoint, status.initialization.provisioned, status.conditions.", nil, checkFields("cluster", clusterFields)},
	{"machine-fields", "InfraMachine has the fields that core reads: spec.providerID and status with initialization.provisioned, addresses, failureDomain, conditions.", nil, checkFields("machine", machineFields)},
	{"template-fields", "A template has spec.template with metadata and spec.", []need{needsTemplate}, checkTemplateFields},
}

var clusterChecks = []Check{
	{"cluster-provisioned", "An InfraCluster that has an owner gets status.initialization.provisioned, for ever.", nil, checkClusterProvisioned},
	{"cluster-endpoint", "An InfraCluster that is provisioned has spec.controlPlaneEndpoint, unless the Cluster has one.", nil, checkClusterEndpoint},
	{"cluster-owner", "An InfraCluster without an owner is left alone.", nil, checkClusterOwner},
	{"cluster-finalizer", "An InfraCluster has a finalizer before it is provisioned.", nil, checkClusterFinalizer},
	{"cluster-managed-by", "An InfraCluster with the annotation cluster.x-k8s.io/managed-by is left alone, its status too.", nil, checkClusterManaged},
	{"cluster-failure-domains", "status.failureDomains is a list without two of a name.", nil, checkClusterDomains},
	{"cluster-conditions", "Conditions of an InfraCluster have the shape of metav1.Condition.", nil, checkClusterConditions},
	{"cluster-ready", "The condition Ready of an InfraCluster that is well is True.", nil, checkClusterReady},
	{"cluster-metadata", "Labels, annotations and owners that others gave an InfraCluster stay.", nil, checkClusterMetadataKept},
	{"cluster-quiet", "An InfraCluster that is provisioned is not written while nothing changes.", nil, checkClusterQuiet},
	{"cluster-with-machines-quiet", "Neither an InfraCluster with machines nor its InfraMachines are written while nothing changes.", nil, checkAllQuiet},
}

var machineChecks = []Check{
	{"machine-provisioned", "An InfraMachine with an owner, a cluster and bootstrap data gets spec.providerID and status.initialization.provisioned, for ever.", nil, checkMachineProvisioned},
	{"machine-owner", "No machine is made for an InfraMachine without an owner.", nil, checkMachineOwner},
	{"machine-waits-for-cluster", "No machine is made before the Cluster's status.initialization.infrastructureProvisioned.", nil, checkMachineWaitsForCluster},
	{"machine-waits-for-bootstrap", "No machine is made before the Machine's spec.bootstrap.dataSecretName is set.", nil, checkMachineWaitsForBootstrap},
	{"machine-bootstrap-late", "A machine is made when spec.bootstrap.dataSecretName comes late.", nil, checkMachineBootstrapLate},
	{"machine-secret-missing", "No machine is made while the bootstrap Secret does not exist.", nil, checkBootstrapSecretMissing},
	{"machine-secret-late", "A machine is made when the bootstrap Secret comes after its name.", nil, checkBootstrapSecretLate},
	{"machine-wait-shown", "The condition Ready of an InfraMachine that waits says for what.", nil, checkMachineWaitShown},
	{"machine-finalizer", "An InfraMachine has a finalizer before anything exists outside.", nil, checkMachineFinalizer},
	{"machine-once", "One InfraMachine makes one machine.", []need{needsInventory}, checkMachineOnce},
	{"machine-same-names", "Machines of clusters of the same name in two namespaces are not mixed up.", nil, checkSameNames},
	{"provider-id-format", "spec.providerID has the form SCHEME://..., up to 512 characters.", nil, checkProviderIDFormat},
	{"provider-id-unique", "Two InfraMachines have different providerIDs.", nil, checkProviderIDUnique},
	{"machine-at-once", "spec.providerID is set when status.initialization.provisioned is.", nil, checkMachineAtOnce},
	{"machine-addresses-at-once", "status.addresses, if any, are set when status.initialization.provisioned is.", nil, checkMachineAddressesAtOnce},
	{"machine-addresses", "status.addresses have a known type and 1 to 256 characters.", nil, checkMachineAddresses},
	{"machine-failure-domain", "A machine is in the failure domain that its Machine asks for, and status.failureDomain says so.", nil, checkFailureDomain},
	{"machine-conditions", "Conditions of an InfraMachine have the shape of metav1.Condition.", nil, checkMachineConditions},
	{"machine-ready", "The condition Ready of an InfraMachine that is well is True.", nil, checkMachineReady},
	{"machine-metadata", "Labels, annotations and owners that others gave an InfraMachine stay.", nil, checkMachineMetadataKept},
	{"machine-quiet", "An InfraMachine that is provisioned is not written while nothing changes.", nil, checkMachineQuiet},
	{"owner-graph", "What a provider makes in the namespace has owners that lead to the Cluster.", nil, checkOwnerGraph},
}

var failureChecks = []Check{
	{"machine-failure-shown", "The condition Ready of an InfraMachine that cannot be made says why.", []need{needsFailing}, checkFailureShown},
	{"machine-failure-quiet", "An InfraMachine that cannot be made is not tried in a loop: its status comes to rest.", []need{needsFailing}, checkFailureQuiet},
	{"machine-failure-delete", "An InfraMachine that cannot be made can be deleted, and leaves nothing.", []need{needsFailing}, checkFailureDelete},
}

var filterChecks = []Check{
	{"watch-filter-cluster", "An InfraCluster that has not the label of --watch-filter is left alone.", []need{needsFilter}, checkFilterCluster},
	{"watch-filter-machine", "An InfraMachine that has not the label of --watch-filter is left alone.", []need{needsFilter}, checkFilterMachine},
}

var pauseChecks = []Check{
	{"pause-cluster", "While Cluster.spec.paused is set nothing but the condition Paused of an InfraCluster is written.", nil, checkClusterPausedBySpec},
	{"pause-cluster-annotation", "While an InfraCluster has the annotation cluster.x-k8s.io/paused nothing but its condition Paused is written.", nil, checkClusterPausedByAnnotation},
	{"pause-cluster-condition", "The condition Paused of an InfraCluster says that it is paused.", nil, checkClusterPausedCondition},
	{"pause-cluster-end", "When a pause ends, the work on an InfraCluster goes on.", nil, checkClusterResumed},
	{"pause-cluster-delete", "An InfraCluster that is deleted while paused stays as it is.", nil, checkClusterDeletePaused},
	{"pause-machine", "While Cluster.spec.paused is set nothing but the condition Paused of an InfraMachine is written.", nil, checkMachinePausedBySpec},
	{"pause-machine-annotation", "While an InfraMachine has the annotation cluster.x-k8s.io/paused nothing but its condition Paused is written.", nil, checkMachinePausedByAnnotation},
	{"pause-machine-condition", "The condition Paused of an InfraMachine says whether it is paused.", nil, checkMachinePausedCondition},
	{"pause-machine-end", "When a pause ends, the work on an InfraMachine goes on.", nil, checkMachineResumed},
	{"pause-machine-delete", "An InfraMachine that is deleted while paused stays as it is.", nil, checkMachineDeletePaused},
	{"pause-machine-outside", "What exists outside is not touched while paused, also when the InfraMachine is deleted.", []need{needsInventory}, checkMachinePausedOutside},
}

var deleteChecks = []Check{
	{"delete-cluster", "An InfraCluster that is deleted goes.", nil, checkClusterDelete},
	{"delete-cluster-without-owner", "An InfraCluster can be deleted when its Cluster is gone.", nil, checkClusterDeleteWithoutOwner},
	{"delete-cluster-all", "A Cluster that is deleted goes with all its infrastructure.", nil, checkClusterDeleteAll},
	{"delete-cluster-first", "InfraMachines can be deleted after their InfraCluster, which goes too.", nil, checkDeleteClusterFirst},
	{"delete-machine", "An InfraMachine that is deleted goes, and then nothing of it exists outside.", nil, checkMachineDelete},
	{"delete-machine-early", "An InfraMachine can be deleted before the infrastructure of its cluster is provisioned.", nil, checkMachineDeleteEarly},
	{"delete-machine-without-bootstrap", "An InfraMachine can be deleted while it waits for bootstrap data.", nil, checkMachineDeleteWithoutBootstrap},
	{"delete-machine-while-made", "An InfraMachine that is deleted while its machine is made leaves nothing.", nil, checkMachineDeleteWhileMade},
	{"delete-machine-orphan", "An InfraMachine can be deleted when Machine, InfraCluster and Cluster are gone, and leaves nothing.", nil, checkMachineDeleteOrphan},
	{"delete-machine-ready", "The condition Ready of an InfraMachine in deletion is not True.", nil, checkMachineReadyInDeletion},
	{"delete-machine-finalizers", "A provider removes its own finalizer and no other.", nil, checkMachineFinalizersOfOthers},
	{"delete-machine-other", "The deletion of one machine does not touch another.", []need{needsInventory}, checkDeleteOneOfTwo},
}

var moveChecks = []Check{
	{"move-source", "Objects that clusterctl move takes away (annotation delete-for-move) are left alone, and what exists outside too.", nil, checkMoveSource},
	{"move-rebuilt", "Objects that come with new UIDs and without status are provisioned again.", nil, checkMoveRebuilt},
	{"move-same-machine", "Objects that come with new UIDs and without status keep their machine: no second one is made.", nil, checkMoveSameMachine},
	{"move-delete", "A machine that was moved can be deleted, and leaves nothing.", nil, checkMoveThenDelete},
	{"status-lost", "A status that is lost is found again, with the same machine.", nil, checkStatusLost},
}

var restartChecks = []Check{
	{"restart-waiting", "A manager that is killed while a machine waits goes on waiting after its restart, and then makes one.", []need{needsRestart}, checkRestartWaiting},
	{"restart-while-made", "A manager that is killed while it makes a machine makes no second one.", []need{needsRestart}, checkRestartWhileMade},
	{"restart-provisioned", "A manager that is killed beside a machine changes nothing after its restart.", []need{needsRestart}, checkRestartProvisioned},
	{"restart-deleting", "A manager that is killed while it deletes a machine goes on, and leaves nothing.", []need{needsRestart}, checkRestartDeleting},
}

var templateChecks = []Check{
	{"template-makes", "What core makes from a template gets a machine.", []need{needsTemplate}, checkTemplateMakes},
	{"template-metadata", "Core can become the owner of a template.", []need{needsTemplate}, checkTemplateMetadata},
	{"template-immutable", "The spec of a template of machines cannot change.", []need{needsTemplate, needsChangedTemplate}, checkTemplateKept},
	{"template-dry-run", "A dry run of the topology controller may change a template.", []need{needsTemplate, needsChangedTemplate}, checkTemplateDryRun},
	{"template-dry-run-only", "The annotation of the topology controller alone does not make a template changeable.", []need{needsTemplate, needsChangedTemplate}, checkTemplateAnnotation},
}

var poolChecks = []Check{
	{"pool-fields", "InfraMachinePool has the fields that core reads: spec.providerIDList, status.initialization.provisioned, status.replicas.", []need{needsPool}, checkFields("machine-pool", poolFields)},
	{"pool-provisioned", "An InfraMachinePool with bootstrap data gets its machines, in spec.providerIDList and status.replicas, and status.initialization.provisioned, for ever.", []need{needsPool}, checkPoolProvisioned},
	{"pool-ready", "An InfraMachinePool that is provisioned has status.ready too, which is what core reads.", []need{needsPool}, checkPoolReady},
	{"pool-scale", "spec.providerIDList and status.replicas of an InfraMachinePool follow MachinePool.spec.replicas, up and down.", []need{needsPool}, checkPoolScale},
	{"pool-quiet", "An InfraMachinePool that is provisioned is not written while nothing changes.", []need{needsPool}, checkPoolQuiet},
	{"pool-pause", "While Cluster.spec.paused is set nothing but the condition Paused of an InfraMachinePool is written.", []need{needsPool}, checkPoolPaused},
	{"pool-delete", "An InfraMachinePool that is deleted goes, and leaves nothing.", []need{needsPool}, checkPoolDelete},
}

var olderChecks = []Check{
	{"older-contract-ready", "Where contract v1beta1 is served, status.ready, spec.providerID and spec.controlPlaneEndpoint say there what v1beta2 says.", nil, checkOlderReady},
	{"older-contract-failure", "Where contract v1beta1 is served, what is well has neither status.failureReason nor status.failureMessage.", nil, checkOlderFailure},
	{"older-contract-domains", "Where contract v1beta1 is served, status.failureDomains is a map there, and spec.failureDomain of an InfraMachine says where it is.", nil, checkOlderDomains},
}

var releaseChecks = []Check{
	{"release-metadata", "metadata.yaml of a release is what clusterctl reads, with a contract for each series.", []need{needsRelease}, checkReleaseMetadata},
	{"release-contract", "infrastructure-components.yaml defines the kinds, labelled with the contract that metadata.yaml says for the newest series.", []need{needsRelease}, checkReleaseContract},
	{"release-components", "infrastructure-components.yaml has one Namespace at most, a Deployment with the container manager, and the label cluster.x-k8s.io/provider on everything.", []need{needsRelease}, checkReleaseComponents},
}
