// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"context"
	"crypto/sha512"
	"testing"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/test/swtpm"
)

func TestX(t *testing.T) {
	s := swtpm.Start(t)
	a, err := attester.NewTPM(s.Open(t), attester.Options{Folder: t.TempDir(), BootLog: "/none"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	digest := sha512.Sum384([]byte("initdata"))
	if err := a.BindInitData(ctx, digest[:]); err != nil {
		t.Fatal(err)
	}
	e, _ := eventlog.PullImage("docker.io/library/busybox:1", "sha256:00")
	if err := a.Extend(ctx, e); err != nil {
		t.Fatal(err)
	}
	id, err := a.Identity(ctx)
	if err != nil {
		t.Fatal(err)
	}
	v := &Verifier{EndorsementRoots: s.Roots}
	c, err := v.NewCredential(*id, make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Activate(ctx, c); err != nil {
		t.Fatal(err)
	}
	ev, err := a.Evidence(ctx, []byte("nonce"))
	if err != nil {
		t.Fatal(err)
	}
	claims, err := v.Verify(ctx, attest.TPM, ev, attest.Expected{ReportData: []byte("nonce"), InitData: digest[:], Credential: make([]byte, 32)})
	t.Log(claims, err)
}
