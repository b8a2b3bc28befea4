// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/keybroker"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// attest verifies evidence.
func (s *Server) attest(r *http.Request) (*answer, error) {
	id, found, err := s.take(r)
	if err != nil {
		return nil, err
	}
	var message keybroker.Attestation
	if err := read(r, &message); err != nil {
		return nil, err
	}
	key, err := message.RuntimeData.PubKey.Key()
	if err != nil {
		return nil, err
	}
	if message.RuntimeData.Nonce != found.nonce {
		return nil, errors.New("the nonce is not that of the session")
	}
	if text := message.Evidence.Additional; text != "" && text != "{}" {
		return nil, errors.New("this broker verifies no evidence of further devices")
	}
	expected := attest.Expected{Credential: found.secret}
	if expected.ReportData, err = message.ReportData(hash); err != nil {
		return nil, err
	}
	initdata, err := readInitData(message.InitData)
	if err != nil {
		return nil, err
	}
	if initdata != nil {
		if expected.InitData, err = hex.DecodeString(initdata.Digest()); err != nil {
			return nil, err
		}
	}
	claims, err := s.cfg.Verifier.Verify(r.Context(), found.tee, message.Evidence.Primary, expected)
	if err != nil {
		return nil, err
	}
	return s.accept(id, found, key, &message, s.appraise(found.tee, claims, initdata, message.RuntimeData))
}

func readInitData(given *keybroker.InitData) (*cloudinit.InitData, error) {
	if given == nil {
		return nil, nil
	}
	if given.Format != "toml" {
		return nil, fmt.Errorf("initdata of format %.32q: this broker reads toml", given.Format)
	}
	return cloudinit.DecodeInitData(given.Body)
}

// Values of ear.status (draft-ietf-rats-ar4si).
const (
	affirming       = "affirming"
	warning         = "warning"
	contraindicated = "contraindicated"
)

// appraise returns what policies get: names are Trustee's (attestation-service/docs/attestation_token.md), except for init_data_digest, which
// is there if the VM sent the initdata that it has measured.
func (s *Server) appraise(tee attest.TEE, claims attest.Claims, initdata *cloudinit.InitData, runtime keybroker.RuntimeData) map[string]any {
	evidence := map[string]any{string(tee): claims, "runtime_data_claims": runtime}
	for _, name := range []string{"report_data", "init_data"} {
		if value, is := claims[name]; is {
			evidence[name] = value
		}
	}
	if initdata != nil {
		evidence["init_data_digest"] = initdata.Digest()
		evidence["init_data_claims"] = initDataClaims(initdata)
	}
	status, vector, why := s.judge(tee, claims)
	if initdata != nil {
		why += "; the initdata is " + initdata.Digest()
	}
	return map[string]any{"submods": map[string]any{"cpu0": map[string]any{
		"ear.status": status, "ear.trustworthiness-vector": vector, "ear.appraisal-policy-id": "reference-values", "outrigger.why": why,
		"ear.veraison.annotated-evidence": evidence,
	}}}
}

// judge says what claims are worth. Values of vectors are those of draft-ietf-rats-ar4si, 2.3.3: of executables 3 are the approved ones, 33 are
// not recognized, 99 are contraindicated; hardware is genuine with 2, and 0 says nothing.
func (s *Server) judge(tee attest.TEE, claims attest.Claims) (status string, vector map[string]int, why string) {
	agree, err := s.cfg.References.Appraise(tee, claims)
	_, named := s.cfg.References["trusted_ak"]
	switch {
	case err != nil:
		return contraindicated, map[string]int{"executables": 99, "hardware": 0}, err.Error()
	case tee == attest.TPM && claims["ak_certified"] != true && !named:
		return warning, map[string]int{"executables": 33, "hardware": 0}, "anybody can have made the quote: the TPM's maker is not asked for (--tpm-ca), nor is its key a reference value (trusted_ak)"
	case len(agree) == 0:
		return warning, map[string]int{"executables": 33, "hardware": 0}, "there is no reference value for this TEE"
	}
	return affirming, map[string]int{"executables": 3, "hardware": 2}, "as the reference values have it: " + strings.Join(agree, ", ")
}

// initDataClaims returns the settings in an initdata as JSON, where they are TOML.
func initDataClaims(initdata *cloudinit.InitData) map[string]any {
	claims := map[string]any{}
	for _, name := range []string{"aa.toml", "cdh.toml"} {
		var settings map[string]any
		if text := initdata.Data[name]; strings.TrimSpace(text) != "" && toml.Unmarshal([]byte(text), &settings) == nil {
			claims[name] = settings
		}
	}
	return claims
}

// accept makes the session one of a VM that has attested, and returns its token.
func (s *Server) accept(id string, found *session, key *ecdsa.PublicKey, message *keybroker.Attestation, appraisal map[string]any) (*answer, error) {
	now := s.cfg.now()
	input := map[string]any{
		"iss": "outrigger-kbs", "iat": now.Unix(), "exp": found.until.Unix(), "tee-pubkey": message.RuntimeData.PubKey,
		"eat_profile": "tag:github.com,2024:confidential-containers/Trustee", "ear.verifier-id": map[string]string{"developer": "outrigger", "build": "outrigger-kbs " + version.String()},
	}
	for name, value := range appraisal {
		input[name] = value
	}
	payload, err := json.Marshal(input)
	if err != nil {
		return nil, err
	}
	signed, err := s.signer.Sign(payload)
	if err != nil {
		return nil, err
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		return nil, err
	}
	var plain map[string]any // as who reads the token has it
	if err := json.Unmarshal(payload, &plain); err != nil {
		return nil, err
	}
	s.mu.Lock()
	found.key, found.input = key, plain
	s.mu.Unlock()
	s.cfg.Log.Info("attested", "tee", found.tee, "appraisal", appraisal["submods"].(map[string]any)["cpu0"].(map[string]any)["outrigger.why"])
	return &answer{"application/json", id, keybroker.Token{Token: token}}, nil
}
