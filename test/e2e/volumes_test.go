// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
)

// The names are those of upstream's cases.
var volumes = []scenario{
	{name: "CreatePeerPodWithPVCAndCSIWrapper", vms: 1, play: pvc},
	{name: "CSISingleDiskPersistence", vms: 2, play: persistence},
	{name: "CSIMultiDiskPersistence", vms: 2, variant: true, play: severalDisks},
	{name: "CSIVolumeExpansion", vms: 1, play: expansion},
	{name: "CSISubPath", vms: 1, play: subPaths},
	{name: "CSIRawBlock", vms: 2, play: rawBlock},
	{name: "CSISnapshot", vms: 2, variant: true, play: snapshots},
	{name: "CSIEncrypted", vms: 2, play: encryptedVolume},
	{name: "CSIDatabaseKilled", vms: 2, alone: true, variant: true, play: databaseKilled},
	{name: "CSIDatabaseMoves", vms: 3, alone: true, variant: true, play: databaseMoves},
}

// encryptedBySecret are parameters of a StorageClass: each claim's key is in a Secret of its name.
var encryptedBySecret = object{"encrypted": "true",
	"csi.storage.k8s.io/node-stage-secret-name": "${pvc.name}", "csi.storage.k8s.io/node-stage-secret-namespace": "${pvc.namespace}",
	"csi.storage.k8s.io/node-publish-secret-name": "${pvc.name}", "csi.storage.k8s.io/node-publish-secret-namespace": "${pvc.namespace}"}

// keyOf is the Secret of a claim.
func keyOf(claim, key string) object {
	return object{"apiVersion": "v1", "kind": "Secret", "metadata": object{"name": claim}, "stringData": object{"key": key}}
}

// needVolumes returns the StorageClass of our CSI driver, or one with parameters.
func (s *suite) needVolumes(t *testing.T, parameters ...object) string {
	t.Helper()
	if s.own == nil && len(parameters) > 0 {
		t.Skip("it makes a StorageClass with parameters: only in a cluster of the suite's own")
	}
	if s.own == nil {
		if s.Kubectl(t, "get", "storageclass", "-o", `jsonpath={.items[?(@.metadata.name=="outrigger")].metadata.name}`) == "" {
			t.Skip("the cluster has no StorageClass outrigger: kubectl apply -k deploy/csi, and deploy/samples/storageclass.yaml")
		}
		return "outrigger"
	}
	if s.cloud.csi == nil {
		t.Skipf("provider %s has no disks in a cluster of the suite's own", *providerName)
	}
	s.own.csi.Do(func() {
		// The driver serves until the suite ends, and not until this case does.
		s.own.driver = cluster.StartCSI(s.suite, s.own.control, s.own.node, s.cloud.csi...)
	})
	name := "e2e-" + strings.ToLower(strings.ReplaceAll(t.Name()[strings.LastIndex(t.Name(), "/")+1:], "_", "-"))
	s.Kubectl(t, "delete", "storageclass", name, "--ignore-not-found")
	class := object{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": object{"name": name}, "provisioner": "csi.outrigger.dev",
		"volumeBindingMode": "WaitForFirstConsumer", "allowVolumeExpansion": true}
	for _, p := range parameters {
		class["parameters"] = p
	}
	s.apply(t, class)
	t.Cleanup(func() { s.Kubectl(t, "delete", "storageclass", name, "--ignore-not-found") })
	return name
}

func claim(name, class, size string) object {
	return object{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": object{"name": name}, "spec": object{
		"accessModes": []string{"ReadWriteOnce"}, "storageClassName": class, "resources": object{"requests": object{"storage": size}}}}
}

// withClaims mounts claims at /NAME.
func (p *pod) withClaims(names ...string) *pod {
	var mounts, all []string
	for _, name := range names {
		mounts = append(mounts, fmt.Sprintf("{name: %s, mountPath: /%[1]s}", name))
		all = append(all, fmt.Sprintf("{name: %s, persistentVolumeClaim: {claimName: %[1]s}}", name))
	}
	return p.container("volumeMounts: [" + strings.Join(mounts, ", ") + "]").with("volumes: [" + strings.Join(all, ", ") + "]")
}

// pvc: a pod has a disk of its claim, whose files are the pod's group's; when pod and claim are deleted
// the disk is.
func pvc(t *testing.T, s *suite) {
	class := s.needVolumes(t)
	p := s.pod("pvc", `grep ' /one ' /proc/mounts | cut -d' ' -f3; echo kept >/one/file; stat -c '%g %a' /one; sync`).withClaims("one").with("securityContext: {fsGroup: 4321}")
	log := s.play(t, p, claim("one", class, "1Gi"))
	want(t, "log", log, "ext4\n4321 2775\n")
	s.delete(t, "pvc")
	s.deleteClaims(t, "one")
}

