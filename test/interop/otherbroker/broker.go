// SPDX-License-Identifier: Apache-2.0

// Package otherbroker is a second key broker for tests, written from Trustee's
// documents alone: kbs_attestation_protocol.md ("the text" below), kbs.yaml,
// initdata.md, tcb_claims.md, restful-as.md and the TPM verifier's README. It
// shares no code with the product, so that a client and its own tests cannot
// agree on one misreading. Where the documents leave a choice to the client, it
// accepts each that they permit, and Attestations tells which was taken.
package otherbroker

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// The documents bound nothing and give no time of validity.
const (
	maxBody  = 1 << 20 // bytes
	maxKept  = 1000    // cookies and tokens, lines, attestations
	maxLine  = 4096    // bytes
	validity = 5 * time.Minute
)

// Broker is a key broker. Its fields are set before the first request.
type Broker struct {
	Resources   map[string][]byte // by "repository/type/tag"; nil is one that is refused with 403
	AllowSample bool              // accept evidence of tee "sample", which proves nothing
	TrustedAKs  []*rsa.PublicKey  // attestation keys of TPMs; none: any key is accepted

	lock         sync.Mutex
	sessions     map[string]*session // by cookie, and attested ones by token too
	lines        []string
	attestations []Attestation
	signer       *rsa.PrivateKey
}

// session is immutable: a later state is another one in Broker.sessions.
type session struct {
	tee, nonce string
	until      time.Time
	used       bool // the challenge was answered, well or badly
	key        *teeKey
}

// visit is one request and what is remarkable about it.
type visit struct {
	*http.Request
	notes []string
}

func (v *visit) note(format string, args ...any) {
	v.notes = append(v.notes, fmt.Sprintf(format, args...))
}

// reply is what a request is answered with; cookie is set if it is not empty.
type reply struct {
	status            int
	mediaType, cookie string
	body              any
}

// refuse is an error of RFC 7807 with a type from the text's table. kbs.yaml has
// it as application/json, not as RFC 7807's application/problem+json.
func (v *visit) refuse(status int, problem, format string, args ...any) reply {
	detail := fmt.Sprintf(format, args...)
	v.note("refused: %s: %s", problem, detail)
	return reply{status, "application/json", "", map[string]string{
		"type": "https://github.com/confidential-containers/kbs/errors/" + problem, "detail": detail}}
}

// Log returns one line per request, oldest first: method, path in quotes and
// status, then after "; " each "deviation: …" from kbs.yaml, each "note: …" about what the
// documents leave open, and "refused: …". The newest 1,000 lines are kept.
func (b *Broker) Log() []string {
	b.lock.Lock()
	defer b.lock.Unlock()
	return slices.Clone(b.lines)
}

// Attestations returns what was accepted at /attest, oldest first, the newest 1,000.
func (b *Broker) Attestations() []Attestation {
	b.lock.Lock()
	defer b.lock.Unlock()
	return slices.Clone(b.attestations)
}

// ServeHTTP serves /kbs/v0/auth, /kbs/v0/attest and /kbs/v0/resource/REPOSITORY/TYPE/TAG.
// It refuses a request that deviates from kbs.yaml only if it lacks what is needed to go on.
func (b *Broker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	v := &visit{Request: r}
	answer := b.serve(v)
	line := strings.Join(append([]string{fmt.Sprintf("%s %.200q %d", r.Method, r.URL.Path, answer.status)}, v.notes...), "; ")
	b.lock.Lock() // before the answer, so that a client that has it finds the line
	b.lines = newest(append(b.lines, line[:min(len(line), maxLine)]))
	b.lock.Unlock()
	w.Header().Set("Content-Type", answer.mediaType)
	if answer.cookie != "" {
		w.Header().Set("Set-Cookie", "kbs-session-id="+answer.cookie)
	}
	w.WriteHeader(answer.status)
	_ = json.NewEncoder(w).Encode(answer.body) // a client that has gone needs no answer
}

func newest[T any](all []T) []T { return all[max(0, len(all)-maxKept):] }

func (b *Broker) serve(v *visit) reply {
	endpoint, _ := strings.CutPrefix(v.URL.Path, "/kbs/v0/")
	resource, isResource := strings.CutPrefix(endpoint, "resource/")
	method := map[bool]string{false: http.MethodPost, true: http.MethodGet}[isResource]
	body, err := io.ReadAll(io.LimitReader(v.Body, maxBody+1))
	switch {
	case endpoint == v.URL.Path || !isResource && endpoint != "auth" && endpoint != "attest":
		return v.refuse(http.StatusNotFound, "InvalidRequestPath", "no such endpoint")
	case v.Method != method:
		return v.refuse(http.StatusMethodNotAllowed, "InvalidRequestPath", "the endpoint accepts only %s", method)
	case err != nil || len(body) > maxBody:
		return v.refuse(http.StatusBadRequest, "SerdeError", "the body cannot be read or has more than %d bytes", maxBody)
	case isResource:
		return b.resource(v, resource)
	}
	if kind, _, _ := strings.Cut(v.Header.Get("Content-Type"), ";"); kind != "application/json" {
		v.note("deviation: Content-Type is %.80q", kind)
	}
	if endpoint == "auth" {
		return b.auth(v, body)
	}
	return b.attest(v, body)
}

