// SPDX-License-Identifier: Apache-2.0

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// use is where a permission is used.
type use struct {
	// file is below the root of the repository; code stands in it.
	file, code string
	// why needs to be said only where the code does not.
	why string
}

const (
	claimPolicy   = "deploy/base/controller/claims.yaml"
	adaptorNode   = "internal/peerpods/adaptor/cluster/node.go"
	adaptorEvents = "internal/peerpods/adaptor/cluster/events.go"
	rest          = "internal/peerpods/claims/rest.go"
	controller    = "internal/peerpods/controller/controller.go"
	reconcile     = "internal/peerpods/controller/reconcile.go"
	ctrlAPI       = "internal/peerpods/controller/api.go"
	ctrlPool      = "internal/peerpods/controller/pool.go"
	ctrlPoolVM    = "internal/peerpods/controller/poolvm.go"
	ctrlSettings  = "internal/peerpods/controller/settings.go"
	ctrlCommand   = "internal/peerpods/controller/command/command.go"
	hookCommand   = "internal/peerpods/webhook/command/command.go"
	hookSecret    = "internal/peerpods/webhook/certs/keeper.go"
	hookRegister  = "internal/peerpods/webhook/certs/registration.go"
	csiPods       = "internal/volumes/kubernetes.go"
	csiOpen       = "internal/volumes/command/open.go"
	csiSidecars   = "deploy/csi/driver/controller.yaml"
	csiSnapshots  = "deploy/csi/snapshots/sidecar.yaml"
)

