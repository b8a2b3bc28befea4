// SPDX-License-Identifier: Apache-2.0

package kubectl

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/outrigger/outrigger/internal/attest"
)

// TestVerifyPod: the VM is asked by the relay of its node, and what it answers is verified here.
func TestVerifyPod(t *testing.T) {
	f := newFakeAPI(t)
	f.pod("web", o{"phase": "Running"})
	f.peerPod("web", o{"phase": "Ready"})
	f.put(core(SystemNamespace, "pods", "relay-elsewhere"), o{"metadata": o{"name": "relay-elsewhere", "namespace": SystemNamespace}, "spec": o{"nodeName": "node2"}})
	f.put(core(SystemNamespace, "pods", "relay-here"), o{"metadata": o{"name": "relay-here", "namespace": SystemNamespace}, "spec": o{"nodeName": "node1"}})
	lie := ""
	f.exec = func(_ context.Context, in execTarget, command []string) (string, error) {
		if in.pod != "relay-here" || in.container != relayName || len(command) != 4 || command[2] != "s-web" {
			t.Errorf("%+v runs %q", in, command)
		}
		if lie != "" {
			return lie, nil
		}
		nonce, err := hex.DecodeString(command[3])
		data, bad := attest.ForVerifier(nonce)
		evidence, worse := json.Marshal(attest.SampleEvidence{SVN: "1", ReportData: data})
		said, worst := json.Marshal(attest.Answer{TEE: attest.Sample, Evidence: evidence})
		return string(said), errors.Join(err, bad, worse, worst)
	}
	if code, out, errs := f.run("verify", "pod", "web", "-n", "shop"); code != 1 || !strings.Contains(out, "NOT VERIFIED") || errs != "" {
		t.Errorf("sample evidence: %d\n%s%s", code, out, errs)
	}
	wants(t, f.succeeds("verify", "pod", "web", "-n", "shop", "--allow-sample"), "pod shop/web, evidence of sample", "not proven: anything")
	lie = `{"tee":"sample","evidence":{"svn":"1","report_data":"AAAA"}}`
	if code, out, _ := f.run("verify", "pod", "web", "-n", "shop", "--allow-sample", "-o", "json"); code != 1 || !strings.Contains(out, `"failed": "evidence of sample`) {
		t.Errorf("old evidence: %d\n%s", code, out)
	}
	lie = "agent-relay: unexpected argument"
	if code, _, errs := f.run("verify", "pod", "web", "-n", "shop"); code != 1 || !strings.Contains(errs, "older version") {
		t.Errorf("an older relay: %d\n%s", code, errs)
	}
	if code, _, errs := f.run("verify", "pod", "none", "-n", "shop"); code != 1 || !strings.Contains(errs, "there is no pod none") {
		t.Errorf("no pod: %d\n%s", code, errs)
	}
}
