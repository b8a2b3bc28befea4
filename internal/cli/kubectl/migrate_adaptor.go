// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/outrigger/outrigger/api/peerpod/v1alpha1"
	"github.com/outrigger/outrigger/internal/upstream"
	"github.com/outrigger/outrigger/provider/config"
)

// planAdaptor plans the move from cloud-api-adaptor.
func (a *App) planAdaptor(ctx context.Context, c *cluster) (*Plan, error) {
	p := newPlan("cloud-api-adaptor", "migrate-cloud-api-adaptor.md")
	var daemons object
	if err := c.Get(ctx, api(apps, a.system, "daemonsets", adaptorName), &daemons); err != nil {
		return nil, nothingOf("DaemonSet "+a.system+"/"+adaptorName+" (--system-namespace)", err)
	}
	if daemons.Metadata.Labels["app.kubernetes.io/part-of"] == "outrigger" {
		return nil, fmt.Errorf("DaemonSet %s/%s is Outrigger's: the move is made, see kubectl outrigger check", a.system, adaptorName)
	}
	helm, namespace := release(&daemons)
	p.found("DaemonSet "+a.system+"/"+adaptorName, "%s", cmp.Or(prefixedBy("of Helm release ", helm), "of no Helm release"))
	s, err := a.upstreamSettings(ctx, c, p)
	if err != nil {
		return nil, err
	}
	p.keys(s)
	a.checkUpstream(ctx, c, p, s)
	if err := a.upstreamPods(ctx, c, p); err != nil {
		return nil, err
	}
	folders := a.upstreamPrograms(ctx, c, p)
	kata := a.kataStays(ctx, c, p, helm)
	p.adaptorSteps(&upstreamInstallation{system: a.system, provider: s.provider(), helm: helm, namespace: namespace, folders: folders, kata: kata})
	return p, nil
}

func prefixedBy(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// upstreamSettings reads ConfigMap and Secret. The plan goes without a Secret that may not be read.
func (a *App) upstreamSettings(ctx context.Context, c *cluster, p *Plan) (*settings, error) {
	var s settings
	var err error
	if s.config, err = c.configMap(ctx, a.system, configMapName); err != nil {
		return nil, fmt.Errorf("read ConfigMap %s/%s: %w", a.system, configMapName, err)
	}
	p.found("ConfigMap "+a.system+"/"+configMapName, "%d keys, provider %s", len(s.config), cmp.Or(s.provider(), "none"))
	s.secret, err = c.secret(ctx, a.system, secretName)
	switch {
	case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
		p.found("Secret "+a.system+"/"+secretName, "not read: %v", err)
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", a.system, secretName, err)
	default:
		p.found("Secret "+a.system+"/"+secretName, "%d keys", len(s.secret))
	}
	return &s, nil
}

// keys says what each key is here.
func (p *Plan) keys(s *settings) {
	known := map[string]upstream.Key{}
	for _, k := range upstream.KeysOf(s.provider()) {
		known[k.Name] = k
	}
	all := maps.Clone(s.config)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, s.secret)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		k, is := known[name]
		switch {
		case !is:
			p.Settings = append(p.Settings, Moved{name, "unknown", "no release of cloud-api-adaptor has it with this provider; the chart refuses it, unless the provider is yours: remove it from values.yaml"})
		case k.Becomes == upstream.None:
			p.Settings = append(p.Settings, Moved{name, "no effect", k.Advice})
		case k.Renamed():
			p.Settings = append(p.Settings, Moved{name, k.Becomes, cmp.Or(k.Advice, "the earlier name counts while the other is not set")})
		default:
			p.Same++
			if k.Advice != "" && all[name] != "" {
				p.Settings = append(p.Settings, Moved{name, "same", k.Advice})
			}
		}
	}
}

