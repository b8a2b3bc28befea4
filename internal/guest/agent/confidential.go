// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/guest/unseal"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Confidential is what a pod gets because its VM can prove what it is.
type Confidential interface {
	// Listen returns where the pod's containers ask for resources, in their network namespace; nil if the pod
	// has not asked for that.
	Listen(namespace string) (net.Listener, error)
	Serve(net.Listener) error
	Close() error
	// Attest attests to the pod's broker, if it names one.
	Attest(ctx context.Context)
	Status() attest.Status
	Evidence(ctx context.Context, reportData []byte) (json.RawMessage, error)
	// Unseal opens a sealed Secret, UnsealVolumeKey one that is for that.
	Unseal(ctx context.Context, text []byte) ([]byte, error)
	UnsealVolumeKey(ctx context.Context, text []byte) ([]byte, error)
	// AdmitImage, DecryptLayer and Pulled are those of [pull.Config].
	AdmitImage(ctx context.Context, image *pull.Candidate) error
	DecryptLayer(ctx context.Context, layer v1.Descriptor, ciphertext io.Reader) (io.Reader, error)
	Pulled(reference, digest string) error
	// RegistryAuth returns credentials for registries in place of the node's, or nil.
	RegistryAuth(ctx context.Context) ([]byte, error)
}

// ConfidentialConfig is what one is made of.
type ConfidentialConfig struct {
	// Provisioned is the folder of what the node sent, StateDir one for state.
	Provisioned, StateDir, Version string
	Log                            *slog.Logger
}

// NewConfidential measures what the pod's owner has sent. It is nil in an image that cannot.
var NewConfidential func(ConfidentialConfig) (Confidential, error)

// confidential is that of this pod, from CreateSandbox on.
type confidential struct {
	Confidential
	listener net.Listener
	end      context.CancelFunc

	authLock sync.Mutex
	auth     bool // the credentials for registries were brought
}

// attestTime bounds what is done in advance; who needs it later tries again.
const attestTime = 5 * time.Minute

// confides reports whether pods are measured. A rehearsal is of no pod: what it measured would be in the way of the one that comes.
func (a *Agent) confides() bool { return NewConfidential != nil && !a.cfg.rehearses }

// openConfidential is called before there is a container: nothing of the pod has run when its initdata is measured.
func (a *Agent) openConfidential() error {
	if !a.confides() {
		return nil
	}
	began := marks.Uptime()
	of, err := NewConfidential(ConfidentialConfig{a.cfg.Provisioned, a.cfg.StateDir, a.cfg.Version, a.log})
	if err != nil {
		return status.Error(codes.FailedPrecondition, err.Error())
	}
	a.cfg.Marks.Note("measure-initdata", began, "")
	c := &confidential{Confidential: of}
	namespace := a.cfg.PodNetNS
	if _, err := os.Stat(namespace); errors.Is(err, os.ErrNotExist) {
		namespace = ""
	}
	if c.listener, err = of.Listen(namespace); err != nil {
		return errors.Join(fmt.Errorf("listen for the pod's containers: %w", err), of.Close())
	}
	if c.listener != nil {
		go of.Serve(c.listener) //nolint:errcheck // ends with the listener
	}
	ctx, cancel := context.WithTimeout(context.Background(), attestTime)
	c.end = cancel
	go func() {
		began := marks.Uptime()
		of.Attest(ctx)
		a.cfg.Marks.Note("attest", began, "beside the pulls of images")
	}()
	a.confidential.Store(c)
	return nil
}

func (a *Agent) closeConfidential() {
	if c := a.confidential.Swap(nil); c != nil {
		c.end()
		if c.listener != nil {
			c.listener.Close()
		}
		if err := c.Close(); err != nil {
			a.log.Warn("the end of the pod's attestation", "err", err)
		}
	}
}

// Attestation returns how far the pod's attestation is and, with a nonce, evidence.
func (a *Agent) Attestation(ctx context.Context, req *guest.AttestationRequest) (*guest.AttestationResponse, error) {
	c := a.confidential.Load()
	switch {
	case c == nil && NewConfidential == nil:
		return nil, status.Error(codes.Unimplemented, "this VM image does not attest: build one with podvm-image build --confidential")
	case c == nil:
		return nil, status.Error(codes.FailedPrecondition, "this VM has no pod yet, whose initdata would be measured")
	}
	is := c.Status()
	resp := &guest.AttestationResponse{Tee: string(is.TEE), Broker: is.Broker, Accepted: is.Accepted}
	if is.Err != nil {
		resp.Error = is.Err.Error()
	}
	if len(req.GetNonce()) == 0 {
		return resp, nil
	}
	data, err := attest.ForVerifier(req.GetNonce())
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	resp.Evidence, err = c.Evidence(ctx, data)
	return resp, fail(codes.Internal, err)
}

// errNoPod is of images for a pod that has ended meanwhile: what its owner wants of images is not known any more.
var errNoPod = status.Error(codes.FailedPrecondition, "there is no pod whose policy for images and key broker could be asked")

