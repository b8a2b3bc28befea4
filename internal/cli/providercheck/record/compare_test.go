// SPDX-License-Identifier: Apache-2.0

package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestCompare: what a simulator has wrong is said, and no more.
func TestCompare(t *testing.T) {
	const id, other = "16858521-3093-4955-9a9d-d0b4047c5b30", "26858521-3093-4955-9a9d-d0b4047c5b30"
	get := func(id string, status int, body string) Exchange {
		return Exchange{Method: "GET", Path: "/v2.1/servers/" + id, Status: status, Response: body}
	}
	cloud := []Exchange{
		get(id, 200, `{"server": {"id": "x", "vcpus": 1, "tags": ["a"], "fault": null, "only": "here"}}`),
		get(id, 404, `{"itemNotFound": {"code": 404}}`),
		{Method: "GET", Path: "/v2.0/ports", Status: 404, Response: `{}`},
	}
	if diff := cmp.Diff([]string(nil), Compare(cloud, []Exchange{
		get(other, 200, `{"server": {"id": "y", "vcpus": 2, "tags": [], "fault": "late"}}`), get(other, 404, ""),
		{Method: "POST", Path: "/elsewhere", Status: 500}, get(other, 0, "no answer"),
	})); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"GET /v2.0/ports: the simulator answers 400, the cloud [404]",
		"GET /v2.1/servers/{}: 200: the simulator has .server.invented, the cloud has not",
		"GET /v2.1/servers/{}: 200: .server.vcpus is a string in the simulator and a float64 in the cloud",
	}
	if diff := cmp.Diff(want, Compare(cloud, []Exchange{
		get(other, 200, `{"server": {"id": "y", "vcpus": "2", "invented": true}}`), {Method: "GET", Path: "/v2.0/ports", Status: 400},
	})); diff != "" {
		t.Error(diff)
	}
	deletion := func(statuses ...int) (all []Exchange) {
		for _, status := range statuses {
			all = append(all, Exchange{Method: "DELETE", Path: "/v2.1/servers/" + id, Status: status})
		}
		return all
	}
	for _, row := range []struct {
		what             string
		cloud, simulator []int
		differences      int
	}{
		{"the cloud was not asked again", []int{204}, []int{204, 404, 410}, 0},
		{"the cloud says otherwise of what is gone", []int{204, 410}, []int{204, 404}, 1},
		{"refused for another reason", []int{204}, []int{403}, 1},
		{"accepted otherwise", []int{299}, []int{204}, 1},
	} {
		if got := Compare(deletion(row.cloud...), deletion(row.simulator...)); len(got) != row.differences {
			t.Errorf("%s: %q", row.what, got)
		}
	}
}
