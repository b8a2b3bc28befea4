// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
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
)

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
