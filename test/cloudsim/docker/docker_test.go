// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/test/cloudsim"
)

func TestMain(m *testing.M) { cloudsim.Main(m) }

// ask returns the status of a request.
func (e *Engine) ask(t *testing.T, verb, path, body string) int {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", strings.TrimPrefix(e.Host, "unix://"))
	}}}
	r, err := http.NewRequestWithContext(t.Context(), verb, "http://engine"+path, bytes.NewReader([]byte(body)))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// TestRefuses: what the definition does not allow is refused and told.
func TestRefuses(t *testing.T) {
	for name, row := range map[string]struct {
		verb, path, body string
		status           int
	}{
		"parameter unknown":  {"GET", "/v1.41/containers/json?everything=1", "", 400},
		"parameter wrong":    {"GET", "/v1.41/containers/json?all=perhaps", "", 400},
		"parameter twice":    {"GET", "/v1.41/containers/json?all=1&all=0", "", 400},
		"parameter absent":   {"PUT", "/v1.41/containers/x/archive", "", 400},
		"name":               {"POST", "/v1.41/containers/create?name=-x", `{"Image":"` + Image + `"}`, 400},
		"member unknown":     {"POST", "/v1.41/containers/create?name=xx", `{"Image":"` + Image + `","Colour":"red"}`, 400},
		"member deeper":      {"POST", "/v1.41/containers/create?name=xx", `{"Image":"` + Image + `","HostConfig":{"Colour":"red"}}`, 400},
		"type":               {"POST", "/v1.41/containers/create?name=xx", `{"Image":"` + Image + `","Tty":"yes"}`, 400},
		"type of a member":   {"POST", "/v1.41/containers/create?name=xx", `{"Image":"` + Image + `","Labels":{"a":1}}`, 400},
		"one of":             {"POST", "/v1.41/containers/create?name=xx", `{"Image":"` + Image + `","HostConfig":{"CgroupnsMode":"mine"}}`, 400},
		"call of nobody":     {"GET", "/v1.41/containers", "", 404},
		"member of tomorrow": {"POST", "/v1.41/containers/create?name=xx", `{"Image":"` + Image + `","HostConfig":{"Annotations":{"a":"b"}}}`, 400},
	} {
		t.Run(name, func(t *testing.T) {
			e := Start(t, "1.41")
			if status := e.ask(t, row.verb, row.path, row.body); status != row.status {
				t.Errorf("status %d, want %d", status, row.status)
			}
			if len(e.Wrong()) != 1 {
				t.Errorf("told: %q", e.Wrong())
			}
			e.wrong = nil
		})
	}
}

// TestStates: the engine's own rules, which clients may run into.
func TestStates(t *testing.T) {
	e := Start(t, "1.41")
	for i, step := range []struct {
		verb, path, body string
		status           int
	}{
		{"GET", "/v1.56/info", "", 400}, // a newer client
		{"GET", "/info", "", 200},
		{"POST", "/containers/create?name=xx", `{"Image":"absent"}`, 404},
		{"POST", "/containers/create?name=xx", `{"Image":"` + Image + `","HostConfig":{"NanoCpus":9000000000}}`, 400},
		{"POST", "/containers/create?name=xx", `{"Image":"` + Image + `"}`, 201},
		{"POST", "/containers/create?name=xx", `{"Image":"` + Image + `"}`, 409},
		{"POST", "/containers/xx/start", "", 204},
		{"POST", "/containers/xx/start", "", 304},
		{"DELETE", "/containers/xx", "", 409},
		{"DELETE", "/containers/xx?force=1", "", 204},
		{"DELETE", "/containers/xx?force=1", "", 404},
	} {
		if status := e.ask(t, step.verb, step.path, step.body); status != step.status {
			t.Errorf("step %d, %s %s: status %d, want %d", i, step.verb, step.path, status, step.status)
		}
	}
	left := e.World.Own()
	if len(left) != 1 || left[0].Kind != cloudsim.KindDisk {
		t.Errorf("left: %v, want the volume that nobody removed", left)
	}
}