// subPaths: containers have parts of a volume: a folder that is made, with the volume's group, a file that is there, and
// the folder again in a container that started again.
func subPaths(t *testing.T, s *suite) {
	class := s.needVolumes(t)
	const name = "subpath"
	p := s.pod(name, `cat /file; stat -c '%g %a' /part; touch /fixed/x 2>/dev/null || echo refused; echo again >>/part/log; grep -c again /part/log; test -e /part/ended || { touch /part/ended; exit 1; }`).
		container(`volumeMounts: [{name: disk, mountPath: /part, subPath: a/b}, {name: disk, mountPath: /file, subPath: one/file}, {name: disk, mountPath: /fixed, subPathExpr: $(WHERE)/b, readOnly: true}]`).
		container(`env: [{name: WHERE, value: a}]`).
		before("first", "mkdir /disk/one; echo content >/disk/one/file", `volumeMounts: [{name: disk, mountPath: /disk}]`).
		with(`{volumes: [{name: disk, persistentVolumeClaim: {claimName: parts}}], securityContext: {fsGroup: 4321}, restartPolicy: OnFailure}`)
	log := s.play(t, p, claim("parts", class, "1Gi"))
	want(t, "log", log, "content\n4321 2775\nrefused\n2\n")
	s.delete(t, name)
	s.deleteClaims(t, "parts")
}

// rawBlock: a container has the disk itself, and finds there what another pod has written; where it may only read it
// cannot write.
func rawBlock(t *testing.T, s *suite) {
	class := s.needVolumes(t)
	raw := claim("raw", class, "1Gi")
	raw["spec"].(object)["volumeMode"] = "Block"
	pod := func(name, script, readOnly string) *pod {
		return s.pod(name, script).container(`volumeDevices: [{name: raw, devicePath: /dev/raw}]`).
			with(`volumes: [{name: raw, persistentVolumeClaim: {claimName: raw, readOnly: ` + readOnly + `}}]`)
	}
	log := s.play(t, pod("raw-writer", `stat -c %F /dev/raw; blockdev --getsize64 /dev/raw; printf content | dd of=/dev/raw conv=fsync 2>/dev/null; sync`, "false"), raw)
	want(t, "log", log, "block special file\n1073741824\n")
	s.delete(t, "raw-writer")
	log = s.play(t, pod("raw-reader", `head -c 7 /dev/raw; echo; dd if=/dev/zero of=/dev/raw count=1 conv=notrunc 2>/dev/null || echo refused`, "true"))
	want(t, "log", log, "content\nrefused\n")
	s.delete(t, "raw-reader")
	s.deleteClaims(t, "raw")
}

