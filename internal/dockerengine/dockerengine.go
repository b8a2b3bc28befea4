// SPDX-License-Identifier: Apache-2.0

// Package dockerengine is how this project speaks to a Docker Engine: what its client
// is made with, and the classes of its errors.
package dockerengine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// Version is the form of a version of the engine's API, such as 1.41.
var Version = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

// Options returns the options of Docker's client: it speaks the newest version that
// both know when apiVersion is empty, and TLS with the certificates of a folder. The
// environment of this process is not read: settings say all.
func Options(host, apiVersion string, tls bool, certs string) []client.Opt {
	list := []client.Opt{client.WithHost(host), client.WithUserAgent("outrigger")}
	if apiVersion != "" {
		list = append(list, client.WithAPIVersion(apiVersion))
	}
	if tls {
		file := func(name string) string { return filepath.Join(certs, name) }
		list = append(list, client.WithTLSClientConfig(file("ca.pem"), file("cert.pem"), file("key.pem")), client.WithScheme("https"))
	}
	return list
}

// File is what [CopyIn] writes into a container: a folder when its name ends with a
// slash, else Data, or what Content has, of Size bytes.
type File struct {
	Name string
	Mode int64
	Data []byte

	Content io.Reader
	Size    int64
}

// CopyIn writes files of a container, which may or may not run. Each is complete
// before the next begins.
func CopyIn(ctx context.Context, engine *client.Client, id string, files ...File) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(pack(w, files)) }()
	_, err := engine.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: "/", Content: r})
	r.CloseWithError(errors.New("the engine closed the request")) // ends the writer, however the request has ended
	return err
}

func pack(to io.Writer, files []File) error {
	w := tar.NewWriter(to)
	for _, f := range files {
		if f.Content == nil {
			f.Content, f.Size = bytes.NewReader(f.Data), int64(len(f.Data))
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(f.Name, "/"), Mode: f.Mode, Size: f.Size}
		if strings.HasSuffix(f.Name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.Copy(w, f.Content); err != nil {
			return err
		}
	}
	return w.Close()
}

// Class returns the class of an error of the engine or of the way to it.
func Class(err error) error {
	var network net.Error
	switch {
	case strings.Contains(err.Error(), "permission denied while trying to connect"):
		return provider.ErrPermissionDenied
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), client.IsErrConnectionFailed(err):
		return provider.ErrUnavailable
	case errdefs.IsNotFound(err):
		return provider.ErrNotFound
	case errdefs.IsInvalidArgument(err):
		return provider.ErrInvalidArgument
	case errdefs.IsConflict(err), errdefs.IsAlreadyExists(err):
		return provider.ErrAlreadyExists
	case errdefs.IsUnauthorized(err):
		return provider.ErrUnauthenticated
	case errdefs.IsPermissionDenied(err):
		return provider.ErrPermissionDenied
	case errdefs.IsInternal(err) && strings.Contains(err.Error(), "no space left"):
		return provider.ErrCapacity
	case errors.As(err, &network), errdefs.IsUnavailable(err), errdefs.IsInternal(err):
		return provider.ErrUnavailable
	}
	return provider.ErrUnknown
}
