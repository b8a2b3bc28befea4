// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"time"

	lv "github.com/digitalocean/go-libvirt"
	"github.com/google/uuid"

	"github.com/outrigger/outrigger/provider"
)

// namespace is the UUID under which sandbox ids are hashed. It never changes:
// an instance would not be found again.
var namespace = uuid.MustParse("5a1e6f1c-93f2-4f0e-8a58-7e0f6f6c1d2b")

// instanceID returns the UUID of a sandbox's domain (RFC 9562, version 5).
func instanceID(key string) string { return uuid.NewSHA1(namespace, []byte(key)).String() }

var uuidSyntax = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// isID reports whether an id could be one of ours.
func isID(id string) bool { return uuidSyntax.MatchString(id) }

// macOf returns the address of an instance's interface. 52: is a locally
// administered unicast address, and QEMU's own.
func macOf(id string, nic int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s/%d", id, nic))
	return fmt.Sprintf("52:%02x:%02x:%02x:%02x:%02x", sum[0], sum[1], sum[2], sum[3], sum[4])
}

// Names of an instance's volumes begin with its id.
const volumePrefix = "outrigger-"

func volumesOf(id string) string { return volumePrefix + id + "-" }

func isOwnVolume(name string) bool { return strings.HasPrefix(name, volumePrefix) }

const (
	rootVolume    = "root.qcow2"
	consoleVolume = "console.log"
)

// seedVolume returns a name with a hash of the content: two processes that make the
// same instance with different user-data do not write into each other's volume.
func seedVolume(userData string) string {
	sum := sha256.Sum256([]byte(userData))
	return "seed-" + hex.EncodeToString(sum[:6]) + ".iso"
}

// Our element in a domain's metadata.
const (
	metadataURI    = "https://github.com/outrigger/outrigger/libvirt/1"
	metadataPrefix = "outrigger"
)

// Phases of an instance.
const (
	phaseMaking = "making"
	phaseReady  = "ready"
)

// record is what an instance's domain remembers.
type record struct {
	Key     string            `json:"key"`
	Name    string            `json:"name"`
	Pod     string            `json:"pod,omitempty"`
	Tags    map[string]string `json:"tags,omitempty"`
	Created time.Time         `json:"created"`
	Phase   string            `json:"phase"`
	// Seed is the volume with the user-data.
	Seed string `json:"seed"`
	// Pool and Networks say where else something of the instance is, also
	// when the configuration has changed since.
	Pool     string       `json:"pool"`
	Networks []string     `json:"networks"`
	Addrs    []netip.Addr `json:"addresses,omitempty"`

	id string
}

// definition returns our element as it is in a domain's XML.
func (r *record) definition() (string, error) {
	name := metadataPrefix + ":instance"
	return r.encode(name+` xmlns:`+metadataPrefix+`="`+metadataURI+`"`, name)
}

// element returns it for an update, to which libvirt adds the namespace.
func (r *record) element() (string, error) { return r.encode("instance", "instance") }

// encode returns the record as XML: JSON in an element.
func (r *record) encode(open, shut string) (string, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	var text strings.Builder
	if err := xml.EscapeText(&text, data); err != nil {
		return "", fmt.Errorf("encode metadata: %w", err)
	}
	return "<" + open + ">" + text.String() + "</" + shut + ">", nil
}

func parseRecord(id, element string) (*record, error) {
	var doc struct {
		Text string `xml:",chardata"`
	}
	if err := xml.Unmarshal([]byte(element), &doc); err != nil {
		return nil, fmt.Errorf("metadata of domain %s: %w", id, err)
	}
	r := &record{id: id}
	if err := json.Unmarshal([]byte(doc.Text), r); err != nil {
		return nil, fmt.Errorf("metadata of domain %s: %w", id, err)
	}
	return r, nil
}

// errForeign is about a domain with an instance's UUID and without our
// metadata.
var errForeign = fmt.Errorf("%w: the domain is somebody else's: it lacks our metadata", provider.ErrPermissionDenied)

// load returns nil when there is no such domain, and an error when the domain
// is somebody else's.
func (p *Provider) load(ctx context.Context, id string) (*record, error) {
	element, err := p.hv.metadata(ctx, id)
	switch {
	case isCode(err, lv.ErrNoDomain):
		return nil, nil
	case isCode(err, lv.ErrNoDomainMetadata):
		return nil, fmt.Errorf("domain %s: %w", id, errForeign)
	case err != nil:
		return nil, err
	}
	return parseRecord(id, element)
}

// instance converts a record to the contract's type.
func (p *Provider) instance(ctx context.Context, r *record) (*provider.Instance, error) {
	state, err := p.hv.state(ctx, r.id)
	if err != nil {
		return nil, err
	}
	answer := r.answer()
	answer.State = stateOf(state, r.Phase)
	return answer, nil
}

func (r *record) answer() *provider.Instance {
	return &provider.Instance{ID: r.id, Name: r.Name, IPs: r.Addrs, Key: r.Key, Tags: r.Tags, Created: r.Created}
}

// stateOf calls a paused domain stopped: nobody reaches it.
func stateOf(state lv.DomainState, phase string) provider.InstanceState {
	switch {
	case state == lv.DomainRunning, state == lv.DomainBlocked:
		return provider.StateRunning
	case state == lv.DomainShutdown:
		return provider.StateRunning // it is about to end, and still answers
	case phase == phaseMaking:
		return provider.StatePending
	}
	return provider.StateStopped
}
