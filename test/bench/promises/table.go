// SPDX-License-Identifier: Apache-2.0

package promises

// Bench is the package whose measurements SPECIFICATION.md names; Go benchmarks
// of other packages are all run by its measurement GoBenchmarks.
const (
	Bench        = "test/bench"
	GoBenchmarks = "go-benchmarks"
)

// Sections of SPECIFICATION.md.
const (
	network  = "Its network"
	machines = "Machines for Cluster API"
	cluster  = "In a cluster"
	speed    = "Speed and size"
)

// All returns every promise. A unit test compares it with SPECIFICATION.md.
func All() []Promise {
	return []Promise{
		{Name: "adaptor-size", What: "`cloud-api-adaptor` without cloud SDKs, its file", Bound: AtMost, Figure: 30, Unit: "MB", Section: speed, Package: Bench, Benchmark: "size"},
		{Name: "adaptor-static", What: "shared libraries that `cloud-api-adaptor` needs", Bound: AtMost, Figure: 0, Says: "static", Section: speed, Package: Bench, Benchmark: "size"},
		{Name: "image-size", What: "guest image `initrd.cpio`", Bound: AtMost, Figure: 28.7, Unit: "MiB", Section: speed, Package: Bench, Benchmark: "size"},
		{Name: "confidential-size", What: "confidential guest image `initrd.cpio`, over the other", Bound: AtMost, Figure: 25, Unit: "MiB", Section: speed, Package: Bench, Benchmark: "size"},

		{Name: "start-vm", What: "our share of StartVM, p50", Bound: AtMost, Figure: 25, Unit: "ms", Section: speed, Package: "internal/peerpods/adaptor", Benchmark: "BenchmarkStartVM", Idle: true},
		{Name: "relay-added", What: "relay and forwarder: added to an agent call, p50", Bound: AtMost, Figure: 100, Unit: "µs", Section: speed, Package: "internal/peerpods/relay", Benchmark: "BenchmarkCall"},
		{Name: "relay-waits", What: "relay and forwarder: context switches during an agent call", Bound: AtMost, Figure: 6, Unit: "context switches", Section: speed, Package: "internal/peerpods/relay", Benchmark: "BenchmarkCall"},
		{Name: "relay-calls", What: "relay and forwarder: calls", Bound: AtLeast, Figure: 5000, Unit: "calls/s", Section: speed, Package: "internal/peerpods/relay", Benchmark: "BenchmarkCall"},
		podPath("pod-path-ipv4-1500", "IPv4, MTU 1500"),
		podPath("pod-path-ipv4-9000", "IPv4, MTU 9000"),
		podPath("pod-path-ipv6-1500", "IPv6, MTU 1500"),
		podPath("pod-path-ipv6-9000", "IPv6, MTU 9000"),
		{Name: "encrypted-path", What: "pod path, encrypted: TCP throughput against the plain tunnel", Bound: AtLeast, Figure: 60, Unit: "%", Section: network, Package: "internal/peerpods/podnetwork", Benchmark: "BenchmarkEncryptedPath"},
		{Name: "pod-life-writes", What: "API writes for the life of a pod", Bound: AtMost, Figure: 8, Unit: "API writes", Section: cluster, Package: "internal/peerpods/adaptor/cluster", Benchmark: "BenchmarkPodLife"},
		{Name: "peerpods-cold", What: "controller: 5,000 PeerPods after a start, elapsed", Bound: AtMost, Figure: 10, Unit: "s", Section: speed, Package: "internal/peerpods/controller/command", Benchmark: "BenchmarkCold"},
		{Name: "peerpods-steady", What: "controller: 5,000 PeerPods, steady, a sweep each second, of one processor", Bound: AtMost, Figure: 5, Unit: "%", Section: speed, Package: "internal/peerpods/controller/command", Benchmark: "BenchmarkCold"},
		{Name: "take-vm", What: "200 pods of 20 nodes in a second at a pool of 200 VMs: each takes one, p99", Bound: AtMost, Figure: 1, Unit: "s", Section: speed, Package: "internal/peerpods/adaptor/cluster", Benchmark: "BenchmarkTakeVM"},
		{Name: "idle-pool", What: "controller: a pool of 1,000 VMs that wait, with nothing to do, of one processor", Bound: AtMost, Figure: 2, Unit: "%", Section: speed, Package: "internal/peerpods/controller", Benchmark: "BenchmarkIdlePool"},
		{Name: "sweep", What: "controller: one sweep of 10,000 instances", Bound: AtMost, Figure: 1, Unit: "s", Section: speed, Package: "internal/peerpods/controller", Benchmark: "BenchmarkSweep"},
		{Name: "webhook-usual", What: "webhook: a usual pod, processor time, p99", Bound: AtMost, Figure: 5, Unit: "ms", Section: speed, Package: "internal/peerpods/webhook", Benchmark: "BenchmarkCall"},
		{Name: "webhook-large", What: "webhook: a pod of 20 containers and 70 KB, processor time, p99", Bound: AtMost, Figure: 5, Unit: "ms", Section: speed, Package: "internal/peerpods/webhook", Benchmark: "BenchmarkCall"},
		policy("container", "a container's creation"), policy("refused", "a command that it refuses"),
		{Name: "plugin-call", What: "process plugin: added to a call in process, p99", Bound: AtMost, Figure: 250, Unit: "µs", Section: speed, Package: "provider/plugin", Benchmark: "BenchmarkProcessCall", Idle: true},
		{Name: "plugin-restart", What: "process plugin: from its end in a call to the next answer", Bound: AtMost, Figure: 1, Unit: "s", Section: speed, Package: "provider/plugin", Benchmark: "BenchmarkProcessRestart"},

		{Name: "adaptor-idle", What: "adaptor, idle, resident", Bound: AtMost, Figure: 40, Unit: "MiB", Section: speed, Package: Bench, Benchmark: "memory"},
		{Name: "adaptor-sandbox", What: "adaptor, for each sandbox", Bound: AtMost, Figure: 150, Unit: "KiB", Section: speed, Package: Bench, Benchmark: "memory"},
		{Name: "guest-boot", What: "guest: QEMU start to agent ready, processor time", Bound: AtMost, Figure: 2.5, Unit: "CPU-seconds", Section: speed, Package: Bench, Benchmark: "guest", Idle: true},
		{Name: "first-output", What: "`outrigger run` to first output", Bound: AtMost, Figure: 3.5, Unit: "s", Section: speed, Package: Bench, Benchmark: "run", Idle: true},
		{Name: "guest-restored", What: "guest restored from a template: the same, against one that boots", Bound: AtMost, Figure: 0.6, Unit: "times", Section: speed, Package: Bench, Benchmark: "guest"},
		{Name: "first-output-restored", What: "`outrigger run` to first output with a VM that is restored, against one that boots", Bound: AtMost, Figure: 0.7, Unit: "times", Section: speed, Package: Bench, Benchmark: "run"},
		{Name: "first-output-pool", What: "`outrigger run` to first output with a VM of a pool, against one that is restored", Bound: AtMost, Figure: 0.8, Unit: "times", Section: speed, Package: Bench, Benchmark: "run"},
		{Name: "restored-seconds", What: "`outrigger run` to first output with a VM that is restored", Bound: AtMost, Figure: 1, Unit: "s", Section: speed, Package: Bench, Benchmark: "run", Idle: true},
		{Name: "pool-seconds", What: "`outrigger run` to first output with a VM of a pool", Bound: AtMost, Figure: 0.6, Unit: "s", Section: speed, Package: Bench, Benchmark: "run", Idle: true},
		{Name: "claim-to-ready", What: "from the claim of a VM of a pool to its agent's first reply", Bound: AtMost, Figure: 0.25, Unit: "s", Section: speed, Package: Bench, Benchmark: "run", Idle: true},
		{Name: "pool-vm-memory", What: "a VM of 512 MiB that waits in a pool: memory that it does not share, without translated code", Bound: AtMost, Figure: 50, Unit: "MiB", Section: speed, Package: Bench, Benchmark: "pool-vm"},
		{Name: "pull-and-start", What: "pull and start of a small image", Bound: AtMost, Figure: 0.5, Unit: "s", Section: speed, Package: Bench, Benchmark: "run", Idle: true},
		{Name: "large-image", What: "pull and start of an image of 100 MiB, against copying its layer and unpacking it with tar in the same VM", Bound: AtMost, Figure: 2, Unit: "times", Section: speed, Package: Bench, Benchmark: "large-image"},

		{Name: "configmap", What: "a ConfigMap of 1 MiB with 500 files, added to the start of a container in a VM", Bound: AtMost, Figure: 150, Unit: "ms", Section: speed, Package: Bench, Benchmark: "configmap", Idle: true},
		{Name: "attestation", What: "attestation by a software TPM, added to the start of a pod in a VM", Bound: AtMost, Figure: 1, Unit: "s", Section: speed, Package: Bench, Benchmark: "attestation", Idle: true},
		volume("sequential-write", "sequential writes"), volume("sequential-read", "sequential reads"), volume("random-write", "random writes"), volume("random-read", "random reads"),
		{Name: "volume-mounted", What: "volume of a pod in a VM, with a file system: from the VM to its mount, without the provider's calls", Bound: AtMost, Figure: 300, Unit: "ms", Section: speed, Package: Bench, Benchmark: "volumes", Idle: true},

		start("outrigger"), start("kubectl-outrigger"),
		list("alibabacloud"), list("azure"), list("gcp"), list("ibmcloud"), list("ibmcloud-powervs"), list("openstack"),

		fewer("machines-writes", "machines: API writes for each, against Cluster API's in-memory provider"),
		fewer("machines-reconciles", "machines: reconciles of everything for each, against the same"),
		{Name: "machines-idle-writes", What: "machines: API writes with nothing to do", Bound: AtMost, Figure: 0, Says: "no write", Section: machines, Package: Bench, Benchmark: "machines"},
		{Name: "machines-twice", What: "machines: made twice by a manager that was killed", Bound: AtMost, Figure: 0, Says: "none is made twice", Section: machines, Package: Bench, Benchmark: "machines"},
		operatorWrites("openshift", "on OpenShift"), operatorShare("openshift", "on OpenShift"),
		operatorWrites("plain", "on plain Kubernetes"), operatorShare("plain", "on plain Kubernetes"),
	}
}

