// SPDX-License-Identifier: Apache-2.0

package server

import (
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/keybroker"
)

// session is a VM that has asked for a challenge, and may have attested.
type session struct {
	tee    attest.TEE
	nonce  string
	secret []byte // of the TPM's credential
	until  time.Time
	used   bool // the nonce is

	key   *ecdsa.PublicKey // of the VM, once it has attested
	input map[string]any   // of the policy
}

// auth begins a session.
func (s *Server) auth(r *http.Request) (*answer, error) {
	var request keybroker.Request
	if err := read(r, &request); err != nil {
		return nil, err
	}
	if request.Version != keybroker.Version {
		return nil, fmt.Errorf("version %.32q of the protocol: this broker has %s", request.Version, keybroker.Version)
	}
	switch attest.TEE(request.TEE) {
	case attest.Sample, attest.TPM, attest.SNP, attest.TDX:
	default: // also a text of megabytes, which a session would keep
		return nil, fmt.Errorf("no verifier for evidence of %.32q: the known ones are sample, snp, tdx and tpm", request.TEE)
	}
	opened := &session{tee: attest.TEE(request.TEE), until: s.cfg.now().Add(sessionTime)}
	random := make([]byte, 2*nonceSize)
	if _, err := rand.Read(random); err != nil {
		return nil, err
	}
	opened.nonce = base64.StdEncoding.EncodeToString(random[:nonceSize])
	extra := map[string]any{"selected-hash-algorithm": hash}
	if opened.tee == attest.TPM && s.cfg.Certified {
		credential, err := s.credential(opened, request.ExtraParams)
		if err != nil {
			return nil, err
		}
		extra["tpm-credential"] = credential
	}
	params, err := json.Marshal(extra)
	if err != nil {
		return nil, err
	}
	id := hex.EncodeToString(random[nonceSize:])
	s.remember(id, opened)
	return &answer{"application/json", id, keybroker.Challenge{Nonce: opened.nonce, ExtraParams: params}}, nil
}

// credential makes a secret for the TPM that presents itself.
func (s *Server) credential(opened *session, params json.RawMessage) (*attest.TPMCredential, error) {
	var extra struct {
		TPM *attest.TPMIdentity `json:"tpm"`
	}
	if err := json.Unmarshal(params, &extra); err != nil || extra.TPM == nil {
		return nil, errors.New("this broker wants the certificate of a TPM's endorsement key, as extra-params.tpm")
	}
	opened.secret = make([]byte, secretSize)
	if _, err := rand.Read(opened.secret); err != nil {
		return nil, err
	}
	credential, err := s.cfg.Verifier.NewCredential(*extra.TPM, opened.secret)
	return &credential, err
}

func (s *Server) remember(id string, opened *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.order) >= maxSessions {
		delete(s.sessions, s.order[0])
		s.order = s.order[1:]
	}
	s.sessions[id], s.order = opened, append(s.order, id)
}

// find returns the session of a request's cookie.
func (s *Server) find(r *http.Request) (string, *session, error) {
	cookie, err := r.Cookie(keybroker.Cookie)
	if err != nil {
		return "", nil, &failure{http.StatusUnauthorized, "TokenNotFound", errors.New("there is no cookie " + keybroker.Cookie + ": attest first")}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := s.sessions[cookie.Value]
	if found == nil || s.cfg.now().After(found.until) {
		return "", nil, &failure{http.StatusUnauthorized, "TokenNotFound", errors.New("the session has expired, or never was: attest again")}
	}
	return cookie.Value, found, nil
}

// take returns the session of a challenge, once.
func (s *Server) take(r *http.Request) (string, *session, error) {
	id, found, err := s.find(r)
	if err != nil {
		return "", nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found.used {
		return "", nil, errors.New("the session's challenge was answered before: begin another")
	}
	found.used = true
	return id, found, nil
}
