// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// Project, Network, Subnetwork and Image exist from the start.
const (
	Project    = "test-project"
	Region     = "us-central1"
	Network    = "pods"
	Subnetwork = "pods-us"
	// OtherNetwork has subnetworks of its own.
	OtherNetwork = "outside"
	Image        = "podvm"
	// BigImage has no features and is bigger than ten gigabytes.
	BigImage = "podvm-big"
)

// Zones are those of the region.
var Zones = []string{"us-central1-a", "us-central1-b", "us-central1-c"}

// Sim is one simulated cloud.
type Sim struct {
	World  *cloudsim.World
	Server *cloudsim.Server

	// Step is how long each step of an operation takes.
	Step time.Duration
	// MaxPage is the longest page of a list.
	MaxPage int
	// TokenLife is how long tokens last.
	TokenLife time.Duration
	// TagsOf reads the owner tags of a resource, for the ledger; by default
	// they are the labels.
	TagsOf func(resource map[string]any) map[string]string
	// ClockOff is how far the cloud's clock is from this machine's.
	ClockOff time.Duration

	definition *definition

	mu          sync.Mutex
	closed      bool
	serial      uint64
	tokens      map[string]bearer
	lacking     map[string]bool // permissions that nobody has
	used        map[string]bool // permissions that calls have needed
	unreachable map[string]bool
	instances   map[string]map[string]any // by zone/name
	disks       map[string]map[string]any
	snapshots   map[string]map[string]any // by name
	contents    map[string][]byte         // of disks and snapshots, by their numbers
	imported    map[string]map[string]any // images, by name
	operations  map[string]*operation     // by zone/name
	requests    map[string]*operation     // by zone and request id
	inserts     map[string]*operation     // by the instance's number
	quotas      map[string]float64        // what is left, by metric
	addresses   uint32
}

// New starts a cloud that ends with the test.
func New(t testing.TB, world *cloudsim.World) *Sim {
	t.Helper()
	s := &Sim{
		World: world, Step: 2 * time.Millisecond, MaxPage: 500, TokenLife: time.Hour, definition: load(t),
		tokens: map[string]bearer{}, lacking: map[string]bool{}, used: map[string]bool{}, unreachable: map[string]bool{},
		instances: map[string]map[string]any{}, disks: map[string]map[string]any{}, snapshots: map[string]map[string]any{}, contents: map[string][]byte{}, imported: map[string]map[string]any{}, operations: map[string]*operation{},
		requests: map[string]*operation{}, inserts: map[string]*operation{}, quotas: map[string]float64{}, serial: 1_000_000,
	}
	s.TagsOf = labels
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

func labels(resource map[string]any) map[string]string {
	tags := map[string]string{}
	for key, value := range object(resource, "labels") {
		tags[key] = fmt.Sprint(value)
	}
	return tags
}

// Deny takes permissions away from everybody.
func (s *Sim) Deny(permissions ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range permissions {
		s.lacking[name] = true
	}
}

// Used returns the permissions that the calls so far have needed.
func (s *Sim) Used() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.used))
}

// SetQuota says how many more of a metric may be used.
func (s *Sim) SetQuota(metric string, left float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.quotas[metric] = left
}

// SetUnreachable takes a zone out of the lists of all zones.
func (s *Sim) SetUnreachable(zone string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unreachable[zone] = true
}

func (s *Sim) now() time.Time { return time.Now().Add(s.ClockOff) }

func (s *Sim) stamp() string { return s.now().UTC().Format("2006-01-02T15:04:05.000Z07:00") }

const (
	apiPrefix      = "/compute/v1/"
	olderTokenPath = "/o/oauth2/token"
)

// action names a request for the script and the log.
func (s *Sim) action(r *http.Request) string {
	path := r.URL.Path
	switch {
	case path == "/token", path == olderTokenPath:
		return "oauth2.token"
	case path == "/v1/token":
		return "sts.token"
	case strings.HasSuffix(path, ":generateAccessToken"):
		return "iamcredentials.projects.serviceAccounts.generateAccessToken"
	case strings.HasSuffix(path, ":testIamPermissions"):
		return "cloudresourcemanager.projects.testIamPermissions"
	}
	if m, _ := s.definition.find(r.Method, strings.TrimPrefix(path, apiPrefix)); m != nil {
		return m.ID
	}
	return ""
}

// strike returns a fault as the cloud would.
func (s *Sim) strike(w http.ResponseWriter, r *http.Request, f cloudsim.Fault) {
	if r.URL.Path == "/token" || r.URL.Path == "/v1/token" {
		oauthError(w, f.Code, f.Message)
		return
	}
	s.refuse(w, f.Status, f.Code, f.Message)
}

// refuse returns a error in the form of Google's APIs.
func (s *Sim) refuse(w http.ResponseWriter, status int, reason, message string) {
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	w.WriteHeader(status)
	fmt.Fprint(w, toJSON(map[string]any{"error": map[string]any{
		"code": status, "message": message,
		"errors": []any{map[string]any{"message": message, "domain": "global", "reason": reason}},
	}}))
}

// refusal is an error with its place in Google's forms.
type refusal struct {
	status          int
	reason, message string
}

func (r *refusal) Error() string { return r.message }

