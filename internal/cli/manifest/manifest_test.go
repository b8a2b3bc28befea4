// SPDX-License-Identifier: Apache-2.0

package manifest

import (
	"strings"
	"testing"
)

const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  containers:\n  - name: c\n    image: i\n"

func TestWhatHasNoEffectIsAnError(t *testing.T) {
	for text, want := range map[string]string{
		head + "    imagee: x\n":                                                 `unknown field "spec.containers[0].imagee"`,
		head + "    image: x\n":                                                  "already set",
		head + "  hostNetwork: true\n":                                           "spec.hostNetwork: it has no effect",
		head + "  nodeSelector: {disk: ssd}\n":                                   "spec.nodeSelector.disk: it has no effect",
		head + "    lifecycle: {preStop: {exec: {command: [a]}}}\n":              "spec.containers[0].lifecycle.preStop.exec.command",
		head + "    securityContext: {privileged: true}\n":                       "spec.containers[0].securityContext.privileged",
		head + "    livenessProbe: {grpc: {port: 1}}\n":                          "spec.containers[0].livenessProbe.grpc.port",
		head + "  volumes: [{name: v, persistentVolumeClaim: {claimName: x}}]\n": "spec.volumes[0].persistentVolumeClaim.claimName",
		head + "  hostUsers: false\n":                                            "spec.hostUsers: it has no effect",
		head + "  dnsPolicy: None\n":                                             `spec.dnsPolicy: "None" has no effect`,
		head + "  volumes: [{name: v, ephemeral: {}}]\n":                         "spec.volumes[0].ephemeral: it has no effect",
		head + "  volumes: [{name: v, emptyDir: {medium: memory}}]\n":            `spec.volumes[0].emptyDir.medium: "memory" is not Memory`,
		head + "  volumes: [{name: v, emptyDir: {sizeLimit: 1Mi}}]\n":            "spec.volumes[0].emptyDir.sizeLimit: it needs medium: Memory",
		head + "  volumes: [{name: v, hostPath: {path: a}}]\n":                   `spec.volumes[0].hostPath.path: "a" is not an absolute path`,
		head + "    volumeMounts: [{name: v, mountPath: /x}, {name: v, mountPath: /y}]\n  volumes: [{name: v, hostPath: {path: /a}}]\n": `volume "v" is mounted 2 times`,
		head + "  initContainers: [{name: x, image: i, ports: [{containerPort: 1, hostPort: 2}]}]\n":                                    "spec.initContainers[0].ports[0].hostPort",
		head + "    livenessProbe: {periodSeconds: 1}\n":                                                                                "spec.containers[0].livenessProbe: want one of exec",
		head + "    livenessProbe: {exec: {command: []}}\n":                                                                             "spec.containers[0].livenessProbe: want one of exec",
		head + "    livenessProbe: {tcpSocket: {port: web}}\n":                                                                          "spec.containers[0].livenessProbe.tcpSocket.port: web is not a port",
		head + "    readinessProbe: {httpGet: {port: 0}}\n":                                                                             "spec.containers[0].readinessProbe.httpGet.port: 0 is not a port",
		head + "    startupProbe: {tcpSocket: {port: 1}, periodSeconds: -1}\n":                                                          "startupProbe.periodSeconds: -1 is negative",
		head + "    livenessProbe: {tcpSocket: {port: 1}, failureThreshold: -1}\n":                                                      "livenessProbe.failureThreshold: -1 is negative",
		head + "    livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}\n":                                                       "livenessProbe.successThreshold: want 1",
		strings.Replace(head, "{name: p", "{name: P_", 1):                                                                               `metadata.name: "P_`,
		head + "  hostname: a.b\n":                                                    `spec.hostname: "a.b"`,
		"metadata: {name: p}\n":                                                       "no apiVersion or no kind",
		head + "  tolerations: [{}]\n":                                                "spec.tolerations[0]: it has no effect",
		head + "  restartPolicy: Sometimes\n":                                         `"Sometimes" is not Always`,
		head + "    volumeMounts: [{name: v, mountPath: /x}]\n":                       `volume "v" is not in spec.volumes`,
		head + "    env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]\n": `Secret "s" is not in the file`,
		head + "    env: [{name: A, valueFrom: {fieldRef: {fieldPath: spec.foo}}}]\n": `fieldPath "spec.foo"`,
		head + "    imagePullPolicy: Sometimes\n":                                     `imagePullPolicy: "Sometimes" is not`,
		head + "    volumeMounts: [{name: v, mountPath: /x, subPath: ../a}]\n  volumes: [{name: v, emptyDir: {}}]\n": "path in an emptyDir",
		head + "---\n" + head:                        "several Pods",
		"apiVersion: apps/v1\nkind: Deployment\n":    "kind apps/v1 Deployment: want v1 Pod",
		"apiVersion: v1\nkind: ConfigMap\ndat: {}\n": `unknown field "dat"`,
		"apiVersion: v1\nkind: ConfigMap\n":          "there is no Pod",
		"- a\n":                                      "not an object",
		"":                                           "there is no Pod",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: v}\n---\n" + head +
			"    volumeMounts: [{name: v, mountPath: /x}]\n  volumes: [{name: v, configMap: {name: m, items: [{key: k, path: ../../etc/passwd}]}}]\n": "leads out of the volume",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: m}\ndata: {k: '***'}\n---\n" + head: "illegal base64",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror %v, want %q", text, err, want)
		}
	}
	// The last is what kubectl run --dry-run=client -o yaml prints.
	for _, text := range []string{"  hostNetwork: false\n  tolerations: []\n  nodeName:\n", "  affinity: {}\n  nodeSelector: {}\n", "    resources: {}\n  dnsPolicy: ClusterFirst\n  restartPolicy: Always\nstatus: {}\n"} {
		if _, err := Read(strings.NewReader(head + text)); err != nil {
			t.Errorf("what asks for nothing: %s: %v", text, err)
		}
	}
	if _, err := Read(strings.NewReader(strings.Repeat("#", maxFile+1))); err == nil {
		t.Error("a file of any size was read")
	}
}

// TestFilesThatMayBeMissing: as with the kubelet they are left out.
func TestFilesThatMayBeMissing(t *testing.T) {
	for source, want := range map[string]int{"name: m, items: [{key: k, path: a}, {key: other, path: b}]": 1, "name: none, items: [{key: k, path: a}]": 0, "name: none": 0} {
		text := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: v}\n---\n" + head + "    volumeMounts: [{name: v, mountPath: /x}]\n  volumes: [{name: v, configMap: {" + source
		if _, err := Read(strings.NewReader(text + "}}]\n")); err == nil {
			t.Errorf("%s: no error", source)
		}
		p, err := Read(strings.NewReader(text + ", optional: true}}]\n"))
		if err != nil {
			t.Errorf("%s: %v", source, err)
			continue
		}
		files, err := p.Files(p.Spec.Containers[0].VolumeMounts[0])
		if err != nil || files == nil || len(files) != want {
			t.Errorf("%s: %v, %v", source, files, err)
		}
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
