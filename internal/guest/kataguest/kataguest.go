// SPDX-License-Identifier: Apache-2.0

// Package kataguest describes a pod VM that runs Kata's agent, and components of Confidential Containers,
// in place of podvm-agent. Their programs are those of whoever built the image; which of them it has
// decides what PID 1 starts and which pods it takes.
package kataguest

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/outrigger/outrigger/internal/guest/asked"
)

// Programs of the image, in the folder [Programs]. Agent alone must be there.
const (
	Agent            = "kata-agent"
	AttestationAgent = "attestation-agent"
	DataHub          = "confidential-data-hub"
	APIServer        = "api-server-rest"
)

// Files of the image.
const (
	Programs = "/usr/local/bin"
	// PauseBundle is the OCI bundle of the pod's first container.
	PauseBundle = "/pause_bundle"
	// AgentConfig configures kata-agent with AgentSettings.
	AgentConfig = "/etc/agent-config.toml"
	// Policy is the one that kata-agent has from its start. Prepare replaces it with the pod's.
	Policy = "/etc/kata-opa/default-policy.rego"
)

// AgentSettings let PID 1, and not the agent, start the other components. The socket is where the forwarder looks for it.
const AgentSettings = `server_addr = "unix://` + agentSocket + `"
guest_components_procs = "none"
`

// AllowAll is the policy of an image for which there is no other: a pod without a policy is not restricted.
const AllowAll = "package agent_policy\n\ndefault AllowRequestsFailingPolicy := true\n"

// Where the programs listen by their own defaults, and the namespace of the pod's network, which the forwarder makes.
const (
	agentFolder    = "/run/kata-containers"
	agentSocket    = agentFolder + "/agent.sock"
	attesterFolder = "/run/confidential-containers/attestation-agent"
	attesterSocket = attesterFolder + "/attestation-agent.sock"
	HubSocket      = "/run/confidential-containers/cdh.sock"
	podNamespace   = "/run/netns/podns"
)

// Guest is such a VM.
type Guest struct {
	// Programs and Provisioned are folders: of the programs, and of what the node sent.
	Programs, Provisioned string
}

// Service is a program that is to be kept running.
type Service struct {
	Argv []string
	// Env is what its environment has beside that of other programs.
	Env []string
	// After are files, sockets mostly, without which it is not started.
	After []string
	// Socket is what it listens on. One that another process has left must be removed: kata-agent would not start.
	Socket string
	// Namespace is the file of the network namespace in which it runs; empty is the VM's own.
	Namespace string
}

// Find returns this VM, or nil if its agent is podvm-agent.
func Find() *Guest {
	g := &Guest{Programs: Programs, Provisioned: asked.Folder}
	if !g.Has(Agent) {
		return nil
	}
	return g
}

// Has reports whether the image has a program.
func (g *Guest) Has(program string) bool {
	_, err := os.Stat(filepath.Join(g.Programs, program))
	return err == nil
}

// CheckAsked returns FailedPrecondition if the pod needs a component that the image lacks. Enforces
// reports whether the agent enforces policies; it is called if there is one.
func (g *Guest) CheckAsked(enforces func() bool) error {
	return asked.Check(g.Provisioned, func(file string) bool {
		switch file {
		case asked.Policy:
			return enforces()
		case asked.Attester:
			return g.Has(AttestationAgent)
		case asked.DataHub:
			return g.Has(DataHub)
		}
		return false
	})
}

// Prepare makes what the programs need before they are started. The pod's policy, if there is one, is written to the
// file policy, which kata-agent reads when it starts.
func (g *Guest) Prepare(policy string) error {
	for _, dir := range []string{agentFolder, attesterFolder} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return g.installPolicy(policy)
}

func (g *Guest) installPolicy(to string) error {
	text, err := os.ReadFile(filepath.Join(g.Provisioned, asked.Policy))
	if os.IsNotExist(err) || err == nil && len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// Services returns the programs of the image in the order in which they wait for each other: as upstream's units have it.
func (g *Guest) Services() []Service {
	agent := Service{Argv: []string{g.path(Agent), "--config", AgentConfig}, Socket: agentSocket}
	var list []Service
	if g.Has(AttestationAgent) {
		list = append(list, Service{Argv: g.configured(AttestationAgent, asked.Attester), Socket: attesterSocket})
	}
	if g.Has(DataHub) {
		hub := Service{Argv: g.configured(DataHub, asked.DataHub), Socket: HubSocket}
		if g.Has(AttestationAgent) {
			hub.After = []string{attesterSocket}
		}
		if passwords := filepath.Join(g.Provisioned, "auth.json"); exists(passwords) {
			hub.Env = []string{"CDH_DEFAULT_IMAGE_AUTHENTICATED_REGISTRY_CREDENTIALS=file://" + passwords}
		}
		list = append(list, hub)
		agent.After = []string{HubSocket}
	}
	if g.Has(APIServer) {
		list = append(list, Service{
			Argv: []string{g.path(APIServer), "--features", "all"}, After: []string{HubSocket, podNamespace}, Namespace: podNamespace,
		})
	}
	return append(list, agent)
}

func (g *Guest) path(program string) string { return filepath.Join(g.Programs, program) }

// configured returns the arguments of a program whose configuration the node may have sent. An empty one is none.
func (g *Guest) configured(program, file string) []string {
	config := filepath.Join(g.Provisioned, file)
	if text, err := os.ReadFile(config); err == nil && len(bytes.TrimSpace(text)) == 0 || os.IsNotExist(err) {
		return []string{g.path(program)}
	}
	return []string{g.path(program), "-c", config}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