// uses is every permission that is granted: "ROLE: VERB RESOURCE [NAME]". None
// of them lets anybody read Secrets but their own by name.
var uses = map[string]use{
	"cloud-api-adaptor: get pods":                           {"internal/peerpods/adaptor/cluster/cluster.go", `"pods"`, "the pod's UID, initdata and pull secrets"},
	"cloud-api-adaptor: update pods/finalizers":             {"internal/peerpods/claims/claim.go", "BlockOwnerDeletion", "admission plugin OwnerReferencesPermissionEnforcement asks for it when a PeerPod's owner is a Pod"},
	"cloud-api-adaptor: get nodes":                          {adaptorNode, `api.Get(ctx, kubeapi.Path(kubeapi.Core, "", "nodes"`, "what the node advertises now"},
	"cloud-api-adaptor: patch nodes/status":                 {adaptorNode, `"status"`, "kata.peerpods.io/vm"},
	"cloud-api-adaptor: get namespaces kube-system":         {"internal/peerpods/adaptor/cluster/identity.go", `"namespaces"`, "its UID is the cluster's identity"},
	"cloud-api-adaptor: create events":                      {adaptorEvents, `kubeapi.Path(kubeapi.Core, h.rec.PodNamespace, "events")`, ""},
	"cloud-api-adaptor: patch events":                       {adaptorEvents, `api.Patch(ctx, kubeapi.Path(kubeapi.Core, known.namespace, "events"`, "counts repetitions"},
	"cloud-api-adaptor: get peerpods.confidential":          {rest, "func (r *REST) Get(", ""},
	"cloud-api-adaptor: list peerpods.confidential":         {rest, "func (r *REST) OfNode(", "those of the node, after a start"},
	"cloud-api-adaptor: create peerpods.confidential":       {rest, "func (r *REST) Create(", "the claim, before the instance"},
	"cloud-api-adaptor: patch peerpods.confidential":        {rest, "func (r *REST) Patch(", "instance id and finalizer"},
	"cloud-api-adaptor: delete peerpods.confidential":       {rest, "func (r *REST) Delete(", "when the instance is gone"},
	"cloud-api-adaptor: claim peerpods.confidential":        {claimPolicy, `check("claim")`, "whoever has it may write PeerPods"},
	"cloud-api-adaptor: patch peerpods/status.confidential": {rest, "parts, subresource)", "PatchInto of a subresource"},
	"cloud-api-adaptor: list podvmpools.confidential":       {rest, "func (r *REST) Pools(", "which fit a pod"},
	"cloud-api-adaptor: get secrets peerpod-pools":          {"internal/peerpods/adaptor/cluster/pool.go", "claims.PoolSecret", "proves to a waiting VM that a node of this cluster asks"},

	"peerpod-ctrl: get pods":                             {reconcile, "PodName(pp)}, pod)", "whether a PeerPod's pod is still there"},
	"peerpod-ctrl: get nodes":                            {reconcile, "pp.Spec.NodeName}, nodeMetadata()", "past the cache"},
	"peerpod-ctrl: list nodes":                           {controller, "source.Kind[client.Object](mgr.GetCache(), nodeMetadata()", "lost nodes"},
	"peerpod-ctrl: watch nodes":                          {controller, "source.Kind[client.Object](mgr.GetCache(), nodeMetadata()", "lost nodes"},
	"peerpod-ctrl: get namespaces kube-system":           {rest, `"namespaces", metav1.NamespaceSystem`, "its UID is the cluster's identity"},
	"peerpod-ctrl: create events.events.k8s.io":          {controller, "GetEventRecorder(", ""},
	"peerpod-ctrl: patch events.events.k8s.io":           {controller, "GetEventRecorder(", "counts repetitions"},
	"peerpod-ctrl: claim peerpods.confidential":          {claimPolicy, `check("claim")`, "whoever has it may write PeerPods"},
	"peerpod-ctrl: get peerpods.confidential":            {ctrlAPI, "a.reader.Get(", ""},
	"peerpod-ctrl: list peerpods.confidential":           {controller, "&v1alpha1.PeerPod{}, &handler", ""},
	"peerpod-ctrl: watch peerpods.confidential":          {controller, "&v1alpha1.PeerPod{}, &handler", ""},
	"peerpod-ctrl: patch peerpods.confidential":          {ctrlAPI, "a.writer.Patch(", "finalizer, adoption"},
	"peerpod-ctrl: delete peerpods.confidential":         {ctrlAPI, "a.writer.Delete(", "PeerPods whose pod is gone, doubles"},
	"peerpod-ctrl: patch peerpods/status.confidential":   {ctrlAPI, "a.writer.SubResource(", ""},
	"peerpod-ctrl: create peerpods.confidential":         {ctrlPoolVM, "p.writer.Create(ctx, pp)", "VMs of pools"},
	"peerpod-ctrl: get podvmpools.confidential":          {ctrlPool, "p.read(ctx, request, pool)", ""},
	"peerpod-ctrl: list podvmpools.confidential":         {controller, "&v1alpha1.PodVMPool{}, &handler", ""},
	"peerpod-ctrl: watch podvmpools.confidential":        {controller, "&v1alpha1.PodVMPool{}, &handler", ""},
	"peerpod-ctrl: patch podvmpools.confidential":        {ctrlPool, "p.writer.Patch(ctx, pool", "its finalizer"},
	"peerpod-ctrl: patch podvmpools/status.confidential": {ctrlPool, "p.writer.Status().Patch(", ""},
	"peerpod-ctrl: create secrets":                       {ctrlPool, "p.writer.Create(ctx, secret)", "the certificate of the nodes for waiting VMs; creation cannot be bound to a name"},
	"peerpod-ctrl: get secrets peerpod-pools":            {ctrlPool, "claims.PoolSecret", ""},
	"peerpod-ctrl: update secrets peerpod-pools":         {ctrlPool, "p.writer.Update(ctx, secret)", "before it expires"},
	"peerpod-ctrl: get configmaps peer-pods-cm":          {ctrlSettings, "ConfigMapName", "the settings of the provider, again when they change"},
	"peerpod-ctrl: list configmaps peer-pods-cm":         {controller, "only(ConfigMapName)", ""},
	"peerpod-ctrl: watch configmaps peer-pods-cm":        {controller, "only(ConfigMapName)", ""},
	"peerpod-ctrl: get secrets peer-pods-secret":         {ctrlSettings, "SecretName", "the secret ones"},
	"peerpod-ctrl: list secrets peer-pods-secret":        {controller, "only(SecretName)", ""},
	"peerpod-ctrl: watch secrets peer-pods-secret":       {controller, "only(SecretName)", ""},
	"peerpod-ctrl: create events":                        {ctrlCommand, "LeaderElectionID", "the elector tells on its lease"},
	"peerpod-ctrl: patch events":                         {ctrlCommand, "LeaderElectionID", "the elector tells on its lease"},

	"peerpod-ctrl: create leases.coordination":                                                     {ctrlCommand, "LeaderElectionID", "creation cannot be bound to a name"},
	"peerpod-ctrl: get leases.coordination 33f6c5d6.confidentialcontainers.org":                    {ctrlCommand, "33f6c5d6.confidentialcontainers.org", ""},
	"peerpod-ctrl: update leases.coordination 33f6c5d6.confidentialcontainers.org":                 {ctrlCommand, "33f6c5d6.confidentialcontainers.org", ""},
	"peerpods-webhook: create leases.coordination":                                                 {hookCommand, "LeaderElectionID", "creation cannot be bound to a name"},
	"peerpods-webhook: get leases.coordination a3663802.confidential-containers":                   {hookCommand, "a3663802.confidential-containers", ""},
	"peerpods-webhook: update leases.coordination a3663802.confidential-containers":                {hookCommand, "a3663802.confidential-containers", ""},
	"peerpods-webhook: get mutatingwebhookconfigurations.admissionregistration peerpods-webhook":   {hookRegister, "c.Get(", ""},
	"peerpods-webhook: patch mutatingwebhookconfigurations.admissionregistration peerpods-webhook": {hookRegister, "c.Patch(", "its certificate authority and condition"},
	"peerpods-webhook: create tokenreviews.authentication":                                         {hookCommand, "WithAuthenticationAndAuthorization", "who may read its metrics"},
	"peerpods-webhook: create subjectaccessreviews.authorization":                                  {hookCommand, "WithAuthenticationAndAuthorization", "who may read its metrics"},
	"peerpods-webhook: create secrets":                                                             {hookSecret, "k.Client.Create(ctx, secret)", "its certificate; creation cannot be bound to a name"},
	"peerpods-webhook: get secrets peerpods-webhook-tls":                                           {hookSecret, "k.Client.Get(ctx, k.Secret", ""},
	"peerpods-webhook: update secrets peerpods-webhook-tls":                                        {hookSecret, "k.Client.Update(ctx, secret)", ""},
	"peerpods-webhook: create events":                                                              {hookCommand, "LeaderElectionID", "the elector tells on its lease"},
	"peerpods-webhook: patch events":                                                               {hookCommand, "LeaderElectionID", "the elector tells on its lease"},
	"peerpods-webhook: create events.events.k8s.io":                                                {hookCommand, "LeaderElectionID", "the elector tells on its lease"},
	"peerpods-webhook: patch events.events.k8s.io":                                                 {hookCommand, "LeaderElectionID", "the elector tells on its lease"},
	"byom-pool: create configmaps":                                                                 {"providers/byom/store.go", "s.maps.Create(", "which machine is whose; creation cannot be bound to a name"},
	"byom-pool: get configmaps byom-ip-pool-state":                                                 {"providers/byom/store.go", "s.maps.Get(", ""},
	"byom-pool: update configmaps byom-ip-pool-state":                                              {"providers/byom/store.go", "s.maps.Update(", "by compare-and-swap"},
	"node-installer: get daemonsets.apps node-installer":                                           {"internal/peerpods/nodeinstall/owner.go", "daemonsets/%s", "whether it is removed for good"},
	"peerpods-webhook-metrics-reader: get /metrics":                                                {hookCommand, "WithAuthenticationAndAuthorization", "for whoever scrapes; bound to nobody"},
	"outrigger-csi-controller: get persistentvolumes":                                              {csiPods, `k.API.Get(ctx, client.ObjectKeyFromObject`, "also sidecars"},
	"outrigger-csi-controller: list persistentvolumes":                                             {csiPods, `&corev1.PersistentVolume{}, byHandle`, "whose a volume is"},
	"outrigger-csi-controller: watch persistentvolumes":                                            {csiPods, `&corev1.PersistentVolume{}, byHandle`, ""},
	"outrigger-csi-controller: create persistentvolumes":                                           {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: patch persistentvolumes":                                            {csiSidecars, `csi-provisioner`, "finalizers; sizes"},
	"outrigger-csi-controller: delete persistentvolumes":                                           {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: get persistentvolumeclaims":                                         {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: list persistentvolumeclaims":                                        {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: watch persistentvolumeclaims":                                       {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: update persistentvolumeclaims":                                      {csiSidecars, `csi-provisioner`, "when the chosen node has no room"},
	"outrigger-csi-controller: patch persistentvolumeclaims/status":                                {csiSidecars, `csi-resizer`, ""},
	"outrigger-csi-controller: get pods":                                                           {csiSidecars, `csi-resizer`, "whether a volume is in use"},
	"outrigger-csi-controller: list pods":                                                          {csiPods, `k.API.List(ctx, &pods`, "those of a claim on a node"},
	"outrigger-csi-controller: watch pods":                                                         {csiSidecars, `csi-resizer`, ""},
	"outrigger-csi-controller: get nodes":                                                          {csiSidecars, `csi-provisioner`, "zones"},
	"outrigger-csi-controller: list nodes":                                                         {csiSidecars, `csi-provisioner`, "zones"},
	"outrigger-csi-controller: watch nodes":                                                        {csiSidecars, `csi-provisioner`, "zones"},
	"outrigger-csi-controller: list events":                                                        {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: watch events":                                                       {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: create events":                                                      {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: update events":                                                      {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: patch events":                                                       {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: get namespaces kube-system":                                         {csiOpen, `metav1.NamespaceSystem`, "its UID is the cluster's identity"},
	"outrigger-csi-controller: get storageclasses.storage":                                         {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: list storageclasses.storage":                                        {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: watch storageclasses.storage":                                       {csiSidecars, `csi-provisioner`, ""},
	"outrigger-csi-controller: get volumeattributesclasses.storage":                                {csiSidecars, `csi-resizer`, ""},
	"outrigger-csi-controller: list volumeattributesclasses.storage":                               {csiSidecars, `csi-resizer`, ""},
	"outrigger-csi-controller: watch volumeattributesclasses.storage":                              {csiSidecars, `csi-resizer`, ""},
	"outrigger-csi-controller: get csinodes.storage":                                               {csiPods, `&storagev1.CSINode{}, byNodeID`, ""},
	"outrigger-csi-controller: list csinodes.storage":                                              {csiPods, `&storagev1.CSINode{}, byNodeID`, ""},
	"outrigger-csi-controller: watch csinodes.storage":                                             {csiPods, `&storagev1.CSINode{}, byNodeID`, ""},
	"outrigger-csi-controller: get volumeattachments.storage":                                      {csiPods, `&attachments`, "what is published for VMs"},
	"outrigger-csi-controller: list volumeattachments.storage":                                     {csiPods, `&attachments`, "what is published for VMs"},
	"outrigger-csi-controller: watch volumeattachments.storage":                                    {csiPods, `&attachments`, "what is published for VMs"},
	"outrigger-csi-controller: patch volumeattachments.storage":                                    {csiSidecars, `csi-attacher`, ""},
	"outrigger-csi-controller: patch volumeattachments/status.storage":                             {csiSidecars, `csi-attacher`, ""},
	"outrigger-csi-controller: get runtimeclasses.node":                                            {csiPods, `var class nodev1.RuntimeClass`, ""},
	"outrigger-csi-controller: get leases.coordination":                                            {csiSidecars, `--leader-election`, "each sidecar names its own"},
	"outrigger-csi-controller: list leases.coordination":                                           {csiSidecars, `--leader-election`, "each sidecar names its own"},
	"outrigger-csi-controller: watch leases.coordination":                                          {csiSidecars, `--leader-election`, "each sidecar names its own"},
	"outrigger-csi-controller: create leases.coordination":                                         {csiSidecars, `--leader-election`, "each sidecar names its own"},
	"outrigger-csi-controller: update leases.coordination":                                         {csiSidecars, `--leader-election`, "each sidecar names its own"},
	"outrigger-csi-controller: delete leases.coordination":                                         {csiSidecars, `--leader-election`, "each sidecar names its own"},
	"outrigger-csi-node: get nodes":                                                                {csiOpen, `node := &corev1.Node{}`, "providerID and zone"},
	"outrigger-csi-node: get pods":                                                                 {csiPods, `var p corev1.Pod`, "whether it runs in a VM"},
	"outrigger-csi-node: get runtimeclasses.node":                                                  {csiPods, `var class nodev1.RuntimeClass`, ""},
	"outrigger-csi-wrap-controller: get persistentvolumes":                                         {csiPods, `k.API.Get(ctx, client.ObjectKeyFromObject`, ""},
	"outrigger-csi-wrap-controller: list persistentvolumes":                                        {csiPods, `&corev1.PersistentVolume{}, byHandle`, "whose a volume is"},
	"outrigger-csi-wrap-controller: watch persistentvolumes":                                       {csiPods, `&corev1.PersistentVolume{}, byHandle`, ""},
	"outrigger-csi-wrap-controller: list pods":                                                     {csiPods, `k.API.List(ctx, &pods`, "those of a claim on a node"},
	"outrigger-csi-wrap-controller: get runtimeclasses.node":                                       {csiPods, `var class nodev1.RuntimeClass`, ""},
	"outrigger-csi-wrap-controller: list nodes":                                                    {csiPods, `k.Cache.List(ctx, &nodes)`, "which instances are Nodes"},
	"outrigger-csi-wrap-controller: watch nodes":                                                   {csiPods, `k.Cache.List(ctx, &nodes)`, "which instances are Nodes"},
	"outrigger-csi-wrap-controller: list csinodes.storage":                                         {csiPods, `&storagev1.CSINode{}, byNodeID`, ""},
	"outrigger-csi-wrap-controller: watch csinodes.storage":                                        {csiPods, `&storagev1.CSINode{}, byNodeID`, ""},
	"outrigger-csi-wrap-controller: list volumeattachments.storage":                                {csiPods, `&attachments`, "what is published for VMs"},
	"outrigger-csi-wrap-controller: watch volumeattachments.storage":                               {csiPods, `&attachments`, "what is published for VMs"},
	"outrigger-csi-wrap-node: get pods":                                                            {csiPods, `var p corev1.Pod`, "whether it runs in a VM"},
	"outrigger-csi-wrap-node: get runtimeclasses.node":                                             {csiPods, `var class nodev1.RuntimeClass`, ""},
	"outrigger-csi-snapshots: get volumesnapshots.snapshot.storage":                                {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: list volumesnapshots.snapshot.storage":                               {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: get volumesnapshotclasses.snapshot.storage":                          {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: list volumesnapshotclasses.snapshot.storage":                         {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: watch volumesnapshotclasses.snapshot.storage":                        {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: get volumesnapshotcontents.snapshot.storage":                         {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: list volumesnapshotcontents.snapshot.storage":                        {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: watch volumesnapshotcontents.snapshot.storage":                       {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: update volumesnapshotcontents.snapshot.storage":                      {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: patch volumesnapshotcontents.snapshot.storage":                       {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: update volumesnapshotcontents/status.snapshot.storage":               {csiSnapshots, `csi-snapshotter`, ""},
	"outrigger-csi-snapshots: patch volumesnapshotcontents/status.snapshot.storage":                {csiSnapshots, `csi-snapshotter`, ""},
}

// grants are the permissions in a render.
func grants(t *testing.T, all []*unstructured.Unstructured) map[string]bool {
	t.Helper()
	granted := map[string]bool{}
	for _, o := range all {
		if o.GetKind() != "ClusterRole" && o.GetKind() != "Role" {
			continue
		}
		var role rbac.ClusterRole // rules are where a Role has them
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &role); err != nil {
			t.Fatal(err)
		}
		for _, rule := range role.Rules {
			for _, one := range expand(rule) {
				granted[o.GetName()+": "+one] = true
			}
		}
	}
	return granted
}

// expand returns "VERB RESOURCE[.GROUP] [NAME]" for all that a rule grants.
func expand(rule rbac.PolicyRule) []string {
	var all []string
	for _, verb := range rule.Verbs {
		for _, url := range rule.NonResourceURLs {
			all = append(all, verb+" "+url)
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				one := verb + " " + resource + suffix(group)
				for _, name := range rule.ResourceNames {
					all = append(all, one+" "+name)
				}
				if len(rule.ResourceNames) == 0 {
					all = append(all, one)
				}
			}
		}
	}
	return all
}

// suffix shortens the groups of Kubernetes.
func suffix(group string) string {
	switch group {
	case "":
		return ""
	case "confidentialcontainers.org":
		return ".confidential"
	case "events.k8s.io":
		return "." + group
	}
	return "." + strings.TrimSuffix(group, ".k8s.io")
}

func TestEveryPermissionIsUsed(t *testing.T) {
	granted := map[string]bool{}
	all := renderings(t)
	for _, name := range wrappers(t) {
		all = append(all, rendering{"wrapper-" + name, func(t testing.TB) []byte { return wrapped(t, name) }})
	}
	for _, r := range all {
		for one := range grants(t, parse(t, r.render(t))) {
			granted[one] = true
			if _, known := uses[one]; !known {
				t.Errorf("%s: %q is granted; say in uses what for", r.name, one)
			}
			if strings.Contains(one, "*") {
				t.Errorf("%s: %q has a wildcard", r.name, one)
			}
		}
	}
	for one, use := range uses {
		if !granted[one] {
			t.Errorf("%q is granted to nobody", one)
		}
		text, err := os.ReadFile(filepath.Join(root, use.file))
		if err != nil {
			t.Errorf("%q: %v", one, err)
		} else if !strings.Contains(string(text), use.code) {
			t.Errorf("%q: %s has no %q any more: is it still needed?", one, use.file, use.code)
		}
	}
}

// TestRolesAreBoundToTheirAccounts keeps a role from reaching somebody else.
func TestRolesAreBoundToTheirAccounts(t *testing.T) {
	for _, o := range parse(t, overlay(t, "qemu")) {
		if !slices.Contains([]string{"ClusterRoleBinding", "RoleBinding"}, o.GetKind()) {
			continue
		}
		var binding rbac.ClusterRoleBinding
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &binding); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("[{ServiceAccount  %s %s}]", o.GetName(), namespace)
		if got := fmt.Sprint(binding.Subjects); got != want || binding.RoleRef.Name != o.GetName() {
			t.Errorf("%s binds %s to %s, want %s", id(o), binding.RoleRef.Name, got, want)
		}
	}
}