func podPath(name, of string) Promise {
	return Promise{Name: name, What: "pod path: TCP throughput against the bare underlay, " + of, Bound: AtLeast, Figure: 80, Unit: "%",
		Section: network, Package: "internal/peerpods/podnetwork", Benchmark: "BenchmarkPodPath"}
}

func policy(name, of string) Promise {
	return Promise{Name: "policy-" + name, What: "policy of a pod of 20 containers: " + of + ", processor time, p99", Bound: AtMost, Figure: 5, Unit: "ms",
		Section: speed, Package: "internal/cli/agentpolicy", Benchmark: "BenchmarkGenerated"}
}

func volume(way, what string) Promise {
	return Promise{Name: "volume-" + way, What: "volume of a pod in a VM: " + what + ", against the same kind of disk that is mounted by hand in the same VM", Bound: AtLeast, Figure: 95, Unit: "%",
		Section: speed, Package: Bench, Benchmark: "volumes"}
}

func start(program string) Promise {
	return Promise{Name: "start-" + program, What: "`" + program + "`, from its start to its end with a command that asks nobody", Bound: AtMost, Figure: 50, Unit: "ms",
		Section: speed, Package: Bench, Benchmark: "start"}
}

func list(cloud string) Promise {
	return Promise{Name: "list-" + cloud, What: "`" + cloud + "`: a list of instances, against a plain fetch of its replies", Bound: AtMost, Figure: 10, Unit: "times",
		Section: speed, Package: Bench, Benchmark: "clouds"}
}

func fewer(name, what string) Promise {
	return Promise{Name: name, What: what, Bound: Below, Figure: 1, Unit: "times", Says: "fewer API writes and reconciles",
		Section: machines, Package: Bench, Benchmark: "machines"}
}

func operatorWrites(kind, where string) Promise {
	return Promise{Name: "operator-writes-" + kind, What: "`ccm-operator` " + where + ", nothing to do: writes, renewals of its lease aside", Bound: AtMost, Figure: 0, Says: "no write",
		Section: speed, Package: Bench, Benchmark: "ccm-operator"}
}

func operatorShare(kind, where string) Promise {
	return Promise{Name: "operator-share-" + kind, What: "`ccm-operator` " + where + ", nothing to do: of one processor", Bound: AtMost, Figure: 1, Unit: "%",
		Section: speed, Package: Bench, Benchmark: "ccm-operator"}
}
