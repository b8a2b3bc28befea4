// SPDX-License-Identifier: Apache-2.0

//go:build bench

package bench

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/bench/promises"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/stand"
)

// volumeSite is a cluster of one node whose pods in VMs have volumes of the provider qemu.
type volumeSite struct {
	*testing.T
	*cluster.ControlPlane
	node  *cluster.Node
	image string
}

const volumeClass = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: fast}
provisioner: csi.outrigger.dev
volumeBindingMode: Immediate
`

func newVolumeSite(t *testing.T) *volumeSite {
	c := cluster.StartControlPlane(t, cluster.ControlPlaneOptions{})
	r := &cluster.Registry{}
	r.Start(t, c)
	n := cluster.StartNode(t, c, cluster.OutriggerNode(t, cluster.NodeOptions{Mirrors: map[string]string{r.Host: r.URL()}}))
	cluster.Install(t, c, n, cluster.OutriggerOptions{Provider: "qemu"})
	cluster.StartCSI(t, c, n, "CLOUD_PROVIDER=qemu", "ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN=true", "CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH=unix:///run/peerpod/provider-qemu.sock")
	c.Apply(t, volumeClass)
	return &volumeSite{T: t, ControlPlane: c, node: n, image: r.Push(t, "tools:1", cluster.Tools(t).Image)}
}

// claim makes one, whose disk is there.
func (s *volumeSite) claim(name, mode string) {
	s.Apply(s.T, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {accessModes: [ReadWriteOnce], storageClassName: fast, volumeMode: %s, resources: {requests: {storage: 1Gi}}}
`, name, mode))
	s.Kubectl(s.T, "wait", "--for=jsonpath={.status.phase}=Bound", "pvc/"+name, "--timeout=5m")
}

// run runs a script to its end in a pod with volumes, and look while the pod is there, and returns what the script has printed.
func (s *volumeSite) run(name, script, container, volumes string, look func()) string {
	s.Apply(s.T, fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  runtimeClassName: %s
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: %s, imagePullPolicy: IfNotPresent, command: [sh, -c, %q], %s}]
  volumes: %s
`, name, cluster.RuntimeClass, s.image, script, container, volumes))
	s.Kubectl(s.T, "wait", "--for=jsonpath={.status.containerStatuses[0].started}=true", "pod/"+name, "--timeout=10m")
	look()
	log := s.Kubectl(s.T, "logs", "-f", name)
	s.Kubectl(s.T, "delete", "pod", name, "--timeout=10m")
	return log
}

// volumes are disks of pods in VMs: how fast they are, and how soon they are there.
func volumes(t *testing.T, runs int) []promises.Figure {
	s := newVolumeSite(t)
	all := s.speed()
	if isAsked("volume-mounted") {
		all = append(all, s.mounting(runs)...)
	}
	return all
}

// speed compares a volume with a disk of the same kind, in the same VM, which is formatted and mounted by hand.
func (s *volumeSite) speed() (all []promises.Figure) {
	s.claim("raw", "Block")
	files, err := filepath.Glob(filepath.Join(s.node.Dir, "qemu/disks/*/image.raw"))
	if err != nil || len(files) != 1 {
		s.Fatalf("disks %q, %v", files, err)
	}
	stand.Run(s.T, "mke2fs", "-q", "-F", "-t", "ext4", files[0])
	s.claim("mounted", "Filesystem")
	log := s.run("speed", "mkdir /plain && mount -t ext4 /dev/raw /plain && podtool disk /mounted /plain",
		"securityContext: {capabilities: {add: [SYS_ADMIN]}}, volumeDevices: [{name: raw, devicePath: /dev/raw}], volumeMounts: [{name: mounted, mountPath: /mounted}]",
		"[{name: raw, persistentVolumeClaim: {claimName: raw}}, {name: mounted, persistentVolumeClaim: {claimName: mounted}}]", func() {})
	for line := range strings.Lines(log) {
		var way string
		var percent, speed float64
		if _, err := fmt.Sscan(line, &way, &percent, &speed); err != nil {
			s.Fatalf("%v: %s", err, log)
		}
		all = append(all, promises.Figure{Promise: "volume-" + way, Value: percent, How: fmt.Sprintf("%.0f MiB/s", speed)})
	}
	return all
}

// mounting returns what is ours of the time from a VM to its mounted disk: all but the provider's calls. The first pod has its disk formatted.
func (s *volumeSite) mounting(runs int) []promises.Figure {
	s.claim("data", "Filesystem")
	var took []time.Duration
	for i := range runs + 1 {
		name := fmt.Sprint("mounts-", i)
		s.run(name, "echo up; sleep 1", "volumeMounts: [{name: data, mountPath: /data}]", "[{name: data, persistentVolumeClaim: {claimName: data}}]",
			func() { took = append(took, s.ours(name)) })
	}
	return []promises.Figure{{Promise: "volume-mounted", Value: float64(median(took[1:]).Microseconds()) / 1000,
		How: fmt.Sprintf("of the timeline; %d ms with an empty disk, which is formatted", took[0].Milliseconds())}}
}

func (s *volumeSite) ours(pod string) time.Duration {
	var got struct{ Steps []step }
	text := s.node.Run(s.T, stand.Binary(s.T, "outrigger"), "--socket", "/run/peerpod/hypervisor.sock", "timeline", pod, "-o", "json")
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		s.Fatal(err)
	}
	sum, known := 0.0, map[string]bool{}
	for _, step := range got.Steps {
		known[step.Name] = true
		switch step.Name {
		case "attach-disks", "mount-disk":
			sum += step.TookMilliseconds
		case "attach-disk":
			sum -= step.TookMilliseconds
		}
	}
	if !known["attach-disks"] || !known["mount-disk"] || !known["attach-disk"] {
		s.Fatalf("the timeline lacks a step: %s", text)
	}
	return time.Duration(sum * float64(time.Millisecond))
}
