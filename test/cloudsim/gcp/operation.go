// SPDX-License-Identifier: Apache-2.0

package gcp

import (
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// operation is something that the cloud does after it has answered.
type operation struct {
	resource map[string]any
	zone     string
}

func (o *operation) done() bool { return text(o.resource, "status") == "DONE" }

// begin makes an operation on an instance.
func (s *Sim) begin(c *call, kind, zone, target string, number any) *operation {
	id := s.number()
	name := fmt.Sprintf("operation-%d", id)
	o := &operation{zone: zone, resource: map[string]any{
		"kind": "compute#operation", "id": fmt.Sprint(id), "name": name, "zone": s.link("zones/%s", zone),
		"operationType": kind, "targetLink": target, "targetId": number, "status": "PENDING", "progress": 0,
		"insertTime": s.stamp(), "user": Email, "selfLink": s.link("zones/%s/operations/%s", zone, name),
	}}
	s.operations[zone+"/"+name] = o
	if request := c.query.Get("requestId"); request != "" {
		s.requests[zone+"/"+request] = o
	}
	return o
}

// repeated returns the operation that a request of the same id began.
func (s *Sim) repeated(c *call) (*operation, error) {
	request := c.query.Get("requestId")
	if request == "" {
		return nil, nil
	}
	if id, err := uuid.Parse(request); err != nil || id == uuid.Nil {
		return nil, invalid("requestId", request, "Must be a UUID other than zero.")
	}
	return s.requests[c.path["zone"]+"/"+request], nil
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

func (s *Sim) finish(o *operation) {
	o.resource["status"], o.resource["progress"], o.resource["endTime"] = "DONE", 100, s.stamp()
}

func (s *Sim) fail(o *operation, f cloudsim.Fault) {
	s.finish(o)
	if f.Status != 0 {
		o.resource["httpErrorStatusCode"] = f.Status
		o.resource["httpErrorMessage"] = http.StatusText(f.Status)
	}
	o.resource["error"] = map[string]any{"errors": []any{map[string]any{"code": f.Code, "message": f.Message}}}
}

// Late is the action under which the script finds operations that fail after
// the cloud has accepted them: gcp:late-insert, gcp:late-start,
// gcp:late-delete. After says that something is left behind.
func Late(kind, zone string) string { return "late-" + kind + "." + zone }

func (s *Sim) getOperation(c *call) (any, error) {
	o := s.operations[c.path["zone"]+"/"+c.path["operation"]]
	if o == nil {
		return nil, notFound("operations/" + c.path["operation"])
	}
	return o.resource, nil
}

func (s *Sim) listOperations(c *call) (any, error) {
	var all []map[string]any
	for _, o := range s.operations {
		if o.zone == c.path["zone"] {
			all = append(all, o.resource)
		}
	}
	return s.page(c, "compute#operationList", all)
}
