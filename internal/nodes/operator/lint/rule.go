// SPDX-License-Identifier: Apache-2.0

package lint

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/outrigger/outrigger/internal/nodes/operator/bundle"
)

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

// openshift returns which cluster the operand is for.
func (o operand) openshift() bool { return o.Flavor == bundle.OpenShift }

// container returns a main container, or nil.
func (o operand) container(name string) *corev1.Container {
	for i := range o.pod.Containers {
		if o.pod.Containers[i].Name == name {
			return &o.pod.Containers[i]
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
