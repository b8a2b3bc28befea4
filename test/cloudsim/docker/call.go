// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// call is one request.
type call struct {
	engine *Engine
	api    *definition
	op     *operation
	out    http.ResponseWriter
	path   map[string]string
	query  url.Values
	body   []byte
}

// handlers by operationId. They have the engine's lock.
var handlers = map[string]func(*call){
	"SystemPing": (*call).ping, "SystemPingHead": (*call).ping, "SystemInfo": (*call).info,
	"ImageInspect": (*call).inspectImage, "NetworkInspect": (*call).inspectNetwork,
	"ContainerCreate": (*call).create, "ContainerInspect": (*call).inspect, "ContainerList": (*call).list,
	"PutContainerArchive": (*call).extract, "ContainerStart": (*call).start, "ContainerDelete": (*call).remove,
	"ContainerLogs": (*call).logs, "ContainerKill": (*call).kill,
	"VolumeCreate": (*call).createVolume, "VolumeInspect": (*call).inspectVolume, "VolumeList": (*call).listVolumes, "VolumeDelete": (*call).removeVolume,
}

var versioned = regexp.MustCompile(`^/v([0-9]+)\.([0-9]+)(/.*)$`)

// route returns the version and the path below it. Without a version the
// engine takes its own.
func (e *Engine) route(r *http.Request) (version, path string) {
	if parts := versioned.FindStringSubmatch(r.URL.Path); parts != nil {
		return parts[1] + "." + parts[2], parts[3]
	}
	return e.Version, r.URL.Path
}

// action names the call that a request is.
func (e *Engine) action(r *http.Request) string {
	_, path := e.route(r)
	api, err := load(e.Version)
	if err != nil {
		return ""
	}
	op, _ := api.find(r.Method, path)
	if op == nil {
		return ""
	}
	return op.ID
}

// minor is the part of a version that grows.
func minor(version string) int {
	_, text, _ := strings.Cut(version, ".")
	n, _ := strconv.Atoi(text)
	return n
}

// ServeHTTP implements http.Handler.
func (e *Engine) ServeHTTP(out http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	version, path := e.route(r)
	// The texts are those of the engine's middleware for versions.
	switch {
	case minor(version) > minor(e.Version):
		fail(out, http.StatusBadRequest, fmt.Sprintf("client version %s is too new. Maximum supported API version is %s", version, e.Version))
		return
	case e.denied:
		fail(out, http.StatusForbidden, "authorization denied by plugin outrigger-test: not allowed")
		return
	}
	e.serve(out, r, version, path, body)
}

func (e *Engine) serve(out http.ResponseWriter, r *http.Request, version, path string, body []byte) {
	api, err := load(version)
	if err != nil {
		e.isWrong("%v", err)
		fail(out, http.StatusInternalServerError, err.Error())
		return
	}
	op, params := api.find(r.Method, path)
	if op == nil || handlers[op.ID] == nil {
		e.isWrong("%s %s: there is no such call, or none here", r.Method, path)
		fail(out, http.StatusNotFound, "page not found")
		return
	}
	k := &call{engine: e, api: api, op: op, out: out, path: params, query: r.URL.Query(), body: body}
	if err := k.check(r); err != nil {
		e.isWrong("%s: request: %v", op.ID, err)
		fail(out, http.StatusBadRequest, err.Error())
		return
	}
	handlers[op.ID](k)
}

// check compares the request with the definition.
func (k *call) check(r *http.Request) error {
	if err := k.op.checkQuery(k.query); err != nil {
		return err
	}
	s := k.op.body()
	if s == nil || r.Header.Get("Content-Type") != "application/json" {
		return nil
	}
	return k.api.checkJSON(s, k.body)
}

// decode reads the body, which is JSON.
func (k *call) decode(into any) bool {
	d := json.NewDecoder(bytes.NewReader(k.body))
	if err := d.Decode(into); err != nil {
		fail(k.out, http.StatusBadRequest, err.Error())
		return false
	}
	return true
}

// answer writes what the definition allows.
func (k *call) answer(status int, value any) {
	if value == nil {
		k.out.WriteHeader(status)
		return
	}
	text, err := json.Marshal(value)
	if known := k.op.Responses[strconv.Itoa(status)]; err == nil && known != nil {
		err = k.api.checkJSON(known.Schema, text)
	} else if err == nil {
		err = fmt.Errorf("status %d is not in the definition", status)
	}
	if err != nil {
		k.engine.isWrong("%s: answer: %v", k.op.ID, err)
	}
	k.out.Header().Set("Content-Type", "application/json")
	k.out.WriteHeader(status)
	_, _ = k.out.Write(text)
}

// fail returns a error of the engine, of a status that the definition has.
func (k *call) fail(status int, format string, args ...any) {
	if k.op.Responses[strconv.Itoa(status)] == nil {
		k.engine.isWrong("%s: status %d is not in the definition", k.op.ID, status)
	}
	fail(k.out, status, fmt.Sprintf(format, args...))
}

func fail(out http.ResponseWriter, status int, message string) {
	out.Header().Set("Content-Type", "application/json")
	out.WriteHeader(status)
	_ = json.NewEncoder(out).Encode(map[string]string{"message": message})
}

// unlocked does something while other calls go on.
func (k *call) unlocked(do func()) {
	k.engine.mu.Unlock()
	defer k.engine.mu.Lock()
	do()
}
