// SPDX-License-Identifier: Apache-2.0

//go:build integration

package capi_test

import (
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/outrigger/outrigger/internal/ociimage"
	"github.com/outrigger/outrigger/test/dockerd"
)

// TestNodesOfKindsShape is a cluster of an image of the shape of kind's: systemd is the first
// process, and containerd and kubelet are its units, which leave cgroups to it. Nodes are
// Ready and run pods.
func TestNodesOfKindsShape(t *testing.T) {
	f := newDockerStyle(t, kindArchive(t), styleOfDocker{services: "10.128.0.0/12", pods: "192.168.0.0/16"})
	ids := f.workload.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].spec.providerID}")
	if n := strings.Count(ids, "docker:////"+nodesWork); n != 1+nodeWorkers {
		t.Errorf("providerIDs of Nodes: %q", ids)
	}
	f.pods(t)
	f.delete(t)
}

// kindArchive makes the image: the node image, with systemd and units over it.
func kindArchive(t *testing.T) string {
	t.Helper()
	image, _ := nodeImage(t, nodeArchive(t))
	var containerd, kubelet strings.Builder
	copyFrom(t, image, "etc/containerd/config.toml", &containerd)
	copyFrom(t, image, "etc/kubernetes/kubelet.conf.d/10-node.conf", &kubelet)
	texts := maps.Clone(kindUnits)
	texts["etc/containerd/config.toml"] = changed(t, containerd.String(), "oom_score = 0\n", "", "restrict_oom_score_adj = true", "restrict_oom_score_adj = false") +
		"      [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\n        SystemdCgroup = true\n"
	texts["etc/kubernetes/kubelet.conf.d/10-node.conf"] = changed(t, kubelet.String(), "cgroupDriver: cgroupfs", "cgroupDriver: systemd", "resolvConf: .*\n", "")
	files := dockerd.KindFiles(t)
	for inside, text := range texts {
		files[inside] = filepath.Join(t.TempDir(), "text")
		writeText(t, files[inside], text)
	}
	for _, unit := range []string{"containerd", "kubelet", "images"} {
		files["etc/systemd/system/multi-user.target.wants/"+unit+".service"] = "->../" + unit + ".service"
	}
	layer, err := ociimage.Layer(dockerd.Archive(t, files))
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if image, err = mutate.AppendLayers(image, layer); err != nil {
		t.Fatal(err)
	}
	config.Config.Entrypoint = dockerd.KindEntrypoint
	if image, err = mutate.Config(image, config.Config); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kind.tar")
	if err := tarball.WriteToFile(file, name.MustParseReference("outrigger/node:"+nodeVersion), image); err != nil {
		t.Fatal(err)
	}
	return file
}

// kindUnits are files of the image: units, and a network that does not reach other machines.
var kindUnits = map[string]string{
	"etc/default/kubelet": "KUBELET_EXTRA_ARGS=--runtime-cgroups=/system.slice/containerd.service\n",
	"etc/cni/net.d/10-test.conflist": `{"cniVersion": "0.4.0", "name": "test", "plugins": [{"type": "ptp", "ipMasq": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`,
	"etc/systemd/system/containerd.service": `[Service]
Type=notify
ExecStart=/usr/bin/containerd
Delegate=yes
KillMode=process
Restart=always
OOMScoreAdjust=-999
`,
	"etc/systemd/system/images.service": `[Unit]
After=containerd.service
Before=node-agent.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/ctr -n k8s.io images import /usr/local/lib/node/images.tar
`,
	"etc/systemd/system/kubelet.service": `[Unit]
ConditionPathExists=/var/lib/kubelet/config.yaml
[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=/usr/local/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf \
  --config=/var/lib/kubelet/config.yaml --config-dir=/etc/kubernetes/kubelet.conf.d $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
Restart=always
RestartSec=1s
`,
}
