// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"bytes"
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
)

// repository is the name under which the one image is served.
const repository = "outrigger/image"

// Server gives one image to a guest by the pull half of the OCI distribution
// protocol. It serves nothing else and takes nothing.
type Server struct {
	image     *Image
	reference string
	http      *http.Server
	blobs     map[string]blob
	manifest  []byte
	mediaType string
}

type blob struct {
	size int64
	open func() (io.ReadCloser, error)
}

func inMemory(data []byte) blob {
	return blob{int64(len(data)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }}
}

// Serve listens on a free port of one address of this host, the one at which
// the guest sees it. Close it when the guest has pulled.
func Serve(addr netip.Addr, img *Image) (*Server, error) {
	s := &Server{image: img, blobs: map[string]blob{}}
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
	var err error
	if s.manifest, err = img.RawManifest(); err != nil {
		return err
	}
	mediaType, err := img.MediaType()
	if err != nil {
		return err
	}
	s.mediaType = string(mediaType)
	config, err := img.RawConfigFile()
	if err != nil {
		return err
	}
	manifest, err := img.Manifest()
	if err != nil {
		return err
	}
	s.blobs[manifest.Config.Digest.String()] = inMemory(config)
	layers, err := img.Layers()
	if err != nil {
		return err
	}
	if len(layers) != len(manifest.Layers) {
		return errors.New("its manifest does not fit its layers")
	}
	for i, layer := range layers {
		s.blobs[manifest.Layers[i].Digest.String()] = blob{manifest.Layers[i].Size, layer.Compressed}
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
		s.send(w, r, digest, s.mediaType, inMemory(s.manifest))
	case ok && kind == "blobs" && s.blobs[digest].open != nil:
		s.send(w, r, digest, "application/octet-stream", s.blobs[digest])
	default:
		http.NotFound(w, r)
	}
}

func (s *Server) send(w http.ResponseWriter, r *http.Request, digest, mediaType string, b blob) {
	h := w.Header()
	h.Set("Docker-Content-Digest", digest)
	h.Set("Content-Type", mediaType)
	if r.Method == http.MethodHead {
		h.Set("Content-Length", strconv.FormatInt(b.size, 10))
		return
	}
	rc, err := b.open()
	if err != nil {
		http.Error(w, "blob cannot be read", http.StatusInternalServerError)
		return
	}
	defer rc.Close()
	if f, ok := rc.(io.ReadSeeker); ok { // gives a guest ranges, so it can resume
		http.ServeContent(w, r.WithContext(context.Background()), "", time.Time{}, f)
		return
	}
	h.Set("Content-Length", strconv.FormatInt(b.size, 10))
	io.Copy(w, rc) // a guest that goes away is its own affair
}