// checkUpstream finds settings with which the adaptor would not start.
func (a *App) checkUpstream(ctx context.Context, c *cluster, p *Plan, s *settings) {
	if tunnel := s.get("TUNNEL_TYPE"); tunnel != "" && tunnel != "vxlan" {
		p.settle("TUNNEL_TYPE is %q, and there is vxlan only: remove it", tunnel)
	}
	if err := (config.Field{Type: config.Duration}).Check(s.get("PROXY_TIMEOUT")); s.get("PROXY_TIMEOUT") != "" && err != nil {
		p.settle("PROXY_TIMEOUT: %v", err)
	}
	if s.provider() == "aws" && s.get("PODVM_AMI_ID") == "" && s.get("USE_PODVM_LAUNCHTEMPLATE") == "" && s.get("PODVM_LAUNCHTEMPLATE_NAME") != "" {
		p.settle("PODVM_LAUNCHTEMPLATE_NAME chooses the template only with USE_PODVM_LAUNCHTEMPLATE=true")
	}
	for _, folder := range []string{"PODS_DIR", "REMOTE_HYPERVISOR_ENDPOINT"} {
		if text := s.get(folder); text != "" && !strings.HasPrefix(text, "/run/peerpod/") {
			p.settle("%s is not below /run/peerpod, the folder that the DaemonSet has of the node: remove it", folder)
		}
	}
	schema, err := a.schema(ctx, s)
	if err != nil {
		p.found("Provider "+s.provider(), "its settings were not checked: %v", err)
		return
	}
	for _, wrong := range wrongSettings(s, schema, s.secret == nil) {
		p.settle("%s", wrong)
	}
}

// upstreamPods finds the pods whose VMs end with the move.
func (a *App) upstreamPods(ctx context.Context, c *cluster, p *Plan) error {
	peerPods, err := list[v1alpha1.PeerPod](ctx, c, api(peerPodGroup, "", v1alpha1.Resource), nil)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("list PeerPods: %w", err)
	}
	pods, err := list[pod](ctx, c, core("", "pods"), nil)
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	pods = slices.DeleteFunc(pods, func(p pod) bool { return p.Spec.RuntimeClassName != RuntimeClass })
	p.found("PeerPods", "%d, for %d pods of class %s", len(peerPods), len(pods), RuntimeClass)
	for i := range pods {
		m := pods[i].Metadata
		why := "nobody makes it again: keep its manifest"
		if len(m.OwnerReferences) > 0 {
			why = "made again by its " + m.OwnerReferences[0].Kind
		}
		p.restart("pod %s/%s, with its VM; %s", m.Namespace, m.Name, why)
	}
	for _, pp := range peerPods {
		if pp.DeletionTimestamp != nil && a.Now().Sub(pp.DeletionTimestamp.Time) > stuckAfter {
			p.settle("PeerPod %s/%s is in deletion for long: upstream does not get instance %s deleted; see its controller's log. Outrigger deletes it if you add it to ADOPT_INSTANCES in ConfigMap peer-pods-cm; without Helm delete it at the cloud and take the finalizer away, or the definition is never removed",
				pp.Namespace, pp.Name, cmp.Or(pp.Spec.InstanceID, "(unknown)"))
		}
	}
	return nil
}

// upstreamNames are the controller and the webhook: the namespace, or "" for --system-namespace, the name, and the folder of
// upstream's sources from which kustomize makes it; the chart's have no folder of their own.
var upstreamNames = [][3]string{
	{"", "peerpodctrl-controller-manager", ""}, {"", "peerpod-ctrl-controller-manager", "src/peerpod-ctrl/config/default"},
	{"peer-pods-webhook-system", "peer-pods-webhook-controller-manager", "src/webhook/config/default"},
}

const upstreamWebhook = "peer-pods-webhook-mutating-webhook-configuration"

// upstreamPrograms returns the folders of those that are there, in the order in which they are applied.
func (a *App) upstreamPrograms(ctx context.Context, c *cluster, p *Plan) (folders []string) {
	for _, n := range upstreamNames {
		namespace := cmp.Or(n[0], a.system)
		if err := c.Get(ctx, api(apps, namespace, "deployments", n[1]), &object{}); err == nil {
			p.found("Deployment "+namespace+"/"+n[1], "goes with the old installation")
			if n[2] != "" {
				folders = append(folders, n[2])
			}
		}
	}
	if err := c.Get(ctx, api(admission, "", "mutatingwebhookconfigurations", upstreamWebhook), &object{}); err == nil {
		p.found("MutatingWebhookConfiguration "+upstreamWebhook, "goes with the old installation; while it is there without its Deployment, pods are refused")
	}
	return folders
}

// kataStays reports whether the RuntimeClass, and Kata with it, is still there when the Helm release of the adaptor has gone.
func (a *App) kataStays(ctx context.Context, c *cluster, p *Plan, helm string) bool {
	var class object
	err := c.Get(ctx, api(nodeGroup, "", "runtimeclasses", RuntimeClass), &class)
	if err != nil {
		p.found("RuntimeClass "+RuntimeClass, "not read: %v", err)
		return false
	}
	of, _ := release(&class)
	p.found("RuntimeClass "+RuntimeClass, "%s", cmp.Or(prefixedBy("of Helm release ", of), "of no Helm release"))
	return of == "" || of != helm
}

