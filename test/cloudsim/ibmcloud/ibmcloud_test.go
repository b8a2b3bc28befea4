// SPDX-License-Identifier: Apache-2.0

package ibmcloud

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

const good = `{"name":"a-1","image":{"id":"r006-image-amd64"},"zone":{"name":"us-south-1"},"profile":{"name":"bx2-2x8"},"vpc":{"id":"r006-vpc-1"},
 "boot_volume_attachment":{"delete_volume_on_instance_delete":true,"volume":{"profile":{"name":"general-purpose"},"user_tags":["a:b"]}},
 "primary_network_interface":{"subnet":{"id":"0717-subnet-1"}}}`

const disk = `{"name":"d-1","zone":{"name":"us-south-1"},"profile":{"name":"general-purpose"},"capacity":10}`

const common = "?version=2026-04-07&generation=2"

// send sends a request with a good token and returns status and text.
func (s *Sim) send(t *testing.T, verb, path, body string) (int, string) {
	t.Helper()
	token := s.jwt(time.Now())
	s.mu.Lock()
	s.tokens[token] = time.Now().Add(time.Hour)
	s.mu.Unlock()
	r, err := http.NewRequestWithContext(t.Context(), verb, s.Server.URL+"/v1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	reply, err := s.Server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	return reply.StatusCode, string(text)
}

// TestWhatTheSDKForbids: the simulator refuses what IBM's own types have not
// got.
func TestWhatTheSDKForbids(t *testing.T) {
	s := New(t, cloudsim.NewWorld())
	for name, tc := range map[string]struct {
		verb, path, body string
		status           int
		word             string
	}{
		"good":          {"POST", "/instances" + common, good, 201, `"pending"`},
		"no version":    {"POST", "/instances?generation=2", good, 400, "version"},
		"no generation": {"GET", "/instances?version=2026-04-07", "", 400, "generation"},
		"parameter":     {"GET", "/instances" + common + "&tag=x", "", 400, "tag"},
		"unknown field": {"POST", "/instances" + common, strings.Replace(good, `"name":"a-1"`, `"name":"b","labels":{}`, 1), 400, "labels"},
		"deep field":    {"POST", "/instances" + common, strings.Replace(good, `"user_tags"`, `"tags":[],"user_tags"`, 1), 400, "tags"},
		"wrong type":    {"POST", "/instances" + common, strings.Replace(good, `true`, `"yes"`, 1), 400, "delete_volume"},
		"no image":      {"POST", "/instances" + common, strings.Replace(good, `"image":{"id":"r006-image-amd64"},`, ``, 1), 400, "mage"},
		"name":          {"POST", "/instances" + common, strings.Replace(good, `"a-1"`, `"A_1"`, 1), 400, "name"},
		"user tag":      {"POST", "/instances" + common, strings.Replace(strings.Replace(good, `"a-1"`, `"c"`, 1), `"a:b"`, `"a/b"`, 1), 400, "user tag"},
		"volume":        {"POST", "/volumes" + common, disk, 201, `"pending"`},
		"disk's field":  {"POST", "/volumes" + common, strings.Replace(disk, `"capacity"`, `"size":1,"capacity"`, 1), 400, "size"},
		"disk's size":   {"POST", "/volumes" + common, strings.Replace(disk, `10}`, `9}`, 1), 400, "volume_capacity_max"},
		"disk's kind":   {"POST", "/volumes" + common, strings.Replace(disk, `general-purpose`, `gold`, 1), 400, "profile"},
		"disk's zone":   {"POST", "/volumes" + common, strings.Replace(disk, `us-south-1`, `us-east-1`, 1), 404, "Zone"},
		"no source":     {"POST", "/snapshots" + common, `{"name":"s","source_volume":{"id":"r006-none"}}`, 404, "Volume"},
		"snapshot":      {"POST", "/snapshots" + common, `{"name":"s"}`, 400, "ource"},
		"attachment":    {"GET", "/instances/0717_absent/volume_attachments/a" + common, "", 404, "Instance"},
		"path":          {"GET", "/machines" + common, "", 404, "no GET"},
		"absent":        {"GET", "/instances/0717_absent" + common, "", 404, "not_found"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := s.send(t, tc.verb, tc.path, tc.body)
			if status != tc.status || !strings.Contains(text, tc.word) {
				t.Errorf("%d %s, want %d and %q", status, text, tc.status, tc.word)
			}
			if status >= 300 && !json.Valid([]byte(text)) {
				t.Errorf("%q is not JSON", text)
			}
		})
	}
	if status, text := s.send(t, "POST", "/instances"+common, good); status != 409 || !strings.Contains(text, "not unique") {
		t.Errorf("a second instance of one name: %d %s", status, text)
	}
}

func TestNobodyWithoutAToken(t *testing.T) {
	s := New(t, cloudsim.NewWorld())
	for _, token := range []string{"", "Bearer guess"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", s.Server.URL+"/v1/instances"+common, nil)
		r.Header.Set("Authorization", token)
		reply, err := s.Server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != http.StatusUnauthorized {
			t.Errorf("token %q: %d", token, reply.StatusCode)
		}
	}
}
