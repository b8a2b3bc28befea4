// SPDX-License-Identifier: Apache-2.0

// Package dockerengine is how this project speaks to a Docker Engine: what its client
// is made with, and the classes of its errors.
package dockerengine

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/outrigger/outrigger/provider"
)

// version is the form of a version of the engine's API, such as 1.41.
var version = regexp.MustCompile(`^[0-9]+\.[0-9]+$`)

// Check returns what is wrong with settings for [Options]; wrong makes the error about the setting with a flag.
func Check(host, apiVersion string, tls bool, certs string, wrong func(flag, format string, args ...any) error) error {
	var errs []error
	if where, err := client.ParseHostURL(host); err != nil || where.Scheme != "unix" && where.Scheme != "tcp" {
		errs = append(errs, wrong("docker-host", "%q is not a unix:///PATH or tcp://HOST:PORT", host))
	}
	if apiVersion != "" && !version.MatchString(apiVersion) {
		errs = append(errs, wrong("docker-api-version", "%q is not a version such as 1.41", apiVersion))
	}
	switch {
	case tls && certs == "":
		errs = append(errs, wrong("docker-cert-path", "docker-tls-verify (DOCKER_TLS_VERIFY) needs it"))
	case tls && strings.HasPrefix(host, "unix:"):
		errs = append(errs, wrong("docker-tls-verify", "a unix socket speaks no TLS"))
	}
	return errors.Join(errs...)
}

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

// Inspect returns a container, nil for what does not exist.
func Inspect(ctx context.Context, engine *client.Client, id string) (*container.InspectResponse, error) {
	result, err := engine.ContainerInspect(ctx, id, client.ContainerInspectOptions{})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("inspect a container: %w", err)
	}
	return &result.Container, nil
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
