// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/open-policy-agent/opa/v1/rego"
	"go.yaml.in/yaml/v3"

	"github.com/outrigger/outrigger/internal/keybroker"
)

// required are the fields of each message, as Trustee's kbs.yaml and its code have them.
var required = map[string][]string{
	"Request":                {"version", "tee", "extra-params"},
	"Challenge":              {"nonce", "extra-params"},
	"Attestation":            {"init-data", "runtime-data", "tee-evidence"},
	"InitData":               {"format", "body"},
	"TeePubKeyEC":            {"kty", "crv", "alg", "x", "y"},
	"CompositeEvidence":      {"primary_evidence", "additional_evidence"},
	"AttestationToken":       {"token"},
	"AttestationTokenHeader": {"typ", "alg", "jwk"},
	"JweResponse":            {"protected", "encrypted_key", "iv", "ciphertext", "tag"},
	"KeyHeader":              {"alg", "enc", "epk"},
	"ErrorInformation":       {"type", "detail"},
}

// messages returns what client and server write to each other, by the names of kbs.yaml.
func messages(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	all := map[string]json.RawMessage{}
	b := start(t, Config{})
	upstream, inner := b.url, b.http.Transport
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent, _ := io.ReadAll(r.Body)
		request, err := http.NewRequestWithContext(r.Context(), r.Method, upstream+r.URL.String(), bytes.NewReader(sent))
		if err != nil {
			t.Error(err)
			return
		}
		request.Header = r.Header
		response, err := inner.RoundTrip(request)
		if err != nil {
			t.Error(err)
			return
		}
		defer response.Body.Close()
		answered, _ := io.ReadAll(response.Body)
		names := map[string][2]string{"auth": {"Request", "Challenge"}, "attest": {"Attestation", "AttestationToken"}}[strings.TrimPrefix(r.URL.Path, keybroker.Prefix)]
		if names[0] != "" {
			all[names[0]], all[names[1]] = sent, answered
		} else if response.StatusCode == http.StatusOK {
			all["JweResponse"] = answered
		} else {
			all["ErrorInformation"] = answered
		}
		w.Header()["Set-Cookie"] = response.Header["Set-Cookie"]
		w.WriteHeader(response.StatusCode)
		w.Write(answered)
	}))
	t.Cleanup(proxy.Close)
	b.url, b.certificate = proxy.URL, ""
	c := b.client(t, sample{}, "algorithm = \"sha384\"\nversion = \"0.1.0\"\n\n[data]\n")
	if _, err := c.Resource(t.Context(), uri); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resource(t.Context(), "kbs:///default/key/2"); err == nil {
		t.Fatal("there is no such resource")
	}
	part := func(of, field, name string) {
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(all[of], &fields); err != nil {
			t.Fatal(of, err)
		}
		all[name] = fields[field]
	}
	part("Attestation", "init-data", "InitData")
	part("Attestation", "runtime-data", "RuntimeData")
	part("RuntimeData", "tee-pubkey", "TeePubKeyEC")
	part("Attestation", "tee-evidence", "CompositeEvidence")
	delete(all, "RuntimeData") // kbs.yaml refers to it and does not have it
	decoded := func(of, field, name string) {
		part(of, field, name)
		var text string
		json.Unmarshal(all[name], &text)
		text, _, _ = strings.Cut(text, ".")
		all[name], _ = base64.RawURLEncoding.DecodeString(text)
	}
	decoded("JweResponse", "protected", "KeyHeader")
	decoded("AttestationToken", "token", "AttestationTokenHeader")
	return all
}

// TestMessagesHaveTheirFields compares with our table always, and with Trustee's own document where OUTRIGGER_KBS_OPENAPI
// is the path of its kbs/docs/kbs.yaml.
func TestMessagesHaveTheirFields(t *testing.T) {
	all := messages(t)
	for name, fields := range required {
		var message map[string]json.RawMessage
		if err := json.Unmarshal(all[name], &message); err != nil {
			t.Errorf("%s: %s, %v", name, all[name], err)
		}
		for _, field := range fields {
			if message[field] == nil {
				t.Errorf("%s has no %s: %s", name, field, all[name])
			}
		}
	}
	path := os.Getenv("OUTRIGGER_KBS_OPENAPI")
	if path == "" {
		t.Log("not compared with Trustee's kbs/docs/kbs.yaml: set OUTRIGGER_KBS_OPENAPI to its path")
		return
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	schemas := document["components"].(map[string]any)["schemas"].(map[string]any)
	if _, has := schemas["RuntimeData"]; !has {
		schemas["RuntimeData"] = map[string]any{
			"type": "object", "required": []any{"nonce", "tee-pubkey"},
			"properties": map[string]any{"nonce": map[string]any{"type": "string"}, "tee-pubkey": map[string]any{"$ref": "#/components/schemas/TeePubKey"}},
		}
		t.Log("kbs.yaml has no RuntimeData: compared with the text of the protocol")
	}
	for name, message := range all {
		if bad := mismatches(t, document, name, message); bad != nil {
			t.Errorf("%s: %v\n%s", name, bad, message)
		}
		if bad := mismatches(t, document, name, json.RawMessage(`{"nonce":1,"type":1,"token":1,"format":1,"alg":1}`)); bad == nil {
			t.Errorf("the schema of %s accepts anything", name)
		}
	}
}

// mismatches validates a message with the JSON Schema of the library for policies.
func mismatches(t *testing.T, document map[string]any, name string, message json.RawMessage) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(message, &value); err != nil {
		t.Fatal(name, err)
	}
	schema := map[string]any{"components": document["components"], "allOf": []any{map[string]any{"$ref": "#/components/schemas/" + name}}}
	results, err := rego.New(rego.Query("json.match_schema(input.message, input.schema)"), rego.StrictBuiltinErrors(true),
		rego.Input(map[string]any{"message": value, "schema": schema})).Eval(t.Context())
	if err != nil {
		t.Fatal(name, err)
	}
	if answer := results[0].Expressions[0].Value.([]any); answer[0] != true {
		return answer[1]
	}
	return nil
}