// upstreamInstallation is how cloud-api-adaptor came into the cluster. Without a Helm release it was kustomize,
// which made controller and webhook from folders of their own.
type upstreamInstallation struct {
	system, provider, helm, namespace string
	folders                           []string
	kata                              bool
}

// valuesFromSettings is a program of jq: it makes values of the chart from ConfigMap and Secrets, which upstream's chart has the same.
const valuesFromSettings = `INDEX(.items[]; .kind + .metadata.name) | map_values(.data // {}) | (."Secretssh-key-secret" // {}) as $ssh | ` +
	`{provider: $p, providerConfigs: {($p): (."ConfigMappeer-pods-cm" | del(.CLOUD_PROVIDER))}, providerSecrets: {($p): ((."Secretpeer-pods-secret" // {}) ` +
	`+ ({id_rsa: $ssh.id_rsa, id_rsa_pub: $ssh["id_rsa.pub"]} | with_entries(select(.value))) | map_values(@base64d))}, ` +
	`tlsCerts: ((."Secretcerts-for-tls" // {}) | {ca: ."ca.crt", cert: ."client.crt", key: ."client.key"} | with_entries(select(.value)) | map_values(@base64d))}`

// adaptorSteps adds the steps, and those back.
func (p *Plan) adaptorSteps(u *upstreamInstallation) {
	p.restart("the adaptor on all nodes at once: two cannot serve one node")
	// The definition of PeerPods stays when Helm removes upstream's chart, and belongs to no release.
	chart := "outrigger deploy/chart --namespace " + u.system + " --values values.yaml --set image.prefix=REGISTRY/FOLDER,image.tag=TAG,provider=" + u.provider
	if u.kata {
		chart += " --set runtimeClass.create=false"
	} else {
		chart += " --set nodeInstaller.enabled=true"
	}
	remove, again := u.kustomize()
	removal := "Remove the old installation. Folders of peerpod-ctrl take the namespace with them, and whatever else is in it."
	keep := []string{"umask 077; kubectl get configmap,secret --namespace " + u.system + " --output json > settings.json",
		"jq --arg p " + u.provider + " '" + valuesFromSettings + "' settings.json > values.yaml"}
	if u.helm != "" {
		removal = "Remove the old installation."
		keep = []string{"umask 077; helm get values " + u.helm + " --namespace " + u.namespace + " --output yaml > values.yaml"}
		remove = []string{"helm uninstall " + u.helm + " --namespace " + u.namespace}
		again = []string{"kubectl wait --for=delete namespace/peer-pods-webhook-system --timeout=5m", "helm install " + u.helm + " UPSTREAM/src/cloud-api-adaptor/install/charts/peerpods --namespace " + u.namespace + " --values values.yaml"}
	}
	p.step("Keep the values, and see that Outrigger's chart takes them.", append(keep, "helm template "+chart+" > /dev/null")...)
	p.step("Make and push the images.", "make image push CLOUD_PROVIDER="+u.provider+" PREFIX=REGISTRY/FOLDER TAG=TAG")
	p.step("End the pods that run in VMs, by scaling down what makes them; wait until no PeerPod is left.", "kubectl get peerpods --all-namespaces")
	p.step(removal, remove...)
	p.step("Install Outrigger and look at it.", "helm install "+chart+" --create-namespace --take-ownership", "kubectl outrigger check")
	p.step("Scale up again.")
	p.back("End the pods again; wait until no PeerPod is left.", "kubectl get peerpods --all-namespaces")
	p.back("Remove Outrigger and its definitions, which upstream brings itself.", "helm uninstall outrigger --namespace "+u.system,
		"kubectl delete crd peerpods.confidentialcontainers.org podvmpools.confidentialcontainers.org")
	p.back("Install upstream again.", again...)
}

// kustomize returns what removes an installation without Helm, and what makes it again, in a checkout of upstream's release.
func (u *upstreamInstallation) kustomize() (remove, again []string) {
	folders := append(slices.Clone(u.folders), "src/cloud-api-adaptor/install/overlays/"+u.provider)
	for _, folder := range folders {
		remove = append([]string{"kubectl delete --ignore-not-found --kustomize UPSTREAM/" + folder}, remove...)
		again = append(again, "kubectl apply --kustomize UPSTREAM/"+folder)
	}
	return remove, again
}
