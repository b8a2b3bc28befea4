// SPDX-License-Identifier: Apache-2.0

package shim

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	oci "github.com/opencontainers/runtime-spec/specs-go"
)

// role is what a container is in its pod.
type role string

// Roles, as the Kata shim names them to the agent.
const (
	roleSandbox   role = "pod_sandbox"      // pause: its life is the VM's
	roleContainer role = "pod_container"    // one beside it
	roleSingle    role = "single_container" // a VM of its own, from ctr run
)

// Annotations that runtimes give to containers: containerd's, then CRI-O's.
var (
	keysRole      = []string{"io.kubernetes.cri.container-type", "io.kubernetes.cri-o.ContainerType"}
	keysSandboxID = []string{"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"}
	keysImage     = []string{"io.kubernetes.cri.image-name", "io.kubernetes.cri-o.ImageName"}
	keysName      = []string{"io.kubernetes.cri.sandbox-name", "io.kubernetes.cri-o.KubeName"}
	keysNamespace = []string{"io.kubernetes.cri.sandbox-namespace", "io.kubernetes.cri-o.Namespace"}
)

// bundle is a container as containerd hands it over: a folder with its OCI spec.
type bundle struct {
	id, path string
	spec     *oci.Spec
	role     role
	// sandbox is the id of the pod's pause container.
	sandbox string
}

func readBundle(id, path string) (*bundle, error) {
	data, err := os.ReadFile(filepath.Join(path, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("the container's OCI spec: %w", err)
	}
	b := &bundle{id: id, path: path, spec: &oci.Spec{}, role: roleSingle, sandbox: id}
	if err := json.Unmarshal(data, b.spec); err != nil {
		return nil, fmt.Errorf("the container's OCI spec: %w", err)
	}
	switch kind := b.annotation(keysRole); kind {
	case "":
	case "sandbox":
		b.role = roleSandbox
	case "container":
		b.role, b.sandbox = roleContainer, b.annotation(keysSandboxID)
		if b.sandbox == "" {
			return nil, fmt.Errorf("the container has annotation %s=container but no %s", keysRole[0], keysSandboxID[0])
		}
	default:
		return nil, fmt.Errorf("annotation %s: %q is neither sandbox nor container", keysRole[0], kind)
	}
	return b, nil
}

// ownsVM reports whether the VM comes and goes with this container.
func (b *bundle) ownsVM() bool { return b.role != roleContainer }

// annotation returns the value of the first of keys that is set.
func (b *bundle) annotation(keys []string) string {
	for _, key := range keys {
		if value := b.spec.Annotations[key]; value != "" {
			return value
		}
	}
	return ""
}

// image returns the image that the guest pulls. The pause container's comes with the
// guest.
func (b *bundle) image() (string, error) {
	if b.role == roleSandbox {
		return "pause", nil
	}
	name := b.annotation(keysImage)
	if name == "" {
		return "", fmt.Errorf("the container has no annotation %s, so the guest cannot know what image to pull", keysImage[0])
	}
	return name, nil
}

// namespace returns the namespace of a type; nil if the container shares the node's.
func (b *bundle) namespace(kind oci.LinuxNamespaceType) *oci.LinuxNamespace {
	if b.spec.Linux == nil {
		return nil
	}
	for i, ns := range b.spec.Linux.Namespaces {
		if ns.Type == kind {
			return &b.spec.Linux.Namespaces[i]
		}
	}
	return nil
}

// sharesPIDs reports whether the pod's containers see each other's processes:
// containerd then names the pause container's namespace.
func (b *bundle) sharesPIDs() bool {
	ns := b.namespace(oci.PIDNamespace)
	return b.role == roleContainer && ns != nil && ns.Path != ""
}

func (b *bundle) netns() string {
	if ns := b.namespace(oci.NetworkNamespace); ns != nil {
		return ns.Path
	}
	return ""
}
