// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/outrigger/outrigger/test/stand"
)

// NodeInitramfs makes an initramfs, to, of the one of the pod VM image: a VM that boots it is a node of the cluster, with the
// CSI driver's node plugin, if it reaches the API server. Its pods have the host's network.
func NodeInitramfs(t testing.TB, c *ControlPlane, podVM, to, nodeName string, images ...Image) {
	t.Helper()
	all := map[name.Tag]v1.Image{}
	for _, i := range append(images, pause(t)) {
		tag, err := name.NewTag(i.Ref)
		must(t, err, "name of an image")
		all[tag] = i.Image
	}
	archive := filepath.Join(t.TempDir(), "images.tar")
	must(t, tarball.MultiWriteToFile(archive, all), "write images")
	settings := (&Node{cluster: c, cgroup: "/"}).kubeletSettings()
	settings["address"] = "0.0.0.0"
	settings["authentication"].(map[string]any)["x509"] = map[string]any{"clientCAFile": "/node/ca.crt"}
	kubelet, err := json.Marshal(settings)
	must(t, err, "kubelet's configuration")
	server := "https://" + net.JoinHostPort(c.Address, c.Port())
	runtime := "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nBinaryName = \"/usr/bin/crun\"\n"

	n := &newc{folders: map[string]bool{}}
	n.text("node/name", nodeName)
	n.text("node/kubelet.yaml", string(kubelet))
	n.text("node/kubelet.kubeconfig", c.NewUser(t, "system:node:"+nodeName, "system:nodes").KubeconfigFor(t, server))
	n.text("node/csi.kubeconfig", c.ServiceAccount(t, Namespace, "outrigger-csi-node").KubeconfigFor(t, server))
	n.text("node/containerd.toml", fmt.Sprintf(containerdTOML, "/var/lib/containerd", "/var/lib/containerd/opt", "/node/cni", "/node/registries")+runtime)
	n.file(t, "node/ca.crt", c.path("pki/ca.crt"))
	n.file(t, "node/images.tar", archive)
	n.file(t, "node/bin/kubelet", filepath.Join(c.programs, "kubelet"))
	n.file(t, "node/bin/outrigger-csi", stand.Binary(t, "outrigger-csi"))
	for _, program := range []string{"/usr/bin/containerd", "/usr/bin/containerd-shim-runc-v2", "/usr/bin/ctr", "/usr/bin/mount", "/usr/bin/umount"} {
		n.file(t, "node/bin/"+filepath.Base(program), program)
	}
	for _, library := range libraries(t, "/usr/bin/mount", "/usr/bin/containerd") {
		n.file(t, "node/lib/"+filepath.Base(library), library)
	}
	program := stand.Build(t, "./test/cluster/vmnode")
	n.file(t, "usr/local/bin/podvm-agent", program)
	n.file(t, "usr/local/bin/agent-protocol-forwarder", program)
	n.entry("TRAILER!!!", 0, nil)

	out, err := os.Create(to)
	must(t, err, "make an initramfs")
	defer out.Close()
	first, err := os.Open(podVM)
	must(t, err, "read the pod VM's initramfs")
	defer first.Close()
	// The kernel unpacks several archives, and what comes later replaces what was there.
	_, err = io.Copy(out, io.MultiReader(first, &n.Buffer))
	must(t, err, "write an initramfs")
}

// libraries are those that programs load.
func libraries(t testing.TB, programs ...string) (paths []string) {
	t.Helper()
	for _, word := range strings.Fields(stand.Run(t, "ldd", programs...)) {
		if strings.HasPrefix(word, "/lib/") && !slices.Contains(paths, word) {
			paths = append(paths, word)
		}
	}
	return paths
}

// newc is an archive of cpio (Linux, Documentation/driver-api/early-userspace/buffer-format.rst).
type newc struct {
	bytes.Buffer
	folders map[string]bool
}

func (n *newc) text(name, text string) {
	n.under(path.Dir(name))
	n.entry(name, 0o100600, []byte(text))
}

func (n *newc) file(t testing.TB, name, source string) {
	t.Helper()
	data, err := os.ReadFile(source)
	must(t, err, "read a file of the node")
	n.under(path.Dir(name))
	n.entry(name, 0o100755, data)
}

func (n *newc) under(folder string) {
	if folder != "." && !n.folders[folder] {
		n.under(path.Dir(folder))
		n.folders[folder] = true
		n.entry(folder, 0o040755, nil)
	}
}

func (n *newc) entry(name string, mode int, data []byte) {
	n.WriteString("070701")
	// inode, mode, uid, gid, links, time, size, device (2), its own device (2), length of the name, checksum
	for _, field := range []int{n.Len(), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0} {
		fmt.Fprintf(n, "%08x", field)
	}
	n.WriteString(name + "\x00")
	n.Write(make([]byte, -n.Len()&3))
	n.Write(data)
	n.Write(make([]byte, -n.Len()&3))
}
