// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/guest/unseal"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
)

// opener opens sealed.TEXT.0.0 as TEXT, except for that of refused, and counts.
type opener struct {
	Confidential
	opened int
}

func (*opener) Status() attest.Status {
	return attest.Status{TEE: attest.Sample, Broker: "https://broker", Err: errors.New("another initdata")}
}

func (*opener) Evidence(_ context.Context, reportData []byte) (json.RawMessage, error) {
	return json.Marshal(reportData)
}

func (o *opener) UnsealVolumeKey(ctx context.Context, text []byte) ([]byte, error) {
	if bytes.HasPrefix(text, []byte("sealed.slow.")) {
		<-ctx.Done()
		return nil, errors.New("the broker does not answer")
	}
	return o.Unseal(ctx, text)
}

func (o *opener) Unseal(_ context.Context, text []byte) ([]byte, error) {
	o.opened++
	plain := bytes.TrimSuffix(bytes.TrimPrefix(text, []byte("sealed.")), []byte(".0.0"))
	if string(plain) == "refused" {
		return nil, errors.New("the broker refuses")
	}
	return plain, nil
}

// opening is an agent of an image that attests.
func opening(t *testing.T) (*Agent, *opener) {
	t.Helper()
	a, _ := specAgent(t)
	o := &opener{}
	a.confidential.Store(&confidential{Confidential: o})
	return a, o
}

// TestSealedVariables: a container's processes get what was sealed, which is opened once.
func TestSealedVariables(t *testing.T) {
	a, o := opening(t)
	c := newContainer("c", t.TempDir())
	for range 2 {
		env := []string{"A=plain", "B=sealed.secret.0.0", "C=x=sealed.secret.0.0"}
		if err := a.unsealEnv(t.Context(), c, env); err != nil || strings.Join(env, " ") != "A=plain B=secret C=x=sealed.secret.0.0" {
			t.Errorf("%q, %v", env, err)
		}
	}
	if o.opened != 1 {
		t.Errorf("opened %d times", o.opened)
	}
	for _, bad := range []string{"sealed.refused.0.0", "sealed.no\x00text.0.0"} {
		if err := a.unsealEnv(t.Context(), c, []string{"SECRET=" + bad}); err == nil || !strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestSealedFiles: files of Secrets are opened before they are written, and not where the node may read them back.
func TestSealedFiles(t *testing.T) {
	a, _ := opening(t)
	a.copies = newCopier(t.TempDir())
	send := func(path, data string, size int64) error {
		_, err := a.CopyFile(t.Context(), &agent.CopyFileRequest{
			Path: sharedFolder + path, Data: []byte(data), FileSize: size, FileMode: unix.S_IFREG | 0o600, DirMode: 0o700,
			Uid: int32(os.Getuid()), Gid: int32(os.Getgid()),
		})
		return err
	}
	if err := send("/volume/key", "sealed.secret.0.0", 17); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(a.copies.shared, "volume/key")); string(data) != "secret" {
		t.Errorf("%q, %v", data, err)
	}
	for path, c := range map[string]struct {
		data string
		size int64
		want string
	}{
		"/file":           {"sealed.secret.0.0", 17, "subPath"},
		"/volume/refused": {"sealed.refused.0.0", 18, "the broker refuses"},
		"/volume/large":   {"sealed.secret.0.0", 18, "too large"},
	} {
		if err := send(path, c.data, c.size); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", path, err)
		}
		if _, err := os.Stat(a.copies.shared + path); err == nil {
			t.Errorf("%s was written", path)
		}
	}
	if _, err := a.CopyFile(t.Context(), &agent.CopyFileRequest{Path: sharedFolder + "/volume/link", Data: []byte("sealed.secret"), FileSize: 13, FileMode: unix.S_IFLNK | 0o777, DirMode: 0o700}); err != nil {
		t.Fatal(err)
	}
	if target, err := os.Readlink(filepath.Join(a.copies.shared, "volume/link")); target != "sealed.secret" {
		t.Errorf("a link to %q, %v", target, err)
	}
}

// bringer has credentials for registries.
type bringer struct{ opener }

func (bringer) RegistryAuth(context.Context) ([]byte, error) { return []byte(`{"auths":{}}`), nil }