// snapshots: a claim of a snapshot has what the volume had, and not what came later; one that is deleted is gone from the cloud.
func snapshots(t *testing.T, s *suite) {
	class := s.needVolumes(t)
	if s.own == nil {
		t.Skip("it makes a VolumeSnapshotClass: only in a cluster of the suite's own")
	}
	const group = "snapshot.storage.k8s.io/v1"
	s.create(t, object{"apiVersion": group, "kind": "VolumeSnapshotClass", "metadata": object{"name": class}, "driver": "csi.outrigger.dev", "deletionPolicy": "Delete"})
	s.start(t, s.pod("changes", `echo first >/source/file; sync; echo started; until test -e /source/go; do sleep 0.1; done; echo second >/source/file; sync; echo changed; sleep 100000`).withClaims("source"),
		claim("source", class, "1Gi"))
	s.awaitLine(t, "changes", "started")
	s.create(t, object{"apiVersion": group, "kind": "VolumeSnapshot", "metadata": object{"name": "then"}, "spec": object{"volumeSnapshotClassName": class, "source": object{"persistentVolumeClaimName": "source"}}})
	s.until(t, "volumesnapshot/then", "{.status.readyToUse}", func(v string) bool { return v == "true" })
	s.kubectl(t, "exec", "changes", "--", "touch", "/source/go")
	s.awaitLine(t, "changes", "changed")
	s.delete(t, "changes")
	restored := claim("restored", class, "1Gi")
	restored["spec"].(object)["dataSource"] = object{"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "then"}
	want(t, "log", s.play(t, s.pod("reads", "cat /restored/file").withClaims("restored"), restored), "first\n")
	s.delete(t, "reads")
	content := s.jsonpath(t, "volumesnapshot/then", "{.status.boundVolumeSnapshotContentName}")
	s.kubectl(t, "delete", "volumesnapshot", "then", s.timeout())
	s.Kubectl(t, "wait", "--for=delete", "volumesnapshotcontent/"+content, s.timeout())
	s.deleteClaims(t, "source", "restored")
}

// encryptedVolume: what a pod writes to an encrypted volume is not on its disk, which another pod reads with the key, and none
// with another; the volume grows while it is used.
func encryptedVolume(t *testing.T, s *suite) {
	class := s.needVolumes(t, encryptedBySecret)
	const key, words = "a key of the volume", "the words of the pod"
	s.start(t, s.pod("encrypts", `size() { stat -f -c %b /locked; }; before=$(size); stat -c '%g %a' /locked; yes "`+words+`" | head -n 100000 >/locked/file; sync; echo started
		until [ $(size) -gt $((2*before)) ]; do sleep 0.2; done; echo grown; sleep 100000`).withClaims("locked").with("securityContext: {fsGroup: 4321}"),
		keyOf("locked", key), claim("locked", class, "1Gi"))
	s.awaitLine(t, "encrypts", "started")
	want(t, "log", s.logs(t, "encrypts"), "4321 2775\n")
	s.kubectl(t, "patch", "pvc", "locked", "-p", `{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)
	s.awaitLine(t, "encrypts", "grown")
	s.delete(t, "encrypts")
	if *providerName == "qemu" {
		s.wantEncrypted(t, "locked", words)
	}
	s.apply(t, keyOf("locked", "another key"))
	s.create(t, s.pod("other-key", "cat /locked/file").withClaims("locked"))
	want(t, "Event", s.warned(t, "other-key", "Failed"), "the key opens none of the key slots")
	s.delete(t, "other-key")
	s.apply(t, keyOf("locked", key))
	log := s.play(t, s.pod("decrypts", "sort -u /locked/file; wc -l </locked/file").withClaims("locked"))
	want(t, "log", log, words+"\n100000\n")
	s.delete(t, "decrypts")
	s.deleteClaims(t, "locked")
}

// wantEncrypted looks at a claim's disk, whose file on the node it returns.
func (s *suite) wantEncrypted(t *testing.T, claim, words string) (file string) {
	t.Helper()
	id := s.jsonpath(t, "pv/"+s.jsonpath(t, "pvc/"+claim, "{.spec.volumeName}"), "{.spec.csi.volumeHandle}")
	file = filepath.Join(deployed.HostFolder(s.own.node, "/var/lib/outrigger/qemu/disks"), id, "image.raw")
	for text, want := range map[string]string{words: "0\n", "LUKS": "1\n"} {
		if out, _ := exec.Command("grep", "-caF", "-m1", text, file).Output(); string(out) != want {
			t.Errorf("%q on the disk: %q, want %q", text, out, want)
		}
	}
	return file
}

// deleteClaims deletes claims, and returns when their disks are gone.
func (s *suite) deleteClaims(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		pv := s.jsonpath(t, "pvc/"+name, "{.spec.volumeName}")
		s.kubectl(t, "delete", "pvc", name, s.timeout())
		s.Kubectl(t, "wait", "--for=delete", "pv/"+pv, s.timeout())
	}
}

// persistence: what one pod has written the next one reads, in another VM; and an ordinary pod is told
// why it cannot, where its node is not an instance of the provider.
func persistence(t *testing.T, s *suite) {
	class := s.needVolumes(t)
	s.keeps(t, class, "single")
}

// severalDisks: each is where it was.
func severalDisks(t *testing.T, s *suite) {
	class := s.needVolumes(t)
	s.keeps(t, class, "first", "second", "third")
}

// keeps writes to volumes in one pod and reads them in another.
func (s *suite) keeps(t *testing.T, class string, names ...string) {
	t.Helper()
	var write, read, all []string
	var objects []any
	for _, name := range names {
		write = append(write, fmt.Sprintf("echo content of %s >/%[1]s/file", name))
		read = append(read, fmt.Sprintf("cat /%s/file", name))
		all = append(all, "content of "+name)
		objects = append(objects, claim(name, class, "1Gi"))
	}
	writer, reader := names[0]+"-writer", names[0]+"-reader"
	s.start(t, s.pod(writer, strings.Join(write, "; ")+"; sync; echo started; sleep 100000").withClaims(names...), objects...)
	s.awaitLine(t, writer, "started")
	kernel := s.bootID(t, writer)
	s.delete(t, writer)
	s.start(t, s.pod(reader, strings.Join(read, "; ")+"; echo started; sleep 100000").withClaims(names...))
	s.awaitLine(t, reader, "started")
	want(t, "log", s.logs(t, reader), strings.Join(all, "\n")+"\n")
	if again := s.bootID(t, reader); again == kernel {
		t.Error("both pods ran in one VM")
	}
	s.delete(t, reader)
	s.deleteClaims(t, names...)
}

// expansion: a volume grows while its pod uses it.
func expansion(t *testing.T, s *suite) {
	class := s.needVolumes(t)
	s.start(t, s.pod("expansion", `size() { stat -f -c %b /grows; }; before=$(size); echo started; until [ $(size) -gt $((2*before)) ]; do sleep 0.2; done; echo grown; sleep 100000`).
		withClaims("grows"), claim("grows", class, "1Gi"))
	s.awaitLine(t, "expansion", "started")
	s.kubectl(t, "patch", "pvc", "grows", "-p", `{"spec":{"resources":{"requests":{"storage":"3Gi"}}}}`)
	s.awaitLine(t, "expansion", "grown")
	s.until(t, "pvc/grows", "{.status.capacity.storage}", func(v string) bool { return v == "3Gi" })
	s.delete(t, "expansion")
	s.deleteClaims(t, "grows")
}
