# SPDX-License-Identifier: Apache-2.0

# What the node may ask of the agent in this pod's VM, written by `outrigger policy generate`. pod is below.
package agent_policy

import rego.v1

default AllowRequestsFailingPolicy := false

# A sandbox with its shared memory, and no modules of the kernel.
CreateSandboxRequest if {
	every s in input.storages {
		s.driver == "ephemeral"
		s.mount_point == "/run/kata-containers/sandbox/shm"
	}
}

# The pause container is the guest's own, whatever the request says of it.
CreateContainerRequest if {
	is_pause
	print(concat("; ", sysctls_refused))
	count(sysctls_refused) == 0
}

# Another container is one of the pod's, by its name, and as the pod says.
CreateContainerRequest if {
	not is_pause
	print(concat("; ", refused))
	count(refused) == 0
}

is_pause if input.OCI.Annotations["io.katacontainers.pkg.oci.container_type"] == "pod_sandbox"

name := input.OCI.Annotations["io.kubernetes.cri.container-name"]

c := pod.containers[name]

images := [s.source | some s in input.storages; s.driver == "image_guest_pull"]

refused contains sprintf("the pod has no container %q", [name]) if not c

refused contains sprintf("image %v is not the one of digest %s", [images, c.digest]) if not image_ok

image_ok if {
	count(images) == 1
	endswith(images[0], concat("", ["@", c.digest]))
}

refused contains sprintf("arguments %v, want %v", [input.OCI.Process.Args, c.args]) if input.OCI.Process.Args != c.args

refused contains sprintf("working directory %s, want %s", [input.OCI.Process.Cwd, c.cwd]) if input.OCI.Process.Cwd != c.cwd

refused contains sprintf("user %v, want %v", [input.OCI.Process.User.UID, c.uid]) if input.OCI.Process.User.UID != c.uid

refused contains "the root file system can be written" if {
	c.readonly
	not input.OCI.Root.Readonly
}

refused contains "new privileges" if {
	c.no_new_privileges
	not input.OCI.Process.NoNewPrivileges
}

refused contains sprintf("capability %s", [name]) if {
	some names in input.OCI.Process.Capabilities
	some name in names
	not name in c.capabilities
}

refused contains sprintf("variable %s", [split(e, "=")[0]]) if {
	some e in input.OCI.Process.Env
	not variable_ok(c, e)
}

variable_ok(own, e) if e in own.env

variable_ok(own, e) if split(e, "=")[0] in own.env_names

variable_ok(_, e) if {
	some pattern in pod.env_patterns
	regex.match(pattern, e)
}

refused contains sprintf("mount %s of %s (%s)", [m.destination, m.source, m.type_]) if {
	some m in input.OCI.Mounts
	not mount_ok(m)
}

mount_ok(m) if {
	some own in pod.mounts
	m.destination == own.destination
	m.type_ == own.type
}

mount_ok(m) if {
	m.destination in c.files
	is_bind(m)
	from_the_guest(m.source)
}

mount_ok(m) if {
	some v in c.mounts
	m.destination == v.destination
	is_bind(m)
	from_the_guest(m.source)
	mode_ok(v, m.options)
}

# Of another mount the source need not say what is there: of an overlay its options do.
is_bind(m) if m.type_ in ["bind", "local"]

is_bind(m) if {
	some option in m.options
	option in ["bind", "rbind"]
}

mode_ok(v, _) if not v.readonly

mode_ok(v, options) if {
	v.readonly
	"ro" in options
}

# Where files that the node sent, volumes and what the containers share are in the guest.
from_the_guest(path) if {
	some folder in ["/run/kata-containers/shared/containers/", "/run/kata-containers/sandbox/", "/run/outrigger/volumes/", "/run/outrigger/parts/"]
	startswith(path, folder)
	not climbs(path)
}

climbs(path) if ".." in split(path, "/")

refused contains sprintf("storage %s of driver %s", [s.mount_point, s.driver]) if {
	some s in input.storages
	not storage_ok(s)
}

storage_ok(s) if s.driver == "image_guest_pull"

storage_ok(s) if {
	s.driver in ["local", "ephemeral", "nfs"]
	startswith(s.mount_point, "/run/kata-containers/")
	not climbs(s.mount_point)
}

refused contains "hooks" if {
	some hooks in input.OCI.Hooks
	count(hooks) > 0
}

refused contains sprintf("device %s", [d.Path]) if {
	some d in input.OCI.Linux.Devices
	not d.Path in c.devices
}

refused contains why if some why in sysctls_refused

sysctls_refused contains sprintf("sysctl %s", [key]) if {
	some key, value in input.OCI.Linux.Sysctl
	not sysctl_ok(key, value)
}

sysctl_ok(key, value) if pod.sysctls[key] == value

# containerd sets these for every pod: enable_unprivileged_ports and enable_unprivileged_icmp.
sysctl_ok("net.ipv4.ip_unprivileged_port_start", "0")

sysctl_ok("net.ipv4.ping_group_range", _)

# Files for mounts, and nothing elsewhere.
CopyFileRequest if {
	startswith(input.path, "/run/kata-containers/shared/containers/")
	not climbs(input.path)
}

# Commands of probes and of the life cycle, as the container they are of: a variable can have them run what the node wants (LD_PRELOAD, PATH).
ExecProcessRequest if {
	print(sprintf("command %v, want one of %v", [input.process.Args, pod.exec]))
	input.process.Args in pod.exec
	some own in pod.containers
	exec_ok(own)
}

exec_ok(own) if {
	every e in input.process.Env {
		variable_ok(own, e)
	}
	every names in input.process.Capabilities {
		every name in names {
			name in own.capabilities
		}
	}
	input.process.User.UID == own.uid
	input.process.Cwd == own.cwd
}

ExecProcessRequest if pod.allow.exec

ReadStreamRequest if pod.allow.logs

WriteStreamRequest if pod.allow.stdin

UpdateEphemeralMountsRequest if {
	every s in input.storages {
		s.driver == "ephemeral"
		startswith(s.mount_point, "/run/kata-containers/")
	}
}

# What neither tells of the pod nor changes what runs in it.
CloseStdinRequest := true

DestroySandboxRequest := true

GetOOMEventRequest := true

GuestDetailsRequest := true

OnlineCPUMemRequest := true

PauseContainerRequest := true

RemoveContainerRequest := true

RemoveStaleVirtiofsShareMountsRequest := true

ReseedRandomDevRequest := true

ResumeContainerRequest := true

SignalProcessRequest := true

StartContainerRequest := true

StatsContainerRequest := true

TtyWinResizeRequest := true

UpdateContainerRequest := true

WaitProcessRequest := true
