// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"regexp"
	"strings"

	"github.com/outrigger/outrigger/provider"
)

// dnsLabel is a label of RFC 1123, section 2.1, in lower case.
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func checkName(r *run) { r.checkPodName(podName) }

// maxPodName is the longest name of a pod: a DNS subdomain.
const maxPodName = 253

func checkPodNameLong(r *run)  { r.checkPodName(strings.Repeat("a-long.name-", 30)[:maxPodName]) }
func checkPodNameOdd(r *run)   { r.checkPodName("-Web.Front_1/../gr\u00fcn \U0001f680 $(id) \"'<&>%s.-") }
func checkPodNameEmpty(r *run) { r.checkPodName("") }

func (r *run) checkPodName(pod string) {
	r.Helper()
	c := r.creation(newKey())
	c.pod = pod
	if made := r.mustDo(c); !dnsLabel.MatchString(made.Name) {
		r.Errorf("instance %s has the name %q, which is not a DNS label", made.ID, made.Name)
	}
}

func checkNamesDiffer(r *run) {
	first, second := r.mustCreate(newKey()), r.mustCreate(newKey())
	if first.Name == second.Name {
		r.Errorf("instances %s and %s both have the name %q", first.ID, second.ID, first.Name)
	}
}

// checkAddressOwn is about what only looks like the address of a VM.
func checkAddressOwn(r *run) {
	instance := r.mustCreate(newKey())
	for _, addr := range instance.IPs {
		if addr.IsLoopback() {
			r.Errorf("instance %s has the address %s, which is that of whoever asks", instance.ID, addr)
		}
	}
}

// checkArguments changes the tags after the call, as their owner may.
func checkArguments(r *run) {
	c := r.creation(newKey())
	given := len(c.spec.Tags)
	made := r.mustDo(c)
	if len(c.spec.Tags) != given || c.spec.Tags[provider.TagKey] != c.key {
		r.Errorf("CreateInstance changed the tags it was given: %v", c.spec.Tags)
	}
	if !has[provider.Lister](r) {
		return
	}
	const mark = "changed-by-the-caller"
	c.spec.Tags[mark] = "yes"
	if i := r.shown(made.ID); i.Tags[mark] != "" {
		r.Errorf("instance %s has the tag %s: the provider keeps the caller's map", made.ID, mark)
	}
}