func refuse(status int, reason, format string, args ...any) *refusal {
	return &refusal{status, reason, fmt.Sprintf(format, args...)}
}

func invalid(field, value, why string) *refusal {
	return refuse(http.StatusBadRequest, "invalid", "Invalid value for field '%s': '%s'. %s", field, value, why)
}

func notFound(path string) *refusal {
	return refuse(http.StatusNotFound, "notFound", "The resource '%s' was not found", path)
}

func (s *Sim) serve(w http.ResponseWriter, r *http.Request) {
	if s.ClockOff != 0 {
		w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	}
	path := r.URL.Path
	switch {
	case (path == "/token" || path == olderTokenPath) && r.Method == http.MethodPost:
		s.serveToken(w, r)
	case path == "/v1/token" && r.Method == http.MethodPost:
		s.serveExchange(w, r)
	case strings.HasSuffix(path, ":generateAccessToken") && r.Method == http.MethodPost:
		s.serveImpersonation(w, r)
	case path == "/v1/projects/"+Project+":testIamPermissions" && r.Method == http.MethodPost:
		s.servePermissions(w, r)
	case strings.HasPrefix(path, apiPrefix):
		s.serveCompute(w, r)
	default:
		http.NotFound(w, r)
	}
}

// call is a request that the definition knows.
type call struct {
	method *method
	path   map[string]string
	query  url.Values
	body   map[string]any
	r      *http.Request
}

func (c *call) place() string { return c.path["zone"] + "/" + c.path["instance"] }

func (s *Sim) serveCompute(w http.ResponseWriter, r *http.Request) {
	if _, ok := s.principal(r); !ok {
		s.refuse(w, http.StatusUnauthorized, "authError", "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid authentication credential.")
		return
	}
	answer, err := s.compute(r)
	if refused := (*refusal)(nil); errors.As(err, &refused) && refused != nil {
		s.refuse(w, refused.status, refused.reason, refused.message)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	json.NewEncoder(w).Encode(answer)
}

// compute checks a call against the definition, then carries it out.
func (s *Sim) compute(r *http.Request) (any, error) {
	c := &call{query: r.URL.Query(), r: r}
	c.method, c.path = s.definition.find(r.Method, strings.TrimPrefix(r.URL.Path, apiPrefix))
	if c.method == nil {
		return nil, refuse(http.StatusNotFound, "notFound", "the API has no %s %s", r.Method, r.URL.Path)
	}
	if err := s.definition.checkParameters(c.method, c.path, c.query); err != nil {
		return nil, refuse(http.StatusBadRequest, "invalid", "%v", err)
	}
	selected, err := s.definition.parseMask(c.query.Get("fields"), c.method.Response)
	if c.query.Has("fields") && err != nil {
		return nil, refuse(http.StatusBadRequest, "invalidParameter", "%v", err)
	}
	if err := s.readBody(c); err != nil {
		return nil, err
	}
	do := handlers[c.method.ID]
	if do == nil {
		return nil, refuse(http.StatusNotImplemented, "notImplemented", "the simulator has no %s", c.method.ID)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.path["project"] != Project {
		return nil, notFound("projects/" + c.path["project"])
	}
	if zone := c.path["zone"]; zone != "" && !slices.Contains(Zones, zone) {
		return nil, invalid("zone", zone, "Unknown zone.")
	}
	if err := s.allowed(c); err != nil {
		return nil, err
	}
	answer, err := do(s, c)
	if err != nil {
		return nil, err
	}
	// Copied under the lock: what the cloud does goes on.
	if c.query.Has("fields") {
		return selected.apply(normal(answer)), nil
	}
	return normal(answer), nil
}

// normal is a value as JSON reads it.
func normal(v any) any {
	var out any
	if err := json.Unmarshal([]byte(toJSON(v)), &out); err != nil {
		panic(err)
	}
	return out
}

func (s *Sim) readBody(c *call) error {
	if c.method.Request == nil {
		return nil
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, c.r.Body, 4<<20)).Decode(&c.body); err != nil {
		return refuse(http.StatusBadRequest, "parseError", "Parse Error: %v", err)
	}
	if err := s.definition.checkBody(c.method.Request, c.body, "resource", c.method.ID); err != nil {
		return refuse(http.StatusBadRequest, "invalid", "%v", err)
	}
	return nil
}

// number returns a new number, as ids of resources are.
func (s *Sim) number() uint64 {
	s.serial++
	return s.serial
}

// object, list and text read fields of decoded JSON that may be missing.
func object(o map[string]any, name string) map[string]any {
	inner, _ := o[name].(map[string]any)
	return inner
}

func objects(o map[string]any, name string) []map[string]any {
	items, _ := o[name].([]any)
	var out []map[string]any
	for _, item := range items {
		if inner, ok := item.(map[string]any); ok {
			out = append(out, inner)
		}
	}
	return out
}

func text(o map[string]any, name string) string {
	value, _ := o[name].(string)
	return value
}

func (*Sim) link(format string, args ...any) string { return link(format, args...) }

func link(format string, args ...any) string {
	return "https://www.googleapis.com" + apiPrefix + "projects/" + Project + "/" + fmt.Sprintf(format, args...)
}

func last(link string) string { return link[strings.LastIndexByte(link, '/')+1:] }
