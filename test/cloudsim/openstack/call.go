// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/outrigger/outrigger/test/cloudsim"
)

// call is one request.
type call struct {
	cloud *Cloud
	out   http.ResponseWriter
	r     *http.Request
	minor int // of the Compute API's microversion
}

// read decodes a body strictly: what the API does not know is a 400.
func (k *call) read(into any) bool {
	d := json.NewDecoder(k.r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("more than one document")
		}
	}
	if err != nil {
		k.fail(http.StatusBadRequest, "badRequest", "Invalid input: "+err.Error())
		return false
	}
	return true
}

// require refuses a call with a member that is empty.
func (k *call) require(members map[string]string) bool {
	for name, value := range members {
		if value == "" {
			k.fail(http.StatusBadRequest, "badRequest", fmt.Sprintf("Invalid input for field/attribute %s. %s is a required property", name, name))
			return false
		}
	}
	return true
}

// short refuses a call with a text that is longer than a column of the
// database: 255 characters.
func (k *call) short(texts map[string]string) bool {
	for name, text := range texts {
		if len([]rune(text)) > 255 {
			k.fail(http.StatusBadRequest, "badRequest", fmt.Sprintf("Invalid input for field/attribute %s. Value: %s. is too long", name, text))
			return false
		}
	}
	return true
}

func (k *call) answer(status int, body any) {
	k.out.Header().Set("Content-Type", "application/json")
	k.out.WriteHeader(status)
	if body != nil {
		_ = json.NewEncoder(k.out).Encode(body)
	}
}

// fail writes an error as the service does that has been called.
func (k *call) fail(status int, code, message string) {
	fail(k.out, k.r, status, code, message)
}

func fail(out http.ResponseWriter, r *http.Request, status int, code, message string) {
	var body any
	switch {
	case status == http.StatusUnauthorized: // it is the middleware's, whatever the service
		body = map[string]any{"error": map[string]any{"code": status, "title": code, "message": message}}
	case strings.HasPrefix(r.URL.Path, "/network/"):
		body = map[string]any{"NeutronError": map[string]any{"type": code, "message": message, "detail": ""}}
	case strings.HasPrefix(r.URL.Path, "/compute/"):
		body = map[string]any{code: map[string]any{"code": status, "message": message}}
	default:
		body = map[string]any{"error": map[string]any{"code": status, "title": code, "message": message}}
	}
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(body)
}

// refuse returns a fault of the script.
func (c *Cloud) refuse(out http.ResponseWriter, r *http.Request, f cloudsim.Fault) {
	late, ok := strings.CutPrefix(f.Code, "late:")
	if !ok {
		fail(out, r, f.Status, f.Code, f.Message)
		return
	}
	r.Header.Set(lateHeader, late)
	answer := httptest.NewRecorder()
	c.mux.ServeHTTP(answer, r)
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(answer.Code)
	_, _ = out.Write(answer.Body.Bytes())
}

// lateHeader carries the fault in which a server is to end.
const lateHeader = "X-Cloudsim-Late"
