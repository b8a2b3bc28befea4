// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// operation is a long-running one ("Track asynchronous Azure operations",
// learn.microsoft.com).
type operation struct {
	status        string
	code, message string
	started       time.Time
	// result is what the operation returns at its end, if anything.
	result any
	// looked says that somebody asked how it goes.
	looked bool
}

const (
	inProgress = "InProgress"
	succeeded  = "Succeeded"
	failedOp   = "Failed"
	canceled   = "Canceled"
)

func (o *operation) done() { o.status = succeeded }

func (o *operation) fail(code, message string) {
	o.status, o.code, o.message = failedOp, code, message
}

// begin starts an operation and names it in the answer's header. The caller
// holds mu.
func (c *Cloud) begin(k *call, place string) *operation {
	id := fmt.Sprintf("op-%d", c.number())
	o := &operation{status: inProgress, started: time.Now()}
	c.ops[id] = o
	base := c.Server.URL + "/subscriptions/" + SubscriptionID + "/providers/" + place + "/"
	k.w.Header().Set("Azure-AsyncOperation", base+id+"?api-version=2026-04-01")
	if k.r.Method != http.MethodPut {
		k.w.Header().Set("Location", base+id+"?monitor=true&api-version=2026-04-01")
	}
	c.hurryNot(k.w)
	return o
}

// Where operations are.
const (
	computeOperations = compute + "locations/" + Region + "/operations"
	diskOperations    = compute + "locations/" + Region + "/DiskOperations"
	networkOperations = network + "locations/" + Region + "/operations"
)

func (c *Cloud) hurryNot(w http.ResponseWriter) {
	if c.options.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(c.options.RetryAfter))
	}
}

// pending reports whether o still goes on for whoever looks at it, which with
// Options.RetryAfter it always does the first time: a machine so busy that the
// operation is over by then must not change what a test sees. The caller holds
// mu.
func (c *Cloud) pending(o *operation) bool {
	first := c.options.RetryAfter > 0 && !o.looked
	o.looked = true
	return o.status == inProgress || first
}

func (c *Cloud) pollOperation(k *call) *failure {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.ops[k.name()]
	if o == nil {
		return fail(http.StatusNotFound, "NotFound", "The operation %s does not exist.", k.name())
	}
	status := o.status
	if c.pending(o) {
		status = inProgress
		c.hurryNot(k.w)
	}
	if k.r.URL.Query().Get("monitor") == "true" {
		return o.monitor(k.w, status)
	}
	body := map[string]any{"name": k.name(), "status": status, "startTime": o.started.UTC().Format(time.RFC3339Nano)}
	if o.code != "" && status != inProgress {
		body["error"] = map[string]any{"code": o.code, "message": o.message}
	}
	reply(k.w, http.StatusOK, body)
	return nil
}

// monitor serves the address in Location: 202 while it goes on.
func (o *operation) monitor(w http.ResponseWriter, status string) *failure {
	switch status {
	case inProgress:
		w.WriteHeader(http.StatusAccepted)
	case succeeded:
		if o.result != nil {
			reply(w, http.StatusOK, o.result)
		} else {
			w.WriteHeader(http.StatusOK)
		}
	default:
		return &failure{http.StatusConflict, o.code, o.message}
	}
	return nil
}

// struck returns the fault of the script that befalls a step inside the cloud.
// The caller holds mu.
func (c *Cloud) struck(step string) *cloudsim.Fault {
	f := c.World.Called(step)
	if f == nil || f.Code == "" {
		return nil
	}
	return f
}
