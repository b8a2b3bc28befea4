// SPDX-License-Identifier: Apache-2.0

package metadata

import (
	"context"
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// fakeWireServer returns as Azure's does, after some failures, and keeps what it is told.
type fakeWireServer struct {
	fail     int
	versions string
	told     string
	reports  int
}

func (f *fakeWireServer) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	if f.fail > 0 {
		f.fail--
		http.Error(out, "busy", http.StatusServiceUnavailable)
		return
	}
	versioned := r.Header.Get("x-ms-version") == "2012-11-30" && r.Header.Get("x-ms-agent-name") != ""
	switch r.Method + " " + r.URL.String() {
	case "GET /?comp=versions":
		io.WriteString(out, `<?xml version="1.0" encoding="utf-8"?><Versions><Preferred><Version>`+f.versions+`</Version></Preferred>`+
			`<Supported><Version>2011-08-31</Version><Version>`+f.versions+`</Version></Supported></Versions>`)
	case "GET /machine/?comp=goalstate":
		want(out, versioned, `<?xml version="1.0" encoding="utf-8"?><GoalState xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><Version>2012-11-30</Version><Incarnation>7</Incarnation>`+
			`<Machine><ExpectedState>Started</ExpectedState></Machine><Container><ContainerId>c-1&amp;2</ContainerId><RoleInstanceList><RoleInstance><InstanceId>i-1._web</InstanceId>`+
			`<State>Started</State></RoleInstance></RoleInstanceList></Container></GoalState>`)
	case "POST /machine?comp=health":
		body, _ := io.ReadAll(r.Body)
		f.told, f.reports = string(body), f.reports+1
		want(out, versioned && strings.HasPrefix(r.Header.Get("Content-Type"), "text/xml"), "")
	default:
		http.NotFound(out, r)
	}
}

// want sends text if a request is as it must be.
func want(out http.ResponseWriter, ok bool, text string) {
	if !ok {
		http.Error(out, "not as documented", http.StatusBadRequest)
		return
	}
	io.WriteString(out, text)
}

// TestAzureIsToldReady: a VM that nobody reports ends as OSProvisioningTimedOut.
func TestAzureIsToldReady(t *testing.T) {
	f := &fakeWireServer{fail: 2, versions: "2012-11-30"}
	server := httptest.NewServer(f)
	defer server.Close()
	if err := reportReady(t.Context(), newClient(), server.URL, time.Microsecond); err != nil {
		t.Fatal(err)
	}
	var told struct {
		XMLName     xml.Name `xml:"Health"`
		Incarnation int      `xml:"GoalStateIncarnation"`
		ContainerID string   `xml:"Container>ContainerId"`
		Roles       []struct {
			InstanceID string `xml:"InstanceId"`
			State      string `xml:"Health>State"`
		} `xml:"Container>RoleInstanceList>Role"`
	}
	if err := xml.Unmarshal([]byte(f.told), &told); err != nil {
		t.Fatalf("%v in %s", err, f.told)
	}
	if f.reports != 1 || told.Incarnation != 7 || told.ContainerID != "c-1&2" || len(told.Roles) != 1 || told.Roles[0].InstanceID != "i-1._web" || told.Roles[0].State != "Ready" {
		t.Errorf("%d reports, the last %s", f.reports, f.told)
	}
}

func TestAzureThatIsNotThere(t *testing.T) {
	for name, handler := range map[string]http.Handler{"another version": &fakeWireServer{versions: "1999-01-01"}, "nobody": http.NotFoundHandler()} {
		server := httptest.NewServer(handler)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := reportReady(ctx, newClient(), server.URL, time.Millisecond); err == nil || !strings.Contains(err.Error(), "cannot report to Azure that this VM is ready") {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
		server.Close()
	}
}
