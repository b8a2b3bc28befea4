// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// What exists from the start.
const (
	Region = "us-south"
	VPC    = "r006-vpc-1"
	// ResourceGroup is that of the subnets.
	ResourceGroup = "group"
	Image         = "r006-image-amd64"
	S390X         = "r006-image-s390x"
	Key           = "r006-key-1"
	Group         = "r006-group-1"
	Cluster       = "cluster1" // its security group is kube-cluster1
)

// Zones are those of the region; Subnets and Tunnels have one in each.
var (
	Zones   = []string{"us-south-1", "us-south-2", "us-south-3"}
	Subnets = []string{"0717-subnet-1", "0727-subnet-2", "0737-subnet-3"}
	Tunnels = []string{"0717-tunnel-1", "0727-tunnel-2", "0737-tunnel-3"}
	Hosts   = []string{"0717-host-1", "0727-host-2", "0737-host-3"}
)

// Sim is one simulated cloud.
type Sim struct {
	World  *cloudsim.World
	Server *cloudsim.Server

	// Step is how long each step of what the cloud does takes.
	Step time.Duration
	// MaxPage is the longest page of a list.
	MaxPage int
	// TokenLife is how long tokens last.
	TokenLife time.Duration
	// TagsOf reads the owner tags of user tags, for the ledger.
	TagsOf func(userTags []string) map[string]string

	mu        sync.Mutex
	closed    bool
	serial    int
	addresses uint32
	tokens    map[string]time.Time
	lacking   map[string]bool // actions that nobody may do
	used      map[string]bool
	quota     int // instances; below 0 means no limit
	instances map[string]*vm
	volumes   map[string]*volume
	snapshots map[string]*snapshot
	imported  map[string]*image
	// holdRestores is HoldRestores.
	holdRestores bool
}

// New starts a cloud that ends with the test.
func New(t testing.TB, world *cloudsim.World) *Sim {
	t.Helper()
	s := &Sim{
		World: world, Step: 2 * time.Millisecond, MaxPage: 100, TokenLife: time.Hour, quota: -1,
		tokens: map[string]time.Time{}, lacking: map[string]bool{}, used: map[string]bool{},
		instances: map[string]*vm{}, volumes: map[string]*volume{}, snapshots: map[string]*snapshot{}, imported: map[string]*image{},
	}
	s.TagsOf = func(list []string) map[string]string {
		tags := map[string]string{}
		for _, tag := range list {
			key, value, _ := strings.Cut(tag, ":")
			tags[key] = value
		}
		return tags
	}
	t.Cleanup(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed = true
	})
	guarded, open := cloudsim.Guard(world.Handler(http.HandlerFunc(s.serve), s.action, s.strike))
	s.Server = cloudsim.Serve(t, guarded)
	open()
	return s
}

// Deny takes actions away from everybody.
func (s *Sim) Deny(actions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range actions {
		s.lacking[name] = true
	}
}

// Used returns the actions that the calls so far have needed.
func (s *Sim) Used() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.used))
}

// SetQuota says how many instances there may be.
func (s *Sim) SetQuota(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quota = n
}

// action names a request for the script and the log: the operation's name in
// the SDK.
func (s *Sim) action(r *http.Request) string {
	if r.URL.Path == "/identity/token" {
		return "iam.token"
	}
	if o, _ := find(r.Method, r.URL.Path); o != nil {
		return o.name
	}
	return ""
}

func (s *Sim) strike(w http.ResponseWriter, r *http.Request, f cloudsim.Fault) {
	if r.URL.Path == "/identity/token" {
		iamError(w, f.Status, f.Code, f.Message)
		return
	}
	write(w, &refusal{f.Status, f.Code, f.Message})
}

// refusal is an error in the form of the VPC API.
type refusal struct {
	status        int
	code, message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, code, format string, args ...any) *refusal {
	return &refusal{status, code, fmt.Sprintf(format, args...)}
}

func notFound(kind, id string) *refusal {
	return refuse(http.StatusNotFound, "not_found", "%s with ID %s not found", kind, id)
}

func write(w http.ResponseWriter, r *refusal) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	fmt.Fprint(w, toJSON(map[string]any{
		"errors": []any{map[string]any{"code": r.code, "message": r.message, "more_info": "https://cloud.ibm.com/docs/vpc?topic=vpc-error-codes"}},
		"trace":  "7af40f3e-1c4d-4f3d-9f30-1d2a3b4c5d6e",
	}))
}

