// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"io"
	"log"
	"net"
	"net/http"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Registry is one that nodes, pods and VMs on the nodes reach, without TLS.
type Registry struct {
	// Host is its address and port, with which names of its images begin.
	Host string
	// User and Password, if set, are asked of everybody.
	User, Password string
}

// Start serves beside the control plane until the test ends.
func (r *Registry) Start(t testing.TB, c *ControlPlane) {
	t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort(c.Address, "0"))
	must(t, err, "start a registry")
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		user, password, _ := q.BasicAuth()
		if r.User != "" && (user != r.User || password != r.Password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		images.ServeHTTP(w, q)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	r.Host = l.Addr().String()
}

// URL is for [NodeOptions].Mirrors: containerd uses only those registries
// without TLS that are configured, even by their own name.
func (r *Registry) URL() string { return "http://" + r.Host }

// Push stores an image by a name within the registry, and returns its full
// name.
func (r *Registry) Push(t testing.TB, path string, image v1.Image) string {
	t.Helper()
	tag, err := name.NewTag(r.Host+"/"+path, name.Insecure)
	must(t, err, "name of an image")
	auth := authn.Anonymous
	if r.User != "" {
		auth = &authn.Basic{Username: r.User, Password: r.Password}
	}
	must(t, remote.Write(tag, image, remote.WithAuth(auth)), "push an image")
	return tag.Name()
}
