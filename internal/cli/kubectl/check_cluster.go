// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/cli/doctor"
	"github.com/outrigger/outrigger/internal/peerpods/claims"
)

// workerNodes returns the nodes that may have pod VMs.
func (k *checker) workerNodes(ctx context.Context) ([]node, error) {
	return list[node](ctx, k.c, core("", "nodes"), map[string]string{"labelSelector": workerLabel + "="})
}

const labelHint = "kubectl label node NODE " + workerLabel + "="

func (k *checker) workers(ctx context.Context) doctor.Result {
	nodes, err := k.workerNodes(ctx)
	if err != nil {
		return unread(err, "the list of nodes")
	}
	if len(nodes) == 0 {
		return doctor.Fail(labelHint, "no node has the label %s=, so none gets an adaptor and none takes pods of class %s", workerLabel, RuntimeClass)
	}
	var away []string
	for _, n := range nodes {
		if c := meta.FindStatusCondition(n.Status.Conditions, "Ready"); c == nil || c.Status != "True" {
			away = append(away, n.Metadata.Name)
		}
	}
	if len(away) == len(nodes) {
		return doctor.Fail("kubectl describe node "+away[0], "none of the %d nodes for pod VMs is ready: %s", len(nodes), strings.Join(away, ", "))
	}
	if len(away) > 0 {
		return doctor.Warn("kubectl describe node "+away[0], "of %d nodes for pod VMs these are not ready: %s", len(nodes), strings.Join(away, ", "))
	}
	return doctor.Good("%d for pod VMs", len(nodes))
}

// handler checks whether the container runtimes have the handler. Kubelets
// report it since Kubernetes 1.31, and only if their runtime does.
func (k *checker) handler(ctx context.Context) doctor.Result {
	nodes, err := k.workerNodes(ctx)
	if err != nil {
		return unread(err, "the list of nodes")
	}
	var lack []string
	silent := 0
	for _, n := range nodes {
		switch {
		case len(n.Status.RuntimeHandlers) == 0:
			silent++
		case !slices.Contains(n.Status.RuntimeHandlers, named{RuntimeClass}):
			lack = append(lack, n.Metadata.Name)
		}
	}
	if len(lack) > 0 {
		return doctor.Fail("install the shim and its handler in the container runtime of these nodes", "the container runtime has no handler %s on %s", RuntimeClass, strings.Join(lack, ", "))
	}
	if silent > 0 {
		return doctor.Good("%d nodes do not tell which handlers their container runtime has", silent)
	}
	return doctor.Good("%s, on %d nodes", RuntimeClass, len(nodes))
}

func (k *checker) capacity(ctx context.Context) doctor.Result {
	nodes, err := k.workerNodes(ctx)
	if err != nil {
		return unread(err, "the list of nodes")
	}
	total, without := 0, []string{}
	for _, n := range nodes {
		capacity, err := strconv.Atoi(n.Status.Capacity[VMResource])
		if err != nil {
			without = append(without, n.Metadata.Name)
		}
		total += capacity
	}
	switch {
	case len(nodes) == 0:
		return doctor.Fail(labelHint, "there is no node that could have pod VMs")
	case len(without) == len(nodes):
		return doctor.Fail("see the log of "+adaptorName, "no node advertises %s: pods that the webhook changed find no node", VMResource)
	case len(without) > 0:
		return doctor.Warn("see the log of "+adaptorName+" on these nodes", "these nodes do not advertise %s: %s", VMResource, strings.Join(without, ", "))
	case total == 0:
		return doctor.Fail("raise PEERPODS_LIMIT_PER_NODE in "+configMapName, "the nodes may have no pod VM")
	}
	return doctor.Good("%d pod VMs on %d nodes", total, len(nodes))
}

// claims counts the PeerPods that somebody should look at.
func (k *checker) claims(ctx context.Context) doctor.Result {
	all, err := k.c.peerPods(ctx, "")
	if err != nil {
		return unread(err, "PeerPods")
	}
	failed, stuck := []string{}, []string{}
	for i := range all {
		pp := &all[i]
		name := pp.Namespace + "/" + cmp.Or(claims.PodName(pp), pp.Name)
		switch {
		case pp.DeletionTimestamp != nil && k.app.Now().Sub(pp.DeletionTimestamp.Time) > stuckAfter:
			stuck = append(stuck, name)
		case claims.PhaseOf(pp) == v1alpha1.PhaseFailed:
			failed = append(failed, name)
		}
	}
	switch {
	case len(stuck) > 0:
		return doctor.Warn("kubectl outrigger gc --dry-run", "%d of %d hang in their removal: %s", len(stuck), len(all), some(stuck))
	case len(failed) > 0:
		return doctor.Warn("kubectl outrigger describe pod NAME -n NAMESPACE", "%d of %d have failed: %s", len(failed), len(all), some(failed))
	}
	return doctor.Good("%d, none has failed", len(all))
}