// TestCredentialsGoByTLSOnly: the node's list of registries without TLS does not hold for credentials that the broker gave.
func TestCredentialsGoByTLSOnly(t *testing.T) {
	a, _ := specAgent(t)
	dir := t.TempDir()
	a.cfg.Images.AuthFile, a.cfg.Images.InsecureFile = filepath.Join(dir, "auth.json"), filepath.Join(dir, "insecure-registries")
	if err := os.WriteFile(a.cfg.Images.InsecureFile, []byte("registry.example"), 0o600); err != nil {
		t.Fatal(err)
	}
	a.confidential.Store(&confidential{Confidential: &bringer{}})
	if err := a.bringAuth(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(a.cfg.Images.InsecureFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still without TLS: %s, %v", text, err)
	}
	if _, err := os.Stat(a.cfg.Images.AuthFile); err != nil {
		t.Error(err)
	}
}

// TestImagesOfNoPod: an image that is still being pulled when the pod's end takes its policy away is not admitted. A rehearsal, which has no pod,
// measures nothing.
func TestImagesOfNoPod(t *testing.T) {
	measured := 0
	NewConfidential = func(ConfidentialConfig) (Confidential, error) { measured++; return nil, errors.New("measured") }
	t.Cleanup(func() { NewConfidential = nil })
	a, _ := specAgent(t)
	a.confide(&a.cfg.Images)
	if err := a.cfg.Images.Policy(t.Context(), nil); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("it was admitted: %v", err)
	}
	if err := a.cfg.Images.Pulled("image", "digest"); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("it was not recorded: %v", err)
	}
	a.cfg.rehearses, a.cfg.Images.Policy = true, nil
	if a.confide(&a.cfg.Images); a.cfg.Images.Policy != nil || a.openConfidential() != nil || measured > 0 {
		t.Errorf("a rehearsal measured %d times", measured)
	}
}

// TestUnsealForTheForwarder: by a socket of its own, in an image that can, and for a pod alone.
func TestUnsealForTheForwarder(t *testing.T) {
	a, _ := opening(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	ask := func(text string) (string, error) {
		plain, err := unseal.Ask(t.Context(), unseal.Beside(socket), []byte(text))
		return string(plain), err
	}
	if err := a.serveUnseal(t.Context(), socket); err != nil {
		t.Fatal(err)
	}
	if _, err := ask("sealed.secret.0.0"); !errors.Is(err, unseal.ErrImage) {
		t.Errorf("an image that does not attest: %v", err)
	}
	NewConfidential = func(ConfidentialConfig) (Confidential, error) { return nil, nil }
	t.Cleanup(func() { NewConfidential = nil })
	if err := a.serveUnseal(t.Context(), socket); err != nil {
		t.Fatal(err)
	}
	if plain, err := ask("sealed.secret.0.0"); err != nil || plain != "secret" {
		t.Errorf("%q, %v", plain, err)
	}
	if _, err := ask("sealed.refused.0.0"); err == nil || err.Error() != "the broker refuses" {
		t.Errorf("refused: %v", err)
	}
	hurried, cancel := context.WithTimeout(t.Context(), answerTime+50*time.Millisecond)
	defer cancel()
	if _, err := unseal.Ask(hurried, unseal.Beside(socket), []byte("sealed.slow.0.0")); err == nil || err.Error() != "the broker does not answer" {
		t.Errorf("slow: %v", err)
	}
	a.confidential.Store(nil)
	if _, err := ask("sealed.secret.0.0"); err == nil || !strings.Contains(err.Error(), "there is no pod") {
		t.Errorf("without a pod: %v", err)
	}
	if info, err := os.Stat(unseal.Beside(socket)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestAttestation: evidence is bound to the nonce in a way in which the pod's own is not, and without a nonce there is none.
func TestAttestation(t *testing.T) {
	a, _ := opening(t)
	nonce := bytes.Repeat([]byte{7}, 32)
	resp, err := a.Attestation(t.Context(), &guest.AttestationRequest{Nonce: nonce})
	want, _ := attest.ForVerifier(nonce)
	text, _ := json.Marshal(want)
	if err != nil || !bytes.Equal(resp.GetEvidence(), text) || resp.GetTee() != "sample" || resp.GetError() != "another initdata" {
		t.Errorf("%v, %v", resp, err)
	}
	if resp, err := a.Attestation(t.Context(), &guest.AttestationRequest{}); err != nil || len(resp.GetEvidence()) != 0 {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := a.Attestation(t.Context(), &guest.AttestationRequest{Nonce: nonce[:15]}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a short nonce: %v", err)
	}
	a.confidential.Store(nil)
	if _, err := a.Attestation(t.Context(), &guest.AttestationRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("an image that does not attest: %v", err)
	}
	NewConfidential = func(ConfidentialConfig) (Confidential, error) { return nil, nil }
	t.Cleanup(func() { NewConfidential = nil })
	if _, err := a.Attestation(t.Context(), &guest.AttestationRequest{}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("before there is a pod: %v", err)
	}
}

// TestSandboxNeedsWhatIsMeasured: a pod whose initdata this VM cannot serve does not start.
func TestSandboxNeedsWhatIsMeasured(t *testing.T) {
	NewConfidential = func(c ConfidentialConfig) (Confidential, error) {
		return nil, errors.New("the initdata is not what was measured")
	}
	t.Cleanup(func() { NewConfidential = nil })
	a, _ := specAgent(t)
	a.cfg.Provisioned = t.TempDir()
	if err := os.WriteFile(filepath.Join(a.cfg.Provisioned, "aa.toml"), []byte("[token_configs]"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := a.CreateSandbox(t.Context(), &agent.CreateSandboxRequest{SandboxId: "s"})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "not what was measured") {
		t.Errorf("%v", err)
	}
	if a.confidential.Load() != nil || a.sandbox != nil {
		t.Error("something is left")
	}
}
