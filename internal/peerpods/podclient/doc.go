// SPDX-License-Identifier: Apache-2.0

// Package podclient drives a pod the way a Kata shim does: it asks the
// hypervisor service of a node for a VM and speaks the agent protocol to what
// runs in it. Order of calls and deadlines are those of the Go shim, so what
// works here works for the real one.
//
//	client := podclient.New("/run/peerpod/hypervisor.sock")
//	pod, err := client.Create(ctx, podclient.PodSpec{Name: "p1"})
//	defer pod.Stop(ctx)
//	c, err := pod.CreateContainer(ctx, podclient.ContainerSpec{Image: ref, Args: args})
//	c.Stream(podclient.IO{Stdout: os.Stdout, Stderr: os.Stderr})
//	err = c.Start(ctx)
//	status, err := c.Wait(ctx)
package podclient

import "time"

// Deadlines of the calls of the Go shim. Long polls (WaitProcess, GetOOMEvent,
// ReadStdout, ReadStderr) have none.
const (
	// HealthTimeout bounds one health check.
	HealthTimeout = 30 * time.Second
	// SandboxTimeout bounds SetPolicy and CreateSandbox.
	SandboxTimeout = 300 * time.Second
	// CallTimeout bounds all calls that have no limit of their own.
	CallTimeout = 60 * time.Second
	// StartTimeout is the default for StartVM: the shim's
	// remote_hypervisor_timeout when it is not set.
	StartTimeout = 600 * time.Second
	// PullTimeout is the default for CreateContainer, which pulls the image
	// in the guest. The shim's create_container_timeout is often 60 s.
	PullTimeout = 600 * time.Second
	// DialTimeout is how long the agent socket is tried after StartVM.
	DialTimeout = 30 * time.Second
	// HealthInterval is the time between health checks.
	HealthInterval = 5 * time.Second
)

// Paths in the guest that shim and agent agree on.
const (
	guestShared     = "/run/kata-containers/shared/containers"
	guestContainers = "/run/kata-containers"
	guestEphemeral  = "/run/kata-containers/sandbox/ephemeral"
	// GuestShm is the pod's shared memory, made by CreateSandbox.
	GuestShm = "/run/kata-containers/sandbox/shm"
)

// Annotation keys that the shim and containerd set.
const (
	annSandboxName      = "io.kubernetes.cri.sandbox-name"
	annSandboxNamespace = "io.kubernetes.cri.sandbox-namespace"
	annSandboxUID       = "io.kubernetes.cri.sandbox-uid"
	annSandboxID        = "io.kubernetes.cri.sandbox-id"
	annContainerName    = "io.kubernetes.cri.container-name"
	annCRIType          = "io.kubernetes.cri.container-type"
	annImageName        = "io.kubernetes.cri.image-name"
	annKataType         = "io.katacontainers.pkg.oci.container_type"
	annBundlePath       = "io.katacontainers.pkg.oci.bundle_path"
	annNetns            = "nerdctl/network-namespace"

	hypervisorPrefix = "io.katacontainers.config.hypervisor."
)

// Stage is how far a pod has come.
type Stage string

// Stages, in order.
const (
	StageBooting   Stage = "booting"   // CreateVM was answered, StartVM is under way
	StageConnected Stage = "connected" // the agent answered a health check
	StagePulling   Stage = "pulling"   // Done and Total hold bytes
	StageStarted   Stage = "started"   // StartContainer was answered
)

// Event reports progress.
type Event struct {
	Stage Stage
	// Elapsed is the time since Create or CreateContainer began.
	Elapsed time.Duration
	// Done and Total are compressed bytes of the image; Total is 0 while unknown.
	Done, Total int64
}
