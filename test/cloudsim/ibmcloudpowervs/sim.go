// SPDX-License-Identifier: Apache-2.0

package ibmcloudpowervs

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// What exists from the start.
const (
	APIKey   = "the-api-key"
	Account  = "0123456789abcdef0123456789abcdef"
	Zone     = "dal10"
	Instance = "d9cec80a-0000-4000-8000-aaaaaaaaaaaa" // the workspace
	Image    = "img-podvm"
	// BrokenImage makes VMs that end in an error.
	BrokenImage = "img-broken"
	// PublicNetwork gives addresses at once, DHCPNetwork by leases.
	PublicNetwork = "net-public"
	DHCPNetwork   = "net-dhcp"
	SSHKey        = "the-key"
	dhcpID        = "dhcp-1"
)

// SystemTypes are those of the workspace's machines.
var SystemTypes = []string{"s922", "e980"}

// LateFailure is the action whose faults end a build in an error with the
// fault's message.
const LateFailure = "powervs:build"

// Sim is one simulated workspace.
type Sim struct {
	World  *cloudsim.World
	Server *cloudsim.Server
	// Step is how long a build, a lease and a deletion take each.
	Step time.Duration
	// TokenLife is how long tokens last.
	TokenLife time.Duration

	// GoWithVM has volumes that are attached from now on be deleted with their VM, unless somebody says otherwise.
	GoWithVM bool

	mu      sync.Mutex
	vms     map[string]*machine
	volumes map[string]*volume
	tasks   map[string]*task
	serial  int
	last    time.Time // of a creation
	tokens  map[string]time.Time
	denied  map[string]bool
}

// New starts a workspace that ends with the test.
func New(t testing.TB, world *cloudsim.World) *Sim {
	t.Helper()
	s := &Sim{
		World: world, Step: 3 * time.Millisecond, TokenLife: time.Hour,
		vms: map[string]*machine{}, tokens: map[string]time.Time{}, denied: map[string]bool{},
		volumes: map[string]*volume{}, tasks: map[string]*task{},
	}
	s.Server = cloudsim.Serve(t, world.Handler(http.HandlerFunc(s.serve), action, strike))
	return s
}

// Deny takes the right to an action away.
func (s *Sim) Deny(action string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[action] = true
}

const prefix = "/pcloud/v1/cloud-instances/"

// below returns the path below the workspace; version 2 of the API only has clones.
func below(path string) string {
	rest, newer := strings.CutPrefix(path, "/pcloud/v2/cloud-instances/"+Instance+"/volumes/clone")
	if newer {
		return "volumes/clone" + rest
	}
	return strings.TrimPrefix(path, prefix+Instance+"/")
}

// action names a request for the script and the log.
func action(r *http.Request) string {
	if r.URL.Path == "/identity/token" {
		return "iam:token"
	}
	if strings.HasPrefix(r.URL.Path, "/pcloud/v1/tenants/") {
		return "powervs:sshkeys.get"
	}
	_, path, _ := strings.Cut(strings.TrimPrefix(strings.Replace(r.URL.Path, "/v2/", "/v1/", 1), prefix), "/")
	parts := strings.Split(path, "/")
	verbs := map[string]string{http.MethodPost: "create", http.MethodDelete: "delete", http.MethodGet: "get", http.MethodPut: "update"}
	verb := verbs[r.Method]
	switch {
	case len(parts) == 4 && parts[2] == "volumes":
		return "powervs:pvm-instances.volumes." + verb
	case len(parts) > 1 && strings.HasPrefix(parts[1], "clone"):
		return "powervs:volumes." + parts[1] + "." + verb
	case len(parts) == 3 && parts[2] == "action":
		verb = "action"
	case r.Method == http.MethodGet && (len(parts) == 1 || path == "services/dhcp"):
		verb = "list"
	}
	name := parts[0]
	if name == "services" {
		name = "dhcp"
	}
	return "powervs:" + name + "." + verb
}

func strike(out http.ResponseWriter, r *http.Request, f cloudsim.Fault) {
	if action(r) == "iam:token" {
		writeJSON(out, f.Status, map[string]string{"errorCode": f.Code, "errorMessage": f.Message})
		return
	}
	refuse(out, f.Status, "%s: %s", f.Code, f.Message)
}

func writeJSON(out http.ResponseWriter, status int, v any) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	json.NewEncoder(out).Encode(v)
}

// refuse replies in the form of the models' Error.
func refuse(out http.ResponseWriter, status int, format string, args ...any) {
	writeJSON(out, status, map[string]any{
		"code": status, "error": strings.ToLower(http.StatusText(status)), "description": fmt.Sprintf(format, args...),
	})
}

func (s *Sim) serve(out http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.URL.Path == "/identity/token":
		s.token(out, r)
	case !s.authorized(out, r):
	case r.URL.Path == "/pcloud/v1/tenants/"+Account+"/sshkeys/"+SSHKey:
		writeJSON(out, http.StatusOK, map[string]string{"name": SSHKey, "sshKey": "ssh-rsa AAAA"})
	case below(r.URL.Path) == r.URL.Path:
		refuse(out, http.StatusNotFound, "no such resource")
	default:
		s.workspace(out, r, strings.Split(below(r.URL.Path), "/"))
	}
}

func (s *Sim) workspace(out http.ResponseWriter, r *http.Request, path []string) {
	switch {
	case path[0] == "pvm-instances":
		s.instances(out, r, path[1:])
	case path[0] == "volumes":
		s.serveVolumes(out, r, path[1:])
	case r.Method != http.MethodGet:
		refuse(out, http.StatusMethodNotAllowed, "%s", r.Method)
	case len(path) == 2 && path[0] == "images" && slices.Contains([]string{Image, BrokenImage}, path[1]):
		writeJSON(out, http.StatusOK, map[string]any{"imageID": path[1], "name": path[1], "state": "active"})
	case len(path) == 2 && path[0] == "networks" && slices.Contains([]string{PublicNetwork, DHCPNetwork}, path[1]):
		writeJSON(out, http.StatusOK, map[string]any{"networkID": path[1], "name": path[1]})
	case len(path) == 1 && path[0] == "system-pools":
		pools := map[string]any{}
		for _, kind := range SystemTypes {
			pools[kind] = map[string]string{"type": kind}
		}
		writeJSON(out, http.StatusOK, pools)
	case slices.Equal(path, []string{"services", "dhcp"}):
		writeJSON(out, http.StatusOK, []any{s.dhcp(false)})
	case slices.Equal(path, []string{"services", "dhcp", dhcpID}):
		writeJSON(out, http.StatusOK, s.dhcp(true))
	default:
		refuse(out, http.StatusNotFound, "no such resource")
	}
}

func (s *Sim) dhcp(leases bool) map[string]any {
	server := map[string]any{"id": dhcpID, "status": "ACTIVE", "network": map[string]string{"id": DHCPNetwork, "name": DHCPNetwork}}
	if !leases {
		return server
	}
	list := []map[string]string{}
	for _, m := range s.vms {
		if m.network == DHCPNetwork && m.leased() {
			list = append(list, map[string]string{"instanceIP": m.address, "instanceMacAddress": m.mac})
		}
	}
	server["leases"] = list
	return server
}
