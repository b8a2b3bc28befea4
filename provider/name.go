// SPDX-License-Identifier: Apache-2.0

package provider

import "strings"

// maxInstanceName is the longest DNS label (RFC 1035, section 2.3.4), which
// instance names must fit since they are also host and certificate names.
const maxInstanceName = 63

// InstanceName returns podvm-<pod>-<first 8 of the sandbox id> in lower case,
// with only [a-z0-9-] and at most 63 characters; the pod's part is cut.
func InstanceName(podName, sandboxID string) string {
	const prefix = "podvm-"
	id := dnsLabel(sandboxID)
	if len(id) > 8 {
		id = id[:8]
	}
	pod := dnsLabel(podName)
	if room := maxInstanceName - len(prefix) - 1 - len(id); len(pod) > room {
		pod = pod[:room]
	}
	return strings.Trim(prefix+strings.Trim(pod, "-")+"-"+id, "-")
}

func dnsLabel(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, s)
}
