// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
)

// DefaultInsecureFile is where process-user-data puts the operator's list of
// registries without TLS.
const DefaultInsecureFile = "/run/peerpod/insecure-registries"

// errPlainHTTP refuses requests that others on the network path could read and
// answer.
var errPlainHTTP = errors.New("plain HTTP is refused")

// plainHTTP lets requests without TLS pass only to hosts that the operator has
// named: those of a registry, of its token server, and of redirects. The library
// below falls back to plain HTTP by itself where an address is private.
type plainHTTP struct {
	next    http.RoundTripper
	allowed func(host string) bool
}

// RoundTrip implements http.RoundTripper.
func (t plainHTTP) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme == "https" || t.allowed(req.URL.Host) {
		return t.next.RoundTrip(req)
	}
	if req.Body != nil {
		req.Body.Close()
	}
	return nil, fmt.Errorf("%w: %s", errPlainHTTP, req.URL.Host)
}

// isInsecure reports whether a host, with its port if it has one, is on the list.
func (p *Puller) isInsecure(host string) bool {
	bare := host
	if name, _, err := net.SplitHostPort(host); err == nil {
		bare = name
	}
	return slices.ContainsFunc(p.insecureRegistries(), func(entry string) bool {
		return strings.EqualFold(entry, host) || strings.EqualFold(strings.Trim(entry, "[]"), strings.Trim(bare, "[]"))
	})
}

// insecureRegistries returns those of the configuration and those of the file, which
// comes with the user-data.
func (p *Puller) insecureRegistries() []string {
	data, err := os.ReadFile(p.cfg.InsecureFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) && p.cfg.InsecureFile != "" {
		p.cfg.Log.Warn("the list of registries without TLS cannot be read", "error", err)
	}
	return append(slices.Clip(p.cfg.InsecureRegistries), strings.Fields(string(data))...)
}

// lacksTLS reports whether err means that the registry lacks TLS, which no retry
// can fix. If HTTPS was tried as well its error comes first and decides: it may be
// temporary.
func lacksTLS(err error) bool {
	var request *url.Error
	return errors.As(err, &request) && errors.Is(request.Err, errPlainHTTP) ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client")
}
