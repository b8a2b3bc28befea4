// SPDX-License-Identifier: Apache-2.0

// Package lint has the rules that the operands of a bundle keep, each with what
// it is for and what to do where it is broken.
package lint

import (
	"fmt"
	"reflect"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

// Bundle renders a bundle in every way that there is, and returns which rules it
// breaks. An error is one of rendering: then there is nothing to look at.
func Bundle(b *bundle.Bundle) ([]Finding, error) {
	var findings []Finding
	for _, flavor := range b.Flavors {
		for _, single := range []bool{false, true} {
			more, err := rendered(b, Context{Platform: b.Platform, Namespace: namespace, Flavor: flavor, SingleReplica: single})
			if err != nil {
				return nil, err
			}
			findings = append(findings, more...)
		}
	}
	return findings, nil
}

// namespace is not the default one, so that a bundle that insists on that shows.
const namespace = "cloud-controllers"

// values returns the fewest values that a cluster has, or all of them, so that each
// conditional part of a template is rendered.
func values(b *bundle.Bundle, c Context, all bool) bundle.Values {
	v := bundle.Values{Flavor: c.Flavor, SingleReplica: c.SingleReplica, Namespace: c.Namespace, Images: bundle.Images{}}
	for _, key := range b.ImageKeys() {
		v.Images[key] = "registry.example/" + key + ":verify"
	}
	if all || c.Flavor == bundle.OpenShift {
		v.InfrastructureName = "cluster-x7k2p" // an installer of OpenShift always makes one
	}
	if !all {
		return v
	}
	v.Proxy = &bundle.Proxy{HTTP: "http://proxy.example:3128", HTTPS: "http://proxy.example:3128", None: ".cluster.local"}
	v.FeatureGates, v.AdditionalLabels, v.PublicEndpoint = "A=true", "key=value", true
	v.TLSMinVersion, v.TLSCipherSuites = "VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
	return v
}

// rendered returns what is wrong with all values, and what is wrong only with
// the fewest.
func rendered(b *bundle.Bundle, c Context) ([]Finding, error) {
	var findings []Finding
	for _, all := range []bool{true, false} {
		first, err := b.Render(values(b, c, all))
		if err != nil {
			return nil, err
		}
		second, err := b.Render(values(b, c, all))
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(operands(first.Resources, c), func(o operand) bool {
			return o.container(bundle.Manager) != nil || o.container(bundle.NodeManager) != nil
		}) {
			return nil, fmt.Errorf("bundle %s: no Deployment or DaemonSet for %s has a container %s or %s: there is nothing to look at", b.Name, c.Flavor, bundle.Manager, bundle.NodeManager)
		}
		for _, f := range append(Check(first.Resources, c), independent(first, second, c)...) {
			if !slices.ContainsFunc(findings, func(o Finding) bool {
				return o.Rule.Number == f.Rule.Number && o.Object == f.Object && o.Problem == f.Problem
			}) {
				findings = append(findings, f)
			}
		}
	}
	return findings, nil
}

// independent checks rule 15. It changes the first rendering.
func independent(first, second bundle.Rendered, c Context) (findings []Finding) {
	add := func(o client.Object, problem string) {
		findings = append(findings, Finding{Rule: Rules()[14], Object: name(o), Problem: problem, Flavor: c.Flavor, SingleReplica: c.SingleReplica})
	}
	before, again := slices.Concat(first.Resources, first.Bootstrap), slices.Concat(second.Resources, second.Bootstrap)
	if len(before) != len(again) {
		add(before[0], "a second rendering has another number of objects")
		return findings
	}
	for i, o := range before {
		if !reflect.DeepEqual(o, again[i]) {
			add(o, "a second rendering differs")
		}
		o.SetLabels(map[string]string{"changed": "true"})
	}
	for _, o := range again {
		if o.GetLabels()["changed"] != "" {
			add(o, "a change of one rendering changes another")
		}
	}
	return findings
}

func name(o client.Object) string {
	return o.GetObjectKind().GroupVersionKind().Kind + " " + o.GetName()
}

// Rule is one of the rules.
type Rule struct {
	// Number is stable; Name is too, and says what it is about.
	Number int    `json:"number"`
	Name   string `json:"name"`
	// Sentence says what has to be and why, Fix what to write.
	Sentence string `json:"sentence"`
	Fix      string `json:"fix"`

	// check looks at one operand; nil for the rule about the bundle as a whole.
	check func(operand) []string
}

// Finding is a rule that an object breaks.
type Finding struct {
	Rule   Rule   `json:"rule"`
	Object string `json:"object"`
	// Problem is what is wrong with it.
	Problem string `json:"problem"`
	// Flavor and SingleReplica say how the bundle was rendered.
	Flavor        bundle.Flavor `json:"flavor"`
	SingleReplica bool          `json:"singleReplica"`
}

// Context is what a rule needs to know about the rendering.
type Context struct {
	Platform      string
	Namespace     string
	Flavor        bundle.Flavor
	SingleReplica bool
}

// operand is a Deployment or DaemonSet of a bundle.
type operand struct {
	Context
	object   client.Object
	kind     string
	pod      *corev1.PodSpec
	template metav1.ObjectMeta
	selector *metav1.LabelSelector
	strategy string
	replicas int32
}

func (o operand) openshift() bool { return o.Flavor == bundle.OpenShift }

func (o operand) container(name string) *corev1.Container {
	return find(o.pod.Containers, func(c *corev1.Container) bool { return c.Name == name })
}

func find[T any](all []T, is func(*T) bool) *T {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}

func operands(objects []client.Object, c Context) []operand {
	var all []operand
	for _, object := range objects {
		o := operand{Context: c, object: object, replicas: 1}
		switch w := object.(type) {
		case *appsv1.Deployment:
			o.kind, o.template, o.selector, o.strategy = "Deployment", w.Spec.Template.ObjectMeta, w.Spec.Selector, string(w.Spec.Strategy.Type)
			if w.Spec.Replicas != nil {
				o.replicas = *w.Spec.Replicas
			}
		case *appsv1.DaemonSet:
			o.kind, o.template, o.selector = "DaemonSet", w.Spec.Template.ObjectMeta, w.Spec.Selector
		default:
			continue
		}
		o.pod = bundle.PodSpec(object)
		all = append(all, o)
	}
	return all
}

// Check returns which rules the rendered objects of a bundle break.
func Check(objects []client.Object, c Context) []Finding {
	var findings []Finding
	for _, o := range operands(objects, c) {
		for _, rule := range Rules() {
			if rule.check == nil {
				continue
			}
			for _, problem := range rule.check(o) {
				findings = append(findings, Finding{Rule: rule, Object: o.kind + " " + o.object.GetName(), Problem: problem, Flavor: c.Flavor, SingleReplica: c.SingleReplica})
			}
		}
	}
	return findings
}

// Rules returns all rules by number. Where OpenShift and plain Kubernetes differ, a
// rule contains both and checks the one that is rendered.
func Rules() []Rule {
	return []Rule{
		{1, "tolerations", "The pods run on nodes that are not initialized and have no network yet: nobody else makes them so.",
			"tolerate node.cloudprovider.kubernetes.io/uninitialized and node.kubernetes.io/not-ready with operator Exists and effect NoSchedule, or all of effect NoSchedule", tolerations},
		{2, "host-network", "The pods use the node's network, because there may be no other before they run.",
			"set hostNetwork: true", hostNetwork},
		{3, "ports", "Ports are the node's, so only those that are reserved may be used, and they have to be declared for the scheduler to see a conflict.",
			"declare containerPort 10258 in container cloud-controller-manager, 10263 in cloud-node-manager, and no other", ports},
		{4, "host-etc-kube", "On OpenShift the node's folder /etc/kubernetes says where the API server is; where the configuration is merged in the pod, the merged folder stands for it.",
			"mount the hostPath /etc/kubernetes (type Directory) as volume host-etc-kube at /etc/kubernetes, readOnly; or the emptyDir merged-cloud-config, readOnly, at /etc/kubernetes-cloud-config in cloud-controller-manager and at /etc/kubernetes in cloud-node-manager. On plain Kubernetes mount nothing of the node's /etc/kubernetes", etcKube},
		{5, "start", "On OpenShift a shell reads where the API server is and becomes the program; elsewhere there may be no shell.",
			"on OpenShift use command [/bin/bash, -c, script] without args, and in the script: set -o allexport, source /etc/kubernetes/apiserver-url.env if it is a file, exec the program. On plain Kubernetes start the program itself", start},
		{6, "termination-message", "What a container said last is seen in its status even if it wrote no message.",
			"set terminationMessagePolicy: FallbackToLogsOnError in each container, init containers too", terminationMessage},
		{7, "leader-election", "One manager works at a time, and survives an API server that is away for a minute and a half.",
			"give cloud-controller-manager --leader-elect=true --leader-elect-lease-duration=137s --leader-elect-renew-deadline=107s --leader-elect-retry-period=26s and --leader-elect-resource-namespace with the namespace of the installation",
			wantFlags("leader-elect", "true", "leader-elect-lease-duration", "137s", "leader-elect-renew-deadline", "107s",
				"leader-elect-retry-period", "26s", "leader-elect-resource-namespace", "NAMESPACE")},
		{8, "no-routes", "The pods' network is somebody else's; two that set routes undo each other's.",
			"give cloud-controller-manager --configure-cloud-routes=false", wantFlags("configure-cloud-routes", "false")},
		{9, "trusted-ca", "The programs trust the authorities that the cluster's administrator chose.",
			"mount the ConfigMap ccm-trusted-ca as volume trusted-ca, readOnly: on OpenShift key ca-bundle.crt as tls-ca-bundle.pem at /etc/pki/ca-trust/extracted/pem; on plain Kubernetes at a folder that the variable SSL_CERT_DIR names", trustedCA},
		{10, "service-account-credentials", "Each controller acts as an account of its own, with no more rights than it needs.",
			"give cloud-controller-manager --use-service-account-credentials=true", wantFlags("use-service-account-credentials", "true")},
		{11, "anti-affinity", "Two replicas on one node fall together, and want the same ports.",
			"give a Deployment exactly one required podAntiAffinity term, with topologyKey kubernetes.io/hostname and as matchLabels the Deployment's labels", antiAffinity},
		{12, "recreate", "A new pod cannot have the node's port while the old one has it.",
			"give a Deployment strategy type Recreate", recreate},
		{13, "labels", "Service, disruption budget and watchers find the pods by their labels.",
			"put k8s-app, and infrastructure.openshift.io/cloud-controller-manager (in a DaemonSet .../cloud-node-manager) with the platform as value, on the object, on its pods and into its selector", labels},
		{14, "replicas", "A second replica takes over; where nothing runs twice there is none.",
			"give a Deployment replicas: 2; on a single replica the renderer makes it 1", replicas},
		{15, "independent", "Whoever renders a bundle twice gets the same, and may change what he gets.",
			"use nothing in templates but the values: no time, no random numbers", nil},
	}
}
