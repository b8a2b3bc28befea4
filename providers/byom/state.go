// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"time"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
)

// namespace is the UUID under which sandbox ids are hashed. It never changes:
// an instance would not be found again.
var namespace = uuid.MustParse("b6a6f5a8-2c0e-4a0b-8a41-3c2f2f8e9f10")

// instanceID returns the UUID of a sandbox's instance (RFC 9562, version 5).
func instanceID(key string) string { return uuid.NewSHA1(namespace, []byte(key)).String() }

var idSyntax = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// isID reports whether an id could be one of ours.
func isID(id string) bool { return idSyntax.MatchString(id) }

// Phases of a machine that is not free.
const (
	// phaseMaking: it is claimed for an instance and gets its user-data.
	phaseMaking = "making"
	// phaseReady: it is an instance.
	phaseReady = "ready"
	// phaseReleasing: its instance is being deleted; it is not told to reboot
	// for certain yet.
	phaseReleasing = "releasing"
	// phaseResetting: it is nobody's any more, and not yet anybody's: it has
	// been told to reboot and has not proved that it did.
	phaseResetting = "resetting"
)

// entry is what the pool's state says of a machine that is not free.
type entry struct {
	Phase string `json:"phase"`
	// Since is when the phase began.
	Since time.Time `json:"since"`
	// Boot is the machine's boot id while it is the instance's, or nothing
	// where it serves none.
	Boot string `json:"boot,omitempty"`

	ID      string            `json:"id,omitempty"`
	Key     string            `json:"key,omitempty"`
	Name    string            `json:"name,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created,omitzero"`
}

// state is the pool's, by address.
type state map[netip.Addr]*entry

// stateKey is the entry of the ConfigMap.
const stateKey = "state"

func parseState(text string) (state, error) {
	s := state{}
	if text == "" {
		return s, nil
	}
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return nil, fmt.Errorf("the pool's state does not parse: %w; mend or delete its ConfigMap when no pod of the pool runs", err)
	}
	return s, nil
}

func (s state) text() (string, error) {
	data, err := json.MarshalIndent(s, "", " ")
	return string(data), err
}

// of returns the machine of an instance.
func (s state) of(id string) (netip.Addr, *entry) {
	for addr, e := range s {
		if e.ID == id && id != "" {
			return addr, e
		}
	}
	return netip.Addr{}, nil
}

func (e *entry) instance(addr netip.Addr) *provider.Instance {
	states := map[string]provider.InstanceState{phaseMaking: provider.StatePending, phaseReady: provider.StateRunning, phaseReleasing: provider.StateDeleting}
	return &provider.Instance{
		ID: e.ID, Name: e.Name, IPs: []netip.Addr{addr}, Key: e.Key, Tags: maps.Clone(e.Tags), Created: e.Created, State: states[e.Phase],
	}
}