// confide has images pulled as the pod's owner wants it.
func (a *Agent) confide(c *pull.Config) {
	if !a.confides() {
		return
	}
	c.Policy = func(ctx context.Context, image *pull.Candidate) error {
		if of := a.confidential.Load(); of != nil {
			return of.AdmitImage(ctx, image)
		}
		return errNoPod
	}
	c.Decrypt = func(ctx context.Context, layer v1.Descriptor, ciphertext io.Reader) (io.Reader, error) {
		if of := a.confidential.Load(); of != nil {
			return of.DecryptLayer(ctx, layer, ciphertext)
		}
		return nil, errNoPod
	}
	c.Pulled = func(reference, digest string) error {
		if of := a.confidential.Load(); of != nil {
			return of.Pulled(reference, digest)
		}
		return errNoPod
	}
}

// bringAuth puts the pod's own credentials for registries in the place of the node's.
func (a *Agent) bringAuth(ctx context.Context) error {
	of := a.confidential.Load()
	if of == nil {
		return nil
	}
	of.authLock.Lock()
	defer of.authLock.Unlock()
	if of.auth {
		return nil
	}
	auth, err := of.RegistryAuth(ctx)
	if err == nil && auth != nil {
		// They are the pod's secret, and the list of registries without TLS is the node's, which measures nothing: it would have them sent
		// to whoever is on the way.
		if err = os.RemoveAll(a.cfg.Images.InsecureFile); err == nil {
			err = wholefile.Replace(a.cfg.Images.AuthFile, auth, 0o600)
		}
	}
	if err != nil {
		return status.Errorf(codes.FailedPrecondition, "the pod's credentials for registries: %v", err)
	}
	of.auth = true
	return nil
}

// answerTime is how much earlier than its caller the agent gives up, so that the caller hears why.
const answerTime = 5 * time.Second

// unseal opens the sealed key of a disk for the forwarder.
func (a *Agent) unseal(ctx context.Context, sealed []byte) ([]byte, error) {
	of := a.confidential.Load()
	if of == nil {
		return nil, errNoPod
	}
	if end, has := ctx.Deadline(); has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-answerTime))
		defer cancel()
	}
	return of.UnsealVolumeKey(ctx, sealed)
}

// serveUnseal lets other programs of this VM ask for that, by a socket beside the agent's, in an image that can.
func (a *Agent) serveUnseal(ctx context.Context, agentSocket string) error {
	if NewConfidential == nil {
		return nil
	}
	listener, err := listen(unseal.Beside(agentSocket))
	if err != nil {
		return err
	}
	go func() {
		if err := unseal.Serve(ctx, listener, a.unseal); err != nil {
			a.log.Error("keys of disks cannot be opened", "err", err)
		}
	}()
	return nil
}

// unsealEnv opens the variables that are sealed Secrets. A container's processes share what was opened.
func (a *Agent) unsealEnv(ctx context.Context, c *container, env []string) error {
	of := a.confidential.Load()
	for i, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if !attest.IsSealed([]byte(value)) {
			continue
		}
		if of == nil {
			return fmt.Errorf("variable %s: %w", name, unseal.ErrImage)
		}
		plain, known := c.unsealed.Load(value)
		if !known {
			opened, err := of.Unseal(ctx, []byte(value))
			if err != nil {
				return fmt.Errorf("variable %s: %w", name, err)
			}
			if bytes.IndexByte(opened, 0) >= 0 {
				return fmt.Errorf("variable %s: the sealed Secret has a zero byte, which a variable cannot have", name)
			}
			plain = string(opened)
			c.unsealed.Store(value, plain)
		}
		env[i] = name + "=" + plain.(string)
	}
	return nil
}

// unsealFiles opens the files that are sealed Secrets, before they are written. What is right in the shared folder the node may read back, see
// ReadCopied: nothing is opened there.
func (a *Agent) unsealFiles(ctx context.Context, files []*agent.CopyFileRequest) error {
	of := a.confidential.Load()
	for _, file := range files {
		kind := file.GetFileMode() & unix.S_IFMT
		if kind != unix.S_IFREG && kind != 0 || file.GetOffset() != 0 || !attest.IsSealed(file.GetData()) {
			continue // a link's target, too, would be in the VM's messages
		}
		if of == nil {
			return status.Errorf(codes.FailedPrecondition, "copy to %s: %v", file.GetPath(), unseal.ErrImage)
		}
		rel := strings.TrimPrefix(file.GetPath(), sharedFolder+"/")
		switch {
		case !strings.Contains(rel, "/"):
			return status.Errorf(codes.FailedPrecondition, "copy to %s: a sealed Secret that is mounted as one file, with subPath, is not opened: mount the Secret as a folder", file.GetPath())
		case int64(len(file.GetData())) != file.GetFileSize():
			return status.Errorf(codes.FailedPrecondition, "copy to %s: a sealed Secret of %d bytes is too large", file.GetPath(), file.GetFileSize())
		}
		plain, err := of.Unseal(ctx, file.GetData())
		if err != nil {
			return fail(codes.FailedPrecondition, fmt.Errorf("copy to %s: %w", file.GetPath(), err))
		}
		file.Data, file.FileSize = plain, int64(len(plain))
	}
	return nil
}
