// SPDX-License-Identifier: Apache-2.0

// Package handover gives a VM that waits in a pool to a pod. The VM listens on the
// port that the forwarder will have, with the identity of the pool. The node sends
// the user-data that a VM made for this pod alone would have got at boot, and ends
// its half of the connection. The VM writes the files, closes its port, answers "ok"
// and becomes the pod's: next on the port is the forwarder with the pod's own
// identity. An empty document asks only whether the VM waits, and is answered
// "waiting", which a remark may follow. Any other answer is an error, after which the VM goes on waiting.
//
// Only TLS 1.3 is spoken. Its end of stream (close_notify) ends document and answer: the end of
// the TCP connection alone, which anybody on the way can cause, does not.
package handover

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/outrigger/outrigger/internal/redact"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// What kept [Send] from handing over. After each of these the VM has not taken the
// document. After any other error it may have, and can be given to no other pod.
var (
	// ErrUnreachable: nobody answers, or the connection broke before the document
	// was sent.
	ErrUnreachable = errors.New("the VM cannot be reached")
	// ErrIdentity: one end does not accept the other's certificate.
	ErrIdentity = errors.New("TLS with the VM failed")
	// ErrRefused: the VM's answer is an error, which follows.
	ErrRefused = errors.New("the VM refused the user-data")
	// ErrUnprepared: the VM waits and can be given to a pod, and something that it was to do before, which
	// follows, has failed.
	ErrUnprepared = errors.New("the VM waits for a pod")
)

// The VM's answers.
const (
	answerTaken   = "ok"
	answerWaiting = "waiting"
	answerRemark  = answerWaiting + ": "
	// maxAnswer is the longest in bytes: an error may quote the document.
	maxAnswer = 4 << 10
)

// Port is the TCP port on which a VM waits, that of the image's forwarder.
const Port = "15150"

// Send hands the VM at address to the pod whose user-data is document, or with an
// empty document returns nil, or [ErrUnprepared], if the VM waits for one. It takes at most 30 seconds,
// and 5 where nobody is at address.
// config is that of the node's end, see podtls.ClientConfig.
func Send(ctx context.Context, address string, config *tls.Config, document []byte) error {
	if len(document) > cloudinit.MaxSize {
		return errTooLarge
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	dialer := net.Dialer{Timeout: ProbeTimeout}
	raw, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	defer stop()
	conn := tls.Client(wholeConn{raw}, onlyTLS13(config))
	defer conn.Close()
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("%w: %w", class(err), redact.Error(err, nil))
	}
	_, sendErr := conn.Write(document)
	if sendErr == nil {
		sendErr = conn.CloseWrite()
	}
	// The VM judges our certificate after our end of the handshake: why it does not
	// read on is in its answer.
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer+1))
	if err != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return verdict(len(document) == 0, string(answer), sendErr, err)
}

// verdict returns what an answer means, with the errors in sending the document and in
// reading the answer.
func verdict(probe bool, answer string, sendErr, err error) error {
	switch {
	case errors.Is(class(err), ErrIdentity):
		return fmt.Errorf("%w: %w", ErrIdentity, redact.Error(err, nil))
	case (sendErr != nil || probe) && (err != nil || answer == ""):
		return fmt.Errorf("%w: %w", ErrUnreachable, redact.Error(cmp.Or(sendErr, err, errCut), nil))
	case err != nil || answer == "":
		return fmt.Errorf("no answer to the user-data, which the VM may have taken: %w", redact.Error(cmp.Or(err, errCut), nil))
	case answer == answerTaken && !probe, answer == answerWaiting && probe:
		return nil
	}
	if remark, waits := strings.CutPrefix(answer, answerRemark); waits && probe {
		return fmt.Errorf("%w: %s", ErrUnprepared, redact.Foreign(remark))
	}
	return fmt.Errorf("%w: %s", ErrRefused, redact.Foreign(answer))
}

// class returns ErrIdentity for an error of TLS and ErrUnreachable for others.
func class(err error) error {
	var op *net.OpError
	if errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) ||
		errors.As(err, &op) && (op.Op == "remote error" || op.Op == "local error") { // alerts, as crypto/tls wraps them
		return ErrIdentity
	}
	return ErrUnreachable
}

// wholeConn is a TCP connection whose end is an error. crypto/tls takes one between two
// records for the end of the stream.
type wholeConn struct{ net.Conn }

var errCut = errors.New("the connection ended early")

func (c wholeConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if errors.Is(err, io.EOF) {
		err = errCut
	}
	return n, err
}

func onlyTLS13(config *tls.Config) *tls.Config {
	config = config.Clone()
	config.MinVersion, config.MaxVersion = tls.VersionTLS13, 0
	return config
}
