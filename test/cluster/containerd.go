// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/stand"
)

// Runtime is a handler that a RuntimeClass may name.
type Runtime struct {
	// Handler is its name.
	Handler string
	// Shim is the program for it; the node has a copy, containerd-shim-HANDLER-v2.
	Shim string
	// ConfigPath, if not empty, is the file that the shim is given.
	ConfigPath string
	// PodAnnotations are patterns of annotations that the shim sees.
	PodAnnotations []string
}

// containerdSocket is a path on the node.
const containerdSocket = "/run/containerd/containerd.sock"

// containerdTOML: oom_score 0 and restrict_oom_score_adj let containerd run as
// root without CAP_SYS_RESOURCE, as inside a container.
const containerdTOML = `version = 2
root = %[1]q
state = "/run/containerd"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "` + containerdSocket + `"
[plugins."io.containerd.internal.v1.opt"]
  path = %[2]q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + PauseImage + `"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %[3]q
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = %[4]q
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`

func (r Runtime) toml() string {
	table := fmt.Sprintf("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.%q", r.Handler)
	annotations, _ := json.Marshal(append([]string{}, r.PodAnnotations...))
	text := fmt.Sprintf("%s]\nruntime_type = \"io.containerd.%s.v2\"\nprivileged_without_host_devices = true\npod_annotations = %s\n", table, r.Handler, annotations)
	if r.ConfigPath != "" {
		text += fmt.Sprintf("%s.options]\nConfigPath = %q\n", table, r.ConfigPath)
	}
	return text
}

// startContainerd runs it with a bridge for the node's pods.
func (n *Node) startContainerd(t testing.TB) {
	t.Helper()
	n.write(t, "cni/10-pods.conflist", n.cniConfig())
	config := fmt.Sprintf(containerdTOML, n.path("containerd"), n.path("containerd/opt"), n.path("cni"), n.path("registries"))
	must(t, os.MkdirAll(n.path("bin"), 0o755), "make a folder")
	for _, r := range n.options.Runtimes {
		config += r.toml()
		// A link would lose the name where a shim starts itself again.
		stand.Run(t, "cp", r.Shim, n.path("bin/containerd-shim-"+r.Handler+"-v2"))
	}
	for host, url := range n.options.Mirrors {
		n.write(t, "registries/"+host+"/hosts.toml", fmt.Sprintf("server = %q\n[host.%q]\ncapabilities = [\"pull\", \"resolve\"]\n", url, url))
	}
	n.Containerd = stand.Start(t, n.Daemon(stand.Daemon{
		Path: "/usr/bin/containerd", Args: []string{"-c", n.write(t, "containerd.toml", config+n.options.Containerd)},
		Env: []string{"PATH=" + n.path("bin") + ":" + os.Getenv("PATH")},
		Log: n.log("containerd"), Socket: containerdSocket,
	}))
}

// cniConfig leaves room for a tunnel's headers in the MTU.
func (n *Node) cniConfig() string {
	bridge := map[string]any{
		"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "mtu": stand.PodMTU,
		"ipam": map[string]any{
			"type": "host-local", "dataDir": "/run/cni-ipam",
			"ranges": [][]any{{map[string]any{"subnet": podSubnet(n.number).String()}}},
			"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
		},
	}
	ports := map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}}
	text, _ := json.Marshal(map[string]any{"cniVersion": "0.4.0", "name": "pods", "plugins": []any{bridge, ports}})
	return string(text)
}

// Ctr runs containerd's own client on the node.
func (n *Node) Ctr(t testing.TB, args ...string) string {
	t.Helper()
	return strings.TrimSpace(n.Run(t, append([]string{"/usr/bin/ctr", "-a", containerdSocket, "-n", "k8s.io"}, args...)...))
}
