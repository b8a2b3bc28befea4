// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

const good = `{"name":"a","machineType":"zones/us-central1-a/machineTypes/e2-medium",
 "disks":[{"boot":true,"autoDelete":true,"initializeParams":{"diskSizeGb":"10","sourceImage":"global/images/podvm","diskType":"zones/us-central1-a/diskTypes/pd-standard"}}],
 "networkInterfaces":[{"network":"global/networks/outside"}],"scheduling":{"automaticRestart":false}}`

const instances = "projects/test-project/zones/us-central1-a/instances"

// send sends a request with a token and returns status and reason.
func (s *Sim) send(t *testing.T, verb, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, s.Server.URL+apiPrefix+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+s.grant(Email))
	reply, err := s.Server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	text, _ := io.ReadAll(reply.Body)
	var answer struct {
		Error struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	json.Unmarshal(text, &answer)
	if len(answer.Error.Errors) > 0 {
		return reply.StatusCode, answer.Error.Errors[0].Reason + ": " + answer.Error.Message
	}
	return reply.StatusCode, string(text)
}

// TestWhatTheDefinitionForbids: the simulator refuses what Google's own
// definition has not got.
func TestWhatTheDefinitionForbids(t *testing.T) {
	s := New(t, cloudsim.NewWorld())
	for name, tc := range map[string]struct {
		verb, path, body string
		status           int
		word             string
	}{
		"good":           {"POST", instances, good, 200, "operation"},
		"unknown field":  {"POST", instances, strings.Replace(good, `"name"`, `"labelz":{},"name"`, 1), 400, "labelz"},
		"wrong type":     {"POST", instances, strings.Replace(good, `false`, `"no"`, 1), 400, "automaticRestart"},
		"enumeration":    {"POST", instances, strings.Replace(good, `"network":`, `"stackType":"IPV4_Only","network":`, 1), 400, "stackType"},
		"pattern":        {"POST", instances, strings.Replace(good, `"a"`, `"A"`, 1), 400, "name"},
		"number as text": {"POST", instances, strings.Replace(good, `"10"`, `"ten"`, 1), 400, "diskSizeGb"},
		"output only":    {"POST", instances, strings.Replace(good, `"name"`, `"status":"RUNNING","name"`, 1), 400, "output only"},
		"no name":        {"POST", instances, strings.Replace(good, `"name":"a",`, ``, 1), 400, "name"},
		"zero request":   {"POST", instances + "?requestId=00000000-0000-0000-0000-000000000000", good, 400, "UUID"},
		"parameter":      {"GET", instances + "?pagesize=3", "", 400, "pagesize"},
		"parameter type": {"GET", "projects/test-project/aggregated/instances?maxResults=many", "", 400, "maxResults"},
		"selection":      {"GET", "projects/test-project/aggregated/instances?fields=items/*/instances(nam)", "", 400, "nam"},
		"path":           {"GET", "projects/test-project/zones/us-central1-a/machines", "", 404, "no GET"},
		"path value":     {"GET", instances + "/UPPER", "", 400, "UPPER"},
		"not simulated":  {"GET", "projects/test-project/global/firewalls", "", 501, "firewalls"},
		"filter":         {"GET", "projects/test-project/aggregated/instances?filter=" + url.QueryEscape(`(labels.a = "b") (name eq x)`), "", 400, "mixed"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := s.send(t, tc.verb, tc.path, tc.body)
			if status != tc.status || !strings.Contains(text, tc.word) {
				t.Errorf("%d %s, want %d and %q", status, text, tc.status, tc.word)
			}
		})
	}
}

// TestRequestIDs: the same request id is the same operation, and the name is
// taken for another.
func TestRequestIDs(t *testing.T) {
	s := New(t, cloudsim.NewWorld())
	const id = "?requestId=6ba7b810-9dad-11d1-80b4-00c04fd430c8&fields=name"
	_, first := s.send(t, "POST", instances+id, good)
	_, again := s.send(t, "POST", instances+id, good)
	if first != again || !strings.Contains(first, "operation-") {
		t.Errorf("%s, then %s", first, again)
	}
	if status, text := s.send(t, "POST", instances, good); status != http.StatusConflict || !strings.HasPrefix(text, "alreadyExists") {
		t.Errorf("%d %s", status, text)
	}
}

func TestNobodyWithoutAToken(t *testing.T) {
	s := New(t, cloudsim.NewWorld())
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.Server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}}}
	defer client.CloseIdleConnections()
	for _, token := range []string{"", "Bearer ", "Bearer ya29.guess"} {
		r, _ := http.NewRequestWithContext(t.Context(), "GET", s.Server.URL+apiPrefix+instances, nil)
		r.Header.Set("Authorization", token)
		reply, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != http.StatusUnauthorized {
			t.Errorf("token %q: %d", token, reply.StatusCode)
		}
	}
}

func TestFilters(t *testing.T) {
	vm := map[string]any{"name": "a", "status": "DONE", "labels": map[string]any{"x-y": "1"}}
	for text, want := range map[string]bool{
		"": true, `(labels.x-y = "1")`: true, `(labels.x-y = "2")`: false, `(labels.none = "1")`: false, `(labels.x-y = "1") (name = b)`: false,
		`(name eq "a|b") (status ne "DONE")`: false, `(name eq ".*")`: true, `(labels.x-y : *)`: true,
	} {
		conditions, err := parseFilter(text)
		if err != nil || all(conditions, vm) != want {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	for _, text := range []string{"name", "name = a", `(name ~ "a")`, `(a eq "[")`, `(x = ")`} {
		if _, err := parseFilter(text); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}
