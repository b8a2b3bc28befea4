// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"strings"
	"testing"
)

// TestWarnings: what has no effect in a VM, or keeps the pod from starting, is said when it is created.
func TestWarnings(t *testing.T) {
	const pod = `{"metadata":{"name":"p"},"spec":{"runtimeClassName":"kata-remote","containers":[{"name":"c"%s}]%s}}`
	for _, c := range []struct{ container, spec, want string }{
		{"", `,"volumes":[{"name":"v","emptyDir":{}},{"name":"w","configMap":{"name":"m"}},{"name":"x","emptyDir":{"medium":"Memory","sizeLimit":"1Mi"}}]`, ""},
		{"", `,"volumes":[{"name":"v"}]`, ""},
		{"", `,"volumes":[{"name":"v","emptyDir":{"sizeLimit":"1Gi"}}]`, `volume "v": nothing enforces sizeLimit`},
		{"", `,"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"c"}},{"name":"w","ephemeral":{}}]`, ""},
		{`,"volumeMounts":[{"name":"v","mountPath":"/x","mountPropagation":"HostToContainer"}]`, "", `mountPropagation "HostToContainer" of volume "v"`},
		{`,"volumeMounts":[{"name":"v","mountPath":"/x","mountPropagation":"None"}]`, "", ""},
		{"", `,"volumes":[{"name":"v","nfs":{"server":"s","path":"/"}}]`, ""},
		{"", `,"volumes":[{"name":"v","cephfs":{"monitors":["m"]}}]`, "cannot use cephfs"},
		{`,"volumeMounts":[{"name":"v","mountPath":"/x"}]`, `,"volumes":[{"name":"v","hostPath":{"path":"/srv"}}]`, "readOnly: true"},
		{`,"volumeMounts":[{"name":"v","mountPath":"/x","readOnly":true}]`, `,"volumes":[{"name":"v","hostPath":{"path":"/srv"}}]`, ""},
		{"", `,"initContainers":[{"name":"i","volumeMounts":[{"name":"v","mountPath":"/x"}]}],"volumes":[{"name":"v","hostPath":{"path":"/srv"}}]`, "readOnly: true"},
		{"", `,"hostNetwork":true`, "spec.hostNetwork"},
		{"", `,"hostPID":true`, "spec.hostPID"},
		{"", `,"hostIPC":true`, "spec.hostIPC"},
		{`,"resources":{"limits":{"ephemeral-storage":"1Gi"}}`, "", `container "c": nothing enforces its limit of ephemeral-storage`},
	} {
		object := fmt.Sprintf(pod, c.container, c.spec)
		resp := ask(t, fmt.Sprintf(reviewFormat, object))
		said := strings.Join(resp.Warnings, "\n")
		if !resp.Allowed || (c.want == "") != (said == "") || !strings.Contains(said, c.want) {
			t.Errorf("%s: allowed %v, warnings %q, want %q", object, resp.Allowed, said, c.want)
		}
	}
	many := strings.Repeat(`{"name":"`+strings.Repeat("n", 4000)+`","iscsi":{}},`, 50)
	resp := ask(t, fmt.Sprintf(reviewFormat, fmt.Sprintf(pod, "", `,"volumes":[`+strings.TrimSuffix(many, ",")+`]`)))
	if len(resp.Warnings) != maxWarnings || len(strings.Join(resp.Warnings, "")) > 4096 || len(resp.Warnings[0]) > 256 {
		t.Errorf("%d warnings, the first of %d bytes", len(resp.Warnings), len(resp.Warnings[0]))
	}
}
