// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"golang.org/x/sys/unix"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

// errDigest means that the content is not what was asked for; asking again for
// the same bytes does not help.
var errDigest = errors.New("digest does not match")

// maxTries without a step forward; with the default back-off about 8 s.
const maxTries = 5

// retry calls fn until it succeeds, fails for good, or time is up.
func retry[T any](ctx context.Context, cfg Config, what string, fn func() (T, error)) (T, error) {
	pause := cfg.Backoff
	for try := 1; ; try++ {
		value, err := fn()
		if err == nil || try == maxTries || ctx.Err() != nil || !temporary(err) {
			return value, explain(err)
		}
		cfg.Log.Warn("registry failed, trying again", "part", what, "try", try, "pause", pause, "err", err)
		if poll.Sleep(ctx, pause) != nil {
			return value, fmt.Errorf("%w (gave up: %w)", explain(err), ctx.Err())
		}
		pause *= 2
	}
}

// temporary reports whether a retry may succeed: the network or the server
// failed, rather than the request.
func temporary(err error) bool {
	if status, ok := errors.AsType[*transport.Error](err); ok {
		return status.StatusCode >= 500 || status.StatusCode == 429 || status.StatusCode == 408
	}
	if errors.Is(err, errDigest) || errors.Is(err, context.Canceled) || certificate(err) || lacksTLS(err) {
		return false
	}
	return errors.As(err, new(net.Error)) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) ||
		errors.Is(err, unix.ECONNRESET) || strings.Contains(err.Error(), "http2: ")
}

func certificate(err error) bool {
	var verify *tls.CertificateVerificationError
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &verify) || errors.As(err, &unknown) || errors.As(err, new(x509.HostnameError))
}

// explain adds what the user can do about it.
func explain(err error) error {
	var status *transport.Error
	switch {
	case err == nil:
		return nil
	case certificate(err):
		return fmt.Errorf("%w; the VM does not trust the registry's certificate", err)
	case lacksTLS(err):
		return fmt.Errorf("%w; the VM speaks plain HTTP only to registries that the operator names in the adaptor's -insecure-registries (INSECURE_REGISTRIES): give this one TLS, or name it there", err)
	case !errors.As(err, &status):
		return err
	case status.StatusCode == 401 || status.StatusCode == 403:
		return fmt.Errorf("%w; the registry refused the credentials (registries also do that for images that do not exist)", err)
	case status.StatusCode == 404:
		return fmt.Errorf("%w; there is no such image", err)
	}
	return err
}

// explainFull returns which folder is full.
func (p *Puller) explainFull(err error) error {
	if !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		return err
	}
	var stat unix.Statfs_t
	size := "unknown size"
	if unix.Statfs(p.cfg.Dir, &stat) == nil {
		size = fmt.Sprintf("%d MiB in all", int64(stat.Blocks)*stat.Bsize>>20)
	}
	return fmt.Errorf("%s is full (%s): the image needs more memory or a larger disk for the VM: %w", p.cfg.Dir, size, err)
}
