// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/outrigger/outrigger/internal/variables"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/plugin"
	"github.com/outrigger/outrigger/test/cluster"
	"github.com/outrigger/outrigger/test/deployed"
	"github.com/outrigger/outrigger/test/stand"
)

// startVMNode adds a node to the cluster that is an instance of the provider, where ordinary pods can have volumes.
func (s *suite) startVMNode(t *testing.T, name string, images ...cluster.Image) {
	t.Helper()
	pid := s.daemonPID(t, "provider-qemu")
	const folder = "usr/local/bin/podvm" // where the provider looks
	makeWritable(t, pid)
	placed := filepath.Join("/proc", pid, "root", folder, name+".cpio")
	cluster.NodeInitramfs(t, s.own.control, filepath.Join("/proc", pid, "root", folder, "initrd.cpio"), placed, name, images...)
	t.Cleanup(func() { os.Remove(placed) })

	t.Setenv("CLOUD_PROVIDER_EXTERNAL_PLUGIN_PATH", "unix://"+s.own.node.Path("/run/peerpod/provider-qemu.sock"))
	t.Setenv("ENABLE_CLOUD_PROVIDER_EXTERNAL_PLUGIN", "true")
	loaded, err := plugin.Load(t.Context(), plugin.Options{Name: "qemu", Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loaded.Close() })
	cloud, err := variables.OpenByEnvironment(t.Context(), loaded.Cloud)
	if err != nil {
		t.Fatal(err)
	}
	i, err := cloud.CreateInstance(t.Context(), name, name, cloudinit.Raw("#cloud-config\nwrite_files: []\n"),
		provider.InstanceTypeSpec{VCPUs: 2, Memory: 4096, Image: filepath.Base(placed), Tags: map[string]string{provider.TagCluster: "nodes", provider.TagKey: name}})
	if err != nil {
		t.Fatal(err)
	}
	console := filepath.Join(deployed.HostFolder(s.own.node, "/var/lib/outrigger/qemu/instances"), i.ID, "console.log")
	t.Cleanup(func() {
		if text, err := os.ReadFile(console); err == nil && t.Failed() {
			t.Logf("console of %s: %s", name, clip(string(text)))
		}
		s.Kubectl(t, "delete", "node", name, "--ignore-not-found")
		if err := cloud.DeleteInstance(context.Background(), i.ID); err != nil {
			t.Error(err)
		}
	})
	s.Kubectl(t, "wait", "--for=create", "node/"+name, s.timeout())
	s.Kubectl(t, "patch", "node", name, "-p", fmt.Sprintf(`{"spec":{"providerID":"outrigger://qemu/%s","taints":null}}`, i.ID))
	s.Kubectl(t, "wait", "--for=create", "csinode/"+name, s.timeout())
	s.Kubectl(t, "wait", "--for=jsonpath={.spec.drivers[0].nodeID}="+i.ID, "csinode/"+name, s.timeout())
}

// makeWritable has a container write to its root file system.
func makeWritable(t *testing.T, pid string) {
	t.Helper()
	program, err := os.Open(stand.Build(t, "./test/cluster/vmnode")) // it needs nothing that is not there
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	cmd := exec.Command("nsenter", "-t", pid, "-m", "-p", "/proc/self/fd/3", "make-writable")
	cmd.ExtraFiles = []*os.File{program}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v: %s", cmd.Args, err, out)
	}
}