// auth refuses what is malformed with 400, as kbs.yaml, and what it does not
// support with 401, as the text. Which versions go together no document says.
func (b *Broker) auth(v *visit, body []byte) reply {
	found, err := v.check(body, request)
	if err != nil {
		return v.refuse(http.StatusBadRequest, "SerdeError", "the Request: %v", err)
	}
	tee := text(found["tee"])
	v.note("note: version %.20q", text(found["version"]))
	if tee != "tpm" && (tee != "sample" || !b.AllowSample) {
		return v.refuse(http.StatusUnauthorized, "AttestationError", "evidence of tee %.20q is not accepted here", tee)
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	if old, err := v.Cookie("kbs-session-id"); err == nil {
		v.note("note: auth with a cookie, which the text's figure 1 has not")
		delete(b.sessions, old.Value) // its key is "valid until the next time the KBC receives an attestation challenge"
	}
	maps.DeleteFunc(b.sessions, func(_ string, s *session) bool { return time.Now().After(s.until) })
	if len(b.sessions) >= maxKept {
		return v.refuse(http.StatusUnauthorized, "AttestationError", "there are too many sessions")
	}
	if b.sessions == nil {
		b.sessions = map[string]*session{}
	}
	id, nonce := rand.Text(), rand.Text()
	b.sessions[id] = &session{tee: tee, nonce: nonce, until: time.Now().Add(validity)}
	return reply{http.StatusOK, "application/json", id, map[string]any{"nonce": nonce, "extra-params": map[string]any{}}}
}

// attest lets a challenge be answered once; the documents do not say.
func (b *Broker) attest(v *visit, body []byte) reply {
	found, err := v.check(body, attestation)
	if err != nil {
		return v.refuse(http.StatusUnauthorized, "SerdeError", "the Attestation: %v", err)
	}
	id, s := b.find(v, true)
	if s == nil || text(found["runtime-data.nonce"]) != s.nonce {
		return v.refuse(http.StatusUnauthorized, "AttestationError", "no session with this cookie and nonce awaits an answer")
	}
	key, err := v.teeKey(found["runtime-data.tee-pubkey"])
	if err != nil {
		return v.refuse(http.StatusUnauthorized, "AttestationError", "tee-pubkey: %v", err)
	}
	accepted, err := b.verify(v, s.tee, found)
	if err != nil {
		return v.refuse(http.StatusUnauthorized, "AttestationError", "%v", err)
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	token, err := b.token(key, accepted, s.until)
	if err != nil {
		return v.refuse(http.StatusUnauthorized, "AttestationError", "making the token: %v", err)
	}
	attested := *s
	attested.key = key
	b.sessions[id], b.sessions[token] = &attested, &attested
	b.attestations = newest(append(b.attestations, accepted))
	return reply{http.StatusOK, "application/json", id, map[string]string{"token": token}}
}

func (b *Broker) resource(v *visit, name string) reply {
	id, s := b.find(v, false)
	if s == nil || s.key == nil {
		return v.refuse(http.StatusUnauthorized, "TokenNotFound", "neither a cookie nor a token of an attested session")
	}
	secret, exists := b.Resources[name]
	switch {
	case strings.Count(name, "/") != 2 || !exists:
		return v.refuse(http.StatusNotFound, "InvalidRequestPath", "no such resource")
	case secret == nil:
		return v.refuse(http.StatusForbidden, "PolicyDeny", "the policy does not release it")
	}
	sealed, err := seal(s.key, secret)
	if err != nil {
		return v.refuse(http.StatusUnauthorized, "JweError", "%v", err)
	}
	return reply{http.StatusOK, "application/jwe", id, sealed}
}

// find returns the session of a request that is valid, and the cookie if it has
// one. A token comes "instead of (or before)" the cookie. With answer it returns
// a session whose challenge is open, and closes it.
func (b *Broker) find(v *visit, answer bool) (id string, s *session) {
	key, bearer := strings.CutPrefix(v.Header.Get("Authorization"), "Bearer ")
	if cookie, err := v.Cookie("kbs-session-id"); err == nil && (answer || !bearer) {
		id, key = cookie.Value, cookie.Value
	}
	b.lock.Lock()
	defer b.lock.Unlock()
	s = b.sessions[key]
	if s == nil || time.Now().After(s.until) || answer && (s.used || id == "") {
		return "", nil
	}
	if answer {
		closed := *s
		closed.used = true
		s, b.sessions[key] = &closed, &closed
	}
	return id, s
}