func toJSON(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// call is a request that has an operation.
type call struct {
	*operation
	id    string // in the path
	inner string // the second there
	query url.Values
	r     *http.Request
}

var version = regexp.MustCompile(`^20\d\d-\d\d-\d\d$`)

func (s *Sim) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/identity/token" {
		s.serveToken(w, r)
		return
	}
	status, answer, err := s.carryOut(r)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		write(w, refused)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(answer)
}

// carryOut checks a call, then does it. The answer is written under the lock,
// since what the cloud does goes on.
func (s *Sim) carryOut(r *http.Request) (int, []byte, error) {
	if !s.known(r) {
		return 0, nil, refuse(http.StatusUnauthorized, "not_authenticated", "The request failed because the caller is not authenticated")
	}
	o, ids := find(r.Method, r.URL.Path)
	if o == nil {
		return 0, nil, refuse(http.StatusNotFound, "not_found", "the API, or the simulator, has no %s %s", r.Method, r.URL.Path)
	}
	ids = append(ids, "", "")
	c := &call{o, ids[0], ids[1], r.URL.Query(), r}
	if err := c.checkQuery(); err != nil {
		return 0, nil, refuse(http.StatusBadRequest, "bad_field", "%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	answer, err := o.do(s, c)
	if err != nil {
		return 0, nil, err
	}
	if answer == nil {
		return o.status, nil, nil
	}
	return o.status, []byte(toJSON(answer)), nil
}

// checkQuery compares the parameters with the options of the SDK's operation.
func (c *call) checkQuery() error {
	if v := c.query.Get("version"); !version.MatchString(v) {
		return fmt.Errorf("version %q is missing or no date", v)
	}
	if g := c.query.Get("generation"); g != "2" {
		return fmt.Errorf("generation is %q and must be 2", g)
	}
	for name, values := range c.query {
		if name != "version" && name != "generation" && !hasTag(c.options, name) {
			return fmt.Errorf("%s has no parameter %q", c.name, name)
		}
		if len(values) != 1 {
			return fmt.Errorf("%q is there %d times", name, len(values))
		}
	}
	return nil
}

func hasTag(options reflect.Type, name string) bool {
	for i := range options.NumField() {
		tag, _, _ := strings.Cut(options.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return true
		}
	}
	return false
}

// need notes the actions that a call needs and refuses it without them (page
// "Required permissions for VPC resources").
func (s *Sim) need(actions ...string) error {
	for _, name := range actions {
		s.used[name] = true
		if s.lacking[name] {
			return refuse(http.StatusForbidden, "not_authorized", "the request is not authorized: action %s", name)
		}
	}
	return nil
}

// later does one thing after the other, a step apart, unless the cloud has
// ended.
func (s *Sim) later(things ...func()) {
	if len(things) == 0 {
		return
	}
	time.AfterFunc(s.Step, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed {
			things[0]()
			s.later(things[1:]...)
		}
	})
}

func (s *Sim) number() int {
	s.serial++
	return s.serial
}

func (s *Sim) address() string {
	s.addresses++
	return netip.AddrFrom4([4]byte{10, byte(s.addresses >> 16), byte(s.addresses >> 8), byte(s.addresses)}).String()
}

// page is a part of a list; items have an order by id.
func (s *Sim) page(c *call, name string, ids []string, show func(string) any) any {
	slices.Sort(ids)
	if start := c.query.Get("start"); start != "" {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id <= start })
	}
	size := s.MaxPage
	if limit := c.query.Get("limit"); limit != "" {
		var n int
		fmt.Sscan(limit, &n)
		size = min(size, max(n, 1))
	}
	answer := map[string]any{"limit": size, "first": map[string]any{"href": s.Server.URL + c.r.URL.Path}, "total_count": len(ids)}
	if len(ids) > size {
		ids = ids[:size]
		answer["next"] = map[string]any{"href": s.Server.URL + c.r.URL.Path + "?start=" + url.QueryEscape(ids[size-1])}
	}
	items := []any{}
	for _, id := range ids {
		items = append(items, show(id))
	}
	answer[name] = items
	return answer
}
