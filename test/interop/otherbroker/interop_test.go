// SPDX-License-Identifier: Apache-2.0

package otherbroker

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/internal/keybroker"
	guestclient "github.com/outrigger/outrigger/internal/keybroker/client"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/swtpm"
)

// sampleAttester makes evidence of that kind.
type sampleAttester struct{}

func (sampleAttester) TEE() attest.TEE { return attest.Sample }

func (sampleAttester) Evidence(_ context.Context, reportData []byte) (json.RawMessage, error) {
	return json.Marshal(attest.SampleEvidence{SVN: "1", ReportData: reportData})
}

// TestOurClient: the guest's client and this broker, which were written from the same documents by different people, understand each other,
// and no message of the client differs from the documents.
func TestOurClient(t *testing.T) {
	initdata := cloudinit.EmptyInitData()
	tpm, err := attester.NewTPM(swtpm.StartBlank(t).Open(t), attester.Options{Folder: t.TempDir(), BootLog: "/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	digest, err := hex.DecodeString(initdata.Digest())
	if err == nil {
		err = tpm.BindInitData(t.Context(), digest)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, vm := range map[string]attest.Attester{"sample": sampleAttester{}, "tpm": tpm} {
		b := &Broker{Resources: map[string][]byte{"default/key/1": []byte("sesame"), "default/key/2": nil}, AllowSample: true}
		server := httptest.NewTLSServer(b)
		t.Cleanup(server.Close)
		c, err := guestclient.New(guestclient.Config{
			URL: server.URL, Certificate: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
			Attester: vm, InitData: string(initdata.TOML()), Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		if data, err := c.Resource(t.Context(), "kbs:///default/key/1"); err != nil || string(data) != "sesame" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if _, err := c.Resource(t.Context(), "kbs:///default/key/2"); !errors.Is(err, keybroker.ErrRefused) {
			t.Errorf("%s: a resource that is refused: %v", name, err)
		}
		if _, err := c.Resource(t.Context(), "kbs:///default/key/3"); !errors.Is(err, keybroker.ErrNotFound) {
			t.Errorf("%s: one that there is not: %v", name, err)
		}
		for _, line := range b.Log() {
			if strings.Contains(line, "deviation:") {
				t.Errorf("%s: %s", name, line)
			}
		}
		if all := b.Attestations(); len(all) != 1 || all[0].Tee != name || name == "tpm" && all[0].InitData != "bound" {
			t.Errorf("%s: attestations %+v", name, all)
		}
	}
}
