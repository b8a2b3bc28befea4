// SPDX-License-Identifier: Apache-2.0

package conversion

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

// fields are what an object or a part of it has in JSON.
type fields = map[string]any

// unknownReason is the reason of a condition that had none: contract v1beta2
// wants one.
const unknownReason = "NoReasonReported"

// up changes the fields that v1beta1 has in another shape into those of v1beta2. All others
// are alike.
func up(o fields) {
	status := within(o, "status")
	domainsUp(inner(o))
	domainsUp(status)
	if domain, ok := within(o, "spec")["failureDomain"]; ok {
		status["failureDomain"] = domain
	}
	if status["ready"] == true {
		status["initialization"] = fields{"provisioned": true}
	}
	if newer, ok := status["v1beta2"].(fields); ok {
		status["conditions"] = newer["conditions"]
		return
	}
	for condition := range each(status["conditions"]) { // of a time before contract v1beta2
		if _, ok := condition["reason"]; !ok {
			condition["reason"] = unknownReason
		}
	}
}

// down changes the fields that v1beta2 has in another shape into those of v1beta1.
func down(o fields) {
	status := within(o, "status")
	domainsDown(inner(o))
	domainsDown(status)
	if domain, ok := status["failureDomain"]; ok {
		within(o, "spec")["failureDomain"] = domain
	}
	if conditions, ok := status["conditions"]; ok {
		status["v1beta2"] = fields{"conditions": runtime.DeepCopyJSONValue(conditions)}
	}
	// Contract v1beta1 wants a severity of what is False. There is nothing from which to tell
	// an error.
	for condition := range each(status["conditions"]) {
		if condition["status"] == "False" {
			condition["severity"] = "Info"
		}
	}
}

// domainsUp makes a list of failure domains of a map by name, domainsDown the reverse.
func domainsUp(parent fields) {
	domains, _ := parent["failureDomains"].(fields)
	var list []any
	for _, name := range slices.Sorted(maps.Keys(domains)) {
		domain := fields{"controlPlane": false}
		maps.Copy(domain, domains[name].(fields))
		domain["name"] = name
		list = append(list, domain)
	}
	parent["failureDomains"] = list
}

func domainsDown(parent fields) {
	domains := fields{}
	for domain := range each(parent["failureDomains"]) {
		name, _ := domain["name"].(string)
		domains[name] = domain
	}
	parent["failureDomains"] = domains
}

// inner returns the spec of an object, or of what a template makes.
func inner(o fields) fields {
	spec := within(o, "spec")
	if template, ok := spec["template"].(fields); ok {
		if spec, ok := template["spec"].(fields); ok {
			return spec
		}
	}
	return spec
}

// within returns a part of an object, which is added where there is none.
func within(o fields, name string) fields {
	part, ok := o[name].(fields)
	if !ok {
		part = fields{}
		o[name] = part
	}
	return part
}

func each(list any) func(yield func(fields) bool) {
	items, _ := list.([]any)
	return func(yield func(fields) bool) {
		for _, item := range items {
			if !yield(item.(fields)) {
				return
			}
		}
	}
}

// restore copies to now what only v1beta2 has: what before has, and neither now nor what came
// back of before when it was converted.
func restore(now, before, back fields) {
	for name, was := range before {
		inBack, there := back[name]
		if !there {
			if _, set := now[name]; !set {
				now[name] = was
				continue
			}
		}
		if was, ok := was.(fields); ok {
			is, set := now[name].(fields)
			if !set {
				is = fields{}
			}
			inBack, _ := inBack.(fields)
			if restore(is, was, inBack); len(is) > 0 {
				now[name] = is
			}
		}
	}
}
