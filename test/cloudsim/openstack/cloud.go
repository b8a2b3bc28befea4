// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// What the cloud has from the beginning.
const (
	User, Password, Domain   = "outrigger", "right-password", "Default"
	Project, ProjectID       = "pods", "0123456789abcdef0123456789abcdef"
	AppCredID, AppCredSecret = "6cb5fa6a13184e6fab65ba2108adf50c", "right-secret"
	Region                   = "RegionOne"
	Image                    = "11111111-0000-4000-8000-000000000001"
	QueuedImage              = "11111111-0000-4000-8000-000000000002"
	Network, Subnet          = "22222222-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000011"
	OtherSubnet              = "22222222-0000-4000-8000-000000000012"
	ExternalNetwork          = "22222222-0000-4000-8000-000000000002"
	Group                    = "33333333-0000-4000-8000-000000000001"
	KeyName                  = "key"
	VolumeType               = "ssd"
	ZoneA, ZoneB             = "nova-a", "nova-b"
	ZoneOfCinder             = "cinder-c"           // Nova has none of that name: all servers can have its volumes
	step                     = 2 * time.Millisecond // of a server, from task to task
)

type flavor struct {
	ID, Name         string
	VCPUs, RAM, Disk int
}

// Flavors of the cloud.
var flavors = []flavor{{"1", "m1.small", 1, 2048, 20}, {"2", "m1.medium", 2, 4096, 40}, {"3", "m1.large", 4, 8192, 80}, {"4", "m1.xlarge", 8, 16384, 160}}

// Cloud is one OpenStack.
type Cloud struct {
	World  *cloudsim.World
	Server *cloudsim.Server
	// URL is Keystone's, CAFile what signed the certificate.
	URL, CAFile string
	// PageSize is how long the pages of lists are at most: 3, to be met by
	// tests; clouds have 1000.
	PageSize int
	// NewestMinor is the newest microversion of the Compute API: 2.93.
	NewestMinor int

	mux     *http.ServeMux
	actions map[string]string // by pattern

	mu       sync.Mutex
	tokens   map[string]time.Time // until when
	servers  []*server
	volumes  []*volume
	ports    []*port
	floating []*floatingIP
	images   []*image
	next     uint32
	denied   []string
	wrong    []string
}

// Start serves a cloud until the test ends.
func Start(t testing.TB) *Cloud {
	c := &Cloud{World: cloudsim.NewWorld(), PageSize: 3, NewestMinor: newestMinor, mux: http.NewServeMux(), actions: map[string]string{}, tokens: map[string]time.Time{}}
	c.identityRoutes()
	c.computeRoutes()
	c.networkRoutes()
	c.imageRoutes()
	c.blockRoutes()
	c.mux.HandleFunc("/", c.unknown)
	guarded, open := cloudsim.Guard(c.World.Handler(c.mux, c.action, c.refuse))
	c.Server = cloudsim.Serve(t, guarded)
	c.URL, c.CAFile = c.Server.URL+"/identity/v3", c.Server.CAFile
	open()
	t.Cleanup(func() {
		if wrong := c.Wrong(); len(wrong) > 0 {
			t.Errorf("the cloud was asked for what it does not have: %v", wrong)
		}
	})
	return c
}

// handle is one call of an API, with a token except for Keystone's own.
func (c *Cloud) handle(pattern, action string, query []string, do func(*call)) {
	c.actions[pattern] = action
	c.mux.HandleFunc(pattern, func(out http.ResponseWriter, r *http.Request) {
		k := &call{cloud: c, out: out, r: r}
		for name := range r.URL.Query() {
			if !slices.Contains(query, name) {
				k.fail(http.StatusBadRequest, "badRequest", "unknown parameter "+name)
				return
			}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if action != actionLogin && !time.Now().Before(c.tokens[r.Header.Get("X-Auth-Token")]) {
			k.fail(http.StatusUnauthorized, "Unauthorized", "The request you have made requires authentication.")
			return
		}
		if strings.HasPrefix(r.URL.Path, v2) {
			var ok bool
			if k.minor, ok = k.microversion(); !ok {
				return
			}
		}
		if slices.Contains(c.denied, action) {
			k.fail(http.StatusForbidden, "forbidden", "Policy doesn't allow "+action+" to be performed.")
			return
		}
		do(k)
	})
}

// action names the call that a request is. The server's actions share a path.
func (c *Cloud) action(r *http.Request) string {
	_, pattern := c.mux.Handler(r)
	return c.actions[pattern]
}

// Deny takes policies from the project.
func (c *Cloud) Deny(policies ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied = policies
}

// ExpireTokens ends all tokens.
func (c *Cloud) ExpireTokens() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.tokens)
}

