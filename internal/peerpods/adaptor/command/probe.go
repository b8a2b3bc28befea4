// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// probe serves the adaptor's own health over HTTP. It does not report on pods:
// a pod that is not ready must not restart the adaptor.
type probe struct {
	server *http.Server
	// serving is set while shims can connect, started once they could.
	serving, started atomic.Bool
}

// startProbe listens on that address; port 0 means no probe.
func startProbe(address string, port int, metrics http.Handler) (*probe, error) {
	p := new(probe)
	if port == 0 {
		return p, nil
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(address, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("PROBE_PORT: %w; free that port or set PROBE_PORT to another (0: no probe), and PROBE_ADDRESS to an address of this node", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /startup", healthHandler(&p.started))
	mux.HandleFunc("GET /readyz", healthHandler(&p.serving))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.Handle("GET /metrics", metrics)
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go p.server.Serve(listener)
	return p, nil
}

func (p *probe) set(serving bool) {
	p.serving.Store(serving)
	if serving {
		p.started.Store(true)
	}
}

func (p *probe) close(ctx context.Context) error {
	if p.server == nil {
		return nil
	}
	if err := p.server.Shutdown(ctx); err != nil {
		return errors.Join(err, p.server.Close())
	}
	return nil
}

func healthHandler(ok *atomic.Bool) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if !ok.Load() {
			http.Error(w, "the hypervisor socket is not served", http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, "ok")
	}
}
