// SPDX-License-Identifier: Apache-2.0

package e2e

import "testing"

var storage = []scenario{
	{name: "PodWithEmptyDir", vms: 1, variant: true, play: emptyDirs},
	{name: "PodWithVolumeOfTheNode", vms: 1, play: nodeVolume},
	{name: "PodWithNamespacesOfTheNode", vms: 1, play: nodeNamespaces},
}

// emptyDirs are shared by the containers of a pod, on the VM's disk or in its
// memory, where their limit holds.
func emptyDirs(t *testing.T, s *suite) {
	const mounts = `volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]`
	// Without head's own words: standard error is another stream, which comes
	// into the log when it does.
	p := s.pod("emptydir", `until test -e /disk/done; do sleep 0.1; done; cat /disk/file /memory/file; grep -c ' /memory tmpfs ' /proc/mounts
		head -c 16000000 /dev/zero >/memory/much 2>/dev/null || echo limited; stat -c %a /disk; cat /disk/parts/a/file`).container(mounts).
		beside("writer", "echo on disk >/disk/file; echo in memory >/memory/file; echo in a part >/part/file; touch /disk/done",
			`volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: disk, mountPath: /part, subPath: parts/a}]`).
		with(`volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 8Mi}}]`)
	s.create(t, p)
	s.succeeded(t, "emptydir")
	log := s.logs(t, "emptydir", "-c", "main")
	want(t, "log", log, "on disk\nin memory\n1\n")
	want(t, "log", log, "limited\n777\nin a part\n")
}

// nodeVolume: what cannot be in a VM is refused, with what to do instead.
func nodeVolume(t *testing.T, s *suite) {
	p := s.pod("node-volume", "true").container(`volumeMounts: [{name: sock, mountPath: /dev/kmsg}]`).
		with(`volumes: [{name: sock, hostPath: {path: /dev/kmsg}}]`)
	s.create(t, p)
	want(t, "Event", s.warned(t, "node-volume", "Failed"), "which a pod in a VM cannot use")
}

// nodeNamespaces: a VM has a kernel of its own, so that there is nothing to share.
func nodeNamespaces(t *testing.T, s *suite) {
	for name, field := range map[string]string{"node-network": "hostNetwork", "node-pids": "hostPID", "node-ipc": "hostIPC"} {
		s.create(t, s.pod(name, "true").with(`{`+field+`: true}`))
		want(t, "Event", s.warned(t, name, "FailedCreatePodSandBox"), "a pod with "+field+" cannot run in a VM")
	}
}
