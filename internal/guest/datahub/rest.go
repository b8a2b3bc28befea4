// SPDX-License-Identifier: Apache-2.0

package datahub

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"time"

	"github.com/vishvananda/netns"

	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/keybroker"
)

// RESTAddress is where the pod's containers find the hub: that of guest-components' api-server-rest.
const RESTAddress = "127.0.0.1:8006"

const (
	maxEvent   = 4 << 10 // bytes of an event that a container adds
	maxRuntime = 64      // bytes that evidence is bound to, see attest.Attester
	// restTime is how long a request may take: the broker may have to be asked.
	restTime = 5 * time.Minute
)

// Listen returns a listener at RESTAddress in a network namespace, or in this one if the path is empty. It returns nil if the pod's
// initdata asks for nothing that containers would find there: the port is theirs.
func (h *Hub) Listen(namespace string) (net.Listener, error) {
	if !h.asked {
		return nil, nil
	}
	if namespace == "" {
		return net.Listen("tcp", RESTAddress)
	}
	type result struct {
		listener net.Listener
		err      error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		ns, err := netns.GetFromPath(namespace)
		if err == nil {
			defer ns.Close()
			err = netns.Set(ns)
		}
		if err != nil {
			done <- result{nil, fmt.Errorf("network namespace %s: %w", namespace, err)}
			return
		}
		listener, err := net.Listen("tcp", RESTAddress)
		done <- result{listener, err}
	}()
	r := <-done
	return r.listener, r.err
}

// Serve serves the requests of the pod's containers until the listener is closed.
func (h *Hub) Serve(listener net.Listener) error {
	server := &http.Server{
		Handler: h.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: restTime,
		IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	return server.Serve(listener)
}

// Handler serves guest-components' API (api-server-rest/openapi/api.json) to callers on the loopback address.
func (h *Hub) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cdh/resource/{repository}/{type}/{tag}", h.serveResource)
	mux.HandleFunc("GET /aa/token", h.serveToken)
	mux.HandleFunc("GET /aa/evidence", h.serveEvidence)
	mux.HandleFunc("GET /aa/additional-evidence", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := runtimeData(w, r); ok {
			answer(w, "application/octet-stream", []byte("{}")) // there are no further devices
		}
	})
	mux.HandleFunc("POST /aa/aael", h.serveEvent)
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		answerJSON(w, map[string]any{"version": h.cfg.Version, "tee": h.cfg.Attester.TEE(), "additional_tees": []string{}, "feature": "all"})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if from, err := netip.ParseAddrPort(r.RemoteAddr); err != nil || !from.Addr().IsLoopback() {
			http.Error(w, "only the pod's own containers may ask", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (h *Hub) serveResource(w http.ResponseWriter, r *http.Request) {
	uri := "kbs:///" + strings.Join([]string{r.PathValue("repository"), r.PathValue("type"), r.PathValue("tag")}, "/")
	data, err := h.Resource(r.Context(), uri)
	if err != nil {
		h.failed(w, "a container's resource", err)
		return
	}
	answer(w, "application/octet-stream", data)
}

func (h *Hub) serveToken(w http.ResponseWriter, r *http.Request) {
	if kind := r.URL.Query().Get("token_type"); kind != "kbs" {
		http.Error(w, fmt.Sprintf("token_type %.32q: this VM image has kbs", kind), http.StatusBadRequest)
		return
	}
	token, key, err := h.Token(r.Context())
	if err != nil {
		h.failed(w, "a container's token", err)
		return
	}
	answerJSON(w, map[string]string{"token": token, "tee_keypair": string(key)})
}

func (h *Hub) serveEvidence(w http.ResponseWriter, r *http.Request) {
	data, ok := runtimeData(w, r)
	if !ok {
		return
	}
	evidence, err := h.Evidence(r.Context(), data)
	if err != nil {
		h.failed(w, "a container's evidence", err)
		return
	}
	answer(w, "application/octet-stream", evidence)
}

// runtimeData returns what evidence is to be bound to.
func runtimeData(w http.ResponseWriter, r *http.Request) (data []byte, ok bool) {
	query := r.URL.Query()
	data = []byte(query.Get("runtime_data"))
	switch encoding := query.Get("encoding"); encoding {
	case "":
	case "base64":
		var err error
		if data, err = base64.RawURLEncoding.DecodeString(string(data)); err != nil {
			http.Error(w, "runtime_data is not base64 of RFC 4648, section 5, without padding", http.StatusBadRequest)
			return nil, false
		}
	default:
		http.Error(w, fmt.Sprintf("encoding %.32q: want base64, or none", encoding), http.StatusBadRequest)
		return nil, false
	}
	if len(data) == 0 || len(data) > maxRuntime {
		http.Error(w, fmt.Sprintf("runtime_data has %d bytes, want 1 to %d", len(data), maxRuntime), http.StatusBadRequest)
		return nil, false
	}
	return data, true
}

func (h *Hub) serveEvent(w http.ResponseWriter, r *http.Request) {
	var event eventlog.Event
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxEvent)).Decode(&event); err != nil {
		http.Error(w, "want a JSON object with domain, operation and content, of at most 4 KiB", http.StatusBadRequest)
		return
	}
	if event.Domain == eventlog.Domain { // what the agent says of the pod's images
		http.Error(w, "events of "+eventlog.Domain+" are the agent's", http.StatusBadRequest)
		return
	}
	if err := h.cfg.Attester.Extend(r.Context(), event); err != nil {
		http.Error(w, fmt.Sprintf("%.512v", err), http.StatusBadRequest)
		return
	}
	answerJSON(w, map[string]string{"success": "true"})
}

// failed writes an error to a container, whose own pod it is: it may know why.
func (h *Hub) failed(w http.ResponseWriter, what string, err error) {
	h.cfg.Log.Warn("refused "+what, "err", err)
	code := http.StatusInternalServerError
	if errors.Is(err, keybroker.ErrNotFound) {
		code = http.StatusNotFound
	}
	http.Error(w, fmt.Sprintf("%.1024v", err), code)
}

func answerJSON(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer(w, "application/json", data)
}

func answer(w http.ResponseWriter, kind string, data []byte) {
	w.Header().Set("Content-Type", kind)
	w.Write(data) //nolint:errcheck // the container has gone
}
