// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"
)

const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: i\n"

func TestWhatHasNoEffectIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		head + "    imagee: x\n":                                                                                     `unknown field "spec.containers[0].imagee"`,
		head + "    image: x\n":                                                                                      "already set",
		head + "  hostNetwork: true\n":                                                                               "spec.hostNetwork: it has no effect",
		head + "  nodeSelector: {disk: ssd}\n":                                                                       "spec.nodeSelector.disk: it has no effect",
		head + "    lifecycle: {preStop: {exec: {command: [a]}}}\n":                                                  "spec.containers[0].lifecycle.preStop.exec.command",
		head + "    securityContext: {privileged: true}\n":                                                           "spec.containers[0].securityContext.privileged",
		head + "    livenessProbe: {grpc: {port: 1}}\n":                                                              "spec.containers[0].livenessProbe.grpc.port",
		head + "  volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]\n":                                     "spec.volumes[0].persistentVolumeClaim.claimName",
		head + "  tolerations: [{}]\n":                                                                               "spec.tolerations[0]: it has no effect",
		head + "  restartPolicy: Sometimes\n":                                                                        `"Sometimes" is not Always`,
		head + "    volumeMounts: [{name: v, mountPath: /x}]\n":                                                      `volume "v" is not in spec.volumes`,
		head + "    env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]\n":                                `Secret "s" is not in the file`,
		head + "    env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.foo}}}]\n":                                `fieldPath "spec.foo"`,
		head + "    imagePullPolicy: Never\n":                                                                        "imagePullPolicy Never",
		head + "    volumeMounts: [{name: v, mountPath: /x, subPath: ../a}]\n  volumes: [{name: v, emptyDir: {}}]\n": "path in an emptyDir",
		head + "---\n" + head:                                                                                        "several Pods",
		"apiVersion: apps/v1\nkind: Deployment\n":                                                                    "kind apps/v1 Deployment: want v1 Pod",
		"apiVersion: v1\nkind: ConfigMap\ndat: {}\n":                                                                 `unknown field "dat"`,
		"apiVersion: v1\nkind: ConfigMap\n":                                                                          "there is no Pod",
		"- a\n":                                                                                                      "not an object",
		"":                                                                                                           "there is no Pod",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: v}\n---\n" + head +
			"    volumeMounts: [{name: v, mountPath: /x}]\n  volumes: [{name: v, configMap: {name: m, items: [{key: k, path: ../../etc/passwd}]}}]\n": "leads out of the volume",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: m}\ndata: {k: '***'}\n---\n" + head: "illegal base64",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want %q", text, err, want)
		}
	}
	if _, err := Read(strings.NewReader(head + "  hostNetwork: false\n  tolerations: []\n  nodeName:\n")); err != nil {
		t.Errorf("what asks for nothing: %v", err)
	}
	if _, err := Read(strings.NewReader(strings.Repeat("#", maxFile+1))); err == nil {
		t.Error("a file of any size was read")
	}
}

func TestExpand(t *testing.T) {
	values := map[string]string{"A": "1", "B": "$(A)"}
	for text, want := range map[string]string{
		"$(A)": "1", "$(B)": "$(A)", "$$(A)": "$(A)", "$(C)": "$(C)", "$A ${A} $( A) $": "$A ${A} $( A) $", "$$$(A)": "$1",
	} {
		if got := Expand(text, values); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(head + "    command: [a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := Read(strings.NewReader(text)); err == nil && (p.Name == "" || len(p.Spec.Containers) == 0) {
			t.Errorf("%q gives a pod without name or containers", text)
		}
	})
}