// Wrong returns requests that no client should make, such as for what is not
// served here.
func (c *Cloud) Wrong() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wrong)
}

// unknown notes what no API has, or not this simulator.
func (c *Cloud) unknown(out http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wrong = append(c.wrong, r.Method+" "+r.URL.Path)
	fail(out, r, http.StatusNotFound, "itemNotFound", "The resource could not be found.")
}

// Leaks returns what the test has left.
func (c *Cloud) Leaks() ([]string, error) {
	var left []string
	for _, r := range c.World.Own() {
		left = append(left, r.String())
	}
	return left, nil
}

// UserData returns what the guest of an instance reads: its server's name ends
// with the beginning of the instance's id.
func (c *Cloud) UserData(id string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.servers {
		if s.Metadata["outrigger-id"] == id {
			return s.userData, nil
		}
	}
	return "", fmt.Errorf("no server of instance %s", id)
}

// LoseServer removes a server behind the provider's back.
func (c *Cloud) LoseServer(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range slices.Clone(c.servers) {
		if s.Metadata["outrigger-id"] == id {
			c.finishDelete(s)
		}
	}
}

// AddForeign makes a server, a port and a floating IP of somebody else's, who
// uses the same software.
func (c *Cloud) AddForeign(tags map[string]string) {
	id := newID()
	c.AddForeignAs(id, "podvm-of-others-"+id[:8], "fe:00:00:00:00:01", tags)
}

// AddForeignAs is AddForeign with an instance id, a name and a MAC address.
func (c *Cloud) AddForeignAs(id, name, mac string, tags map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := &port{ID: newID(), Name: "podvm-" + id, NetworkID: Network, MAC: mac, Description: "somebody's", addr: c.address()}
	s := &server{ID: newID(), Name: name, Metadata: map[string]string{"outrigger-id": id}, port: p, Status: "ACTIVE", created: time.Now()}
	for k, v := range tags {
		s.Metadata[k] = v
	}
	p.DeviceID = s.ID
	f := &floatingIP{ID: newID(), NetworkID: ExternalNetwork, PortID: p.ID, addr: c.address()}
	c.ports, c.servers, c.floating = append(c.ports, p), append(c.servers, s), append(c.floating, f)
	c.World.AddForeign(cloudsim.KindNIC, p.ID, nil)
	c.World.AddForeign(cloudsim.KindInstance, s.ID, tags)
	c.World.AddForeign(cloudsim.KindAddress, f.ID, nil)
}

func newID() string { return uuid.NewString() }

// address returns one that nobody has.
func (c *Cloud) address() netip.Addr {
	c.next++
	return netip.AddrFrom4([4]byte{10, byte(c.next >> 16), byte(c.next >> 8), byte(c.next)})
}

// tagsOf reads owner tags from a description and from tags.
func tagsOf(description string, tags []string) map[string]string {
	read := map[string]string{}
	add := func(prefix, part string) {
		if key, value, ok := strings.Cut(part, "="); ok {
			read[prefix+key] = value
		}
	}
	if text, ok := strings.CutPrefix(description, "outrigger "); ok {
		for _, part := range strings.Fields(text) {
			add("outrigger-", part)
		}
	}
	for _, part := range tags {
		add("", part)
	}
	return read
}
