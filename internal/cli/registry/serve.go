// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
)

// repository is the name under which the one image is served.
const repository = "outrigger/image"

// Server gives one image to a guest by the pull half of the OCI distribution
// protocol. It serves nothing else and takes nothing.
type Server struct {
	image     *Image
	reference string
	http      *http.Server
	manifest  v1.Layer
	blobs     map[string]v1.Layer
}

// Serve listens on a free port of one address of this host, the one at which
// the guest sees it. Close it when the guest has pulled.
func Serve(addr netip.Addr, img *Image) (*Server, error) {
	s := &Server{image: img, blobs: map[string]v1.Layer{}}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("image %s: %w", img.Name, err)
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		return nil, fmt.Errorf("registry for image %s on the address that the VM sees: %w", img.Name, err)
	}
	s.reference = fmt.Sprintf("%s/%s@%s", l.Addr(), repository, img.Digest)
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	go s.http.Serve(l)
	return s, nil
}

// Reference returns the reference that the guest pulls: this server's address, by
// digest.
func (s *Server) Reference() string { return s.reference }

// Close ends the server at once.
func (s *Server) Close() error { return s.http.Close() }

func (s *Server) load() error {
	img := s.image.image
	manifest, err1 := img.RawManifest()
	mediaType, err2 := img.MediaType()
	config, err3 := partial.ConfigLayer(img)
	layers, err4 := img.Layers()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}
	s.manifest = static.NewLayer(manifest, mediaType)
	for _, layer := range append(layers, config) {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		s.blobs[digest.String()] = layer
	}
	return nil
}

// ServeHTTP serves GET and HEAD of the one manifest and its blobs.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Docker-Distribution-API-Version", "registry/2.0")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "read-only", http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/v2/" || r.URL.Path == "/v2" {
		return
	}
	kind, digest, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v2/"+repository+"/"), "/")
	switch {
	case ok && kind == "manifests" && digest == s.image.Digest.String():
		s.send(w, r, digest, s.manifest)
	case ok && kind == "blobs" && s.blobs[digest] != nil:
		s.send(w, r, digest, s.blobs[digest])
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, digest string, layer v1.Layer) {
	mediaType, err1 := layer.MediaType()
	size, err2 := layer.Size()
	if errors.Join(err1, err2) != nil {
		http.Error(w, "blob cannot be read", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Docker-Content-Digest", digest)
	h.Set("Content-Type", string(mediaType))
	h.Set("Content-Length", strconv.FormatInt(size, 10))
	if r.Method == http.MethodHead {
		return
	}
	rc, err := layer.Compressed()
	if err != nil {
		http.Error(w, "blob cannot be read", http.StatusInternalServerError)
		return
	}
	defer rc.Close()
	if f, ok := rc.(io.ReadSeeker); ok { // gives a guest ranges, so it can resume
		http.ServeContent(w, r.WithContext(context.Background()), "", time.Time{}, f)
		return
	}
	io.Copy(w, rc) // a guest that goes away is its own affair
}
