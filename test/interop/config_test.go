// SPDX-License-Identifier: Apache-2.0

//go:build integration

package interop

// oom_score 0 and restrict_oom_score_adj let containerd run as root without
// CAP_SYS_RESOURCE, as inside a container.
const containerdConfig = `version = 2
root = "{{.Dir}}/containerd/root"
state = "{{.Dir}}/containerd/state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "{{.Dir}}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{{.Dir}}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "kata-remote"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-remote]
      runtime_type = "{{.Runtime}}"
      privileged_without_host_devices = true
      pod_annotations = ["io.katacontainers.*"]
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.kata-remote.options]
        ConfigPath = "{{.Dir}}/shim.toml"
`

// containerd2Config is the same for containerd 2.
const containerd2Config = `version = 3
root = "{{.Dir}}/containerd/root"
state = "{{.Dir}}/containerd/state"
oom_score = 0
disabled_plugins = ["io.containerd.snapshotter.v1.erofs", "io.containerd.snapshotter.v1.blockfile"]
[grpc]
  address = "{{.Dir}}/containerd.sock"
[ttrpc]
  address = "{{.Dir}}/containerd.sock.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{{.Dir}}/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "localhost/pause:1"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{{.Dir}}/cni"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "kata-remote"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-remote]
      runtime_type = "{{.Runtime}}"
      privileged_without_host_devices = true
      pod_annotations = ["io.katacontainers.*"]
      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.kata-remote.options]
        ConfigPath = "{{.Dir}}/shim.toml"
[plugins."io.containerd.grpc.v1.cri"]
  stream_server_address = "127.0.0.1"
`

const shimConfig = `[hypervisor.remote]
remote_hypervisor_socket = "{{.Dir}}/hypervisor.sock"
remote_hypervisor_timeout = 300
enable_annotations = ["machine_type", "default_memory", "default_vcpus", "image", "default_gpus", "default_gpu_model", "cc_init_data"]
default_bridges = 1
disable_selinux = false
disable_guest_selinux = true

[agent.kata]

[runtime]
internetworking_model = "none"
disable_new_netns = true
disable_guest_seccomp = true
sandbox_cgroup_only = false
static_sandbox_resource_mgmt = true
vfio_mode = "guest-kernel"
disable_guest_empty_dir = false
enable_debug = true
experimental = []
experimental_force_guest_pull = true
create_container_timeout = 300
dan_conf = "{{.Dir}}/dans"
kubelet_root_dir = "{{.Dir}}/kubelet"
`

const cniConfig = `{"cniVersion":"1.0.0","name":"katanet","plugins":[{"type":"ptp","mtu":1430,"ipMasq":false,
"ipam":{"type":"host-local","dataDir":"{{.Dir}}/ipam","ranges":[[{"subnet":"10.213.77.0/24"}],[{"subnet":"fd21:3::/64"}]],
"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}}]}`