// some names a few.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// oldest is the minor version of Kubernetes 1 that has what is needed: match
// conditions of webhooks and fields of custom resources to select by.
const oldest = 30

func (k *checker) server(ctx context.Context) doctor.Result {
	var v struct{ Major, Minor, GitVersion string }
	if err := k.c.Get(ctx, "/version", &v); err != nil {
		return doctor.Fail("see --kubeconfig and --context, and that the cluster can be reached from here", "the API server does not answer: %v", err)
	}
	minor, err := strconv.Atoi(strings.TrimRight(v.Minor, "+"))
	if err != nil || v.Major == "1" && minor < oldest {
		return doctor.Fail(fmt.Sprintf("use Kubernetes 1.%d or later", oldest), "Kubernetes %s", v.GitVersion)
	}
	return doctor.Good("Kubernetes %s", v.GitVersion)
}

// read returns the definition of PeerPods.
func (k *checker) read(ctx context.Context) (definition, error) {
	var d definition
	return d, k.c.Get(ctx, api(definitions, "", "customresourcedefinitions", crdName), &d)
}

func (k *checker) definition(ctx context.Context) doctor.Result {
	d, err := k.read(ctx)
	if err != nil {
		return unread(err, "the definition of PeerPods ("+crdName+")")
	}
	const update = "kubectl apply -k deploy/base/crd"
	if c := meta.FindStatusCondition(d.Status.Conditions, "Established"); c == nil || c.Status != "True" {
		return doctor.Fail("kubectl describe crd "+crdName, "the API server has not taken %s yet", crdName)
	}
	if missing := lacking(&d); len(missing) > 0 {
		return doctor.Fail(update, "%s is of another version: it lacks %s", crdName, strings.Join(missing, ", "))
	}
	return doctor.Good("%s, version %s", crdName, v1alpha1.GroupVersion.Version)
}

// lacking returns what an older definition does not have.
func lacking(d *definition) []string {
	want := v1alpha1.GroupVersion.Version
	for _, v := range d.Spec.Versions {
		if v.Name != want || !v.Served {
			continue
		}
		var missing []string
		for _, field := range []string{".spec.nodeName", ".spec.podUID"} {
			if !slices.Contains(v.SelectableFields, selectable{field}) {
				missing = append(missing, "selectable field "+field)
			}
		}
		if _, has := v.Subresources["status"]; !has {
			missing = append(missing, "subresource status")
		}
		return missing
	}
	return []string{"version " + want}
}

func (k *checker) olderDefinition(ctx context.Context) doctor.Result {
	d, err := k.read(ctx)
	switch {
	case apierrors.IsNotFound(err):
		return doctor.Good("no PeerPods are defined yet")
	case err != nil:
		return unread(err, "the definition of PeerPods ("+crdName+")")
	}
	if missing := lacking(&d); len(missing) > 0 {
		return doctor.Warn("delete no PeerPod by hand; the installation replaces the definition and keeps the PeerPods", "%s is there, of another version: it lacks %s", crdName, strings.Join(missing, ", "))
	}
	return doctor.Good("%s is there already", crdName)
}

func (k *checker) olderClass(ctx context.Context) doctor.Result {
	var class nodev1.RuntimeClass
	err := k.c.Get(ctx, api(nodeGroup, "", "runtimeclasses", RuntimeClass), &class)
	switch {
	case apierrors.IsNotFound(err):
		return doctor.Good("%s is not there yet", RuntimeClass)
	case err != nil:
		return unread(err, "RuntimeClass "+RuntimeClass)
	case class.Handler != RuntimeClass:
		return doctor.Fail("kubectl delete runtimeclass "+RuntimeClass+", once no pod uses it: a handler cannot be changed", "RuntimeClass %s is there with handler %s", RuntimeClass, class.Handler)
	}
	return doctor.Good("%s is there already", RuntimeClass)
}

// olderWebhook looks for other webhooks that size pods of the class: two would
// both change them.
func (k *checker) olderWebhook(ctx context.Context) doctor.Result {
	configs, err := list[object](ctx, k.c, api(admission, "", "mutatingwebhookconfigurations"), nil)
	if err != nil {
		return unread(err, "the list of webhooks")
	}
	for _, w := range configs {
		if name := w.Metadata.Name; name != webhookName && strings.Contains(name, "peer-pods") || strings.Contains(name, "peerpods") && name != webhookName {
			return doctor.Warn("kubectl delete mutatingwebhookconfiguration "+name+", if it is of an earlier installation", "webhook %s may size the same pods", name)
		}
	}
	return doctor.Good("no other webhook for peer pods")
}
