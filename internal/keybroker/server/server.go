// SPDX-License-Identifier: Apache-2.0

// Package server is a small key broker, for development and tests: resources are files in a folder, a policy in Rego says
// which VM gets which. It is not a Trustee: it keeps nothing, has one policy, and nobody administers it over the network.
package server

import (
	"context"
	"crypto/ecdsa"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/keybroker"
)

// Verifier says what evidence proves.
type Verifier interface {
	Verify(ctx context.Context, tee attest.TEE, evidence json.RawMessage, want attest.Expected) (attest.Claims, error)
	// NewCredential returns what only the TPM of an identity can decrypt, if its endorsement key is certified.
	NewCredential(identity attest.TPMIdentity, secret []byte) (attest.TPMCredential, error)
}

// Config is what a broker knows.
type Config struct {
	// Resources is a folder with files REPOSITORY/TYPE/TAG.
	Resources string
	// Policy is Rego: see [DefaultPolicy].
	Policy string
	// References are what claims must be for a VM to be called affirming.
	References attest.References
	Verifier   Verifier
	// Certified demands of a TPM that its endorsement key is certified.
	Certified bool
	// Key signs tokens, ECDSA of P-256.
	Key *ecdsa.PrivateKey
	Log *slog.Logger

	now func() time.Time // of tests
}

const (
	nonceSize   = 32
	secretSize  = 32
	sessionTime = 5 * time.Minute
	// maxSessions bounds the memory; an older session is forgotten for a newer one.
	maxSessions = 4096
	// maxResource bounds a file, in bytes.
	maxResource = 4 << 20
	// hash is Trustee's choice, too.
	hash = keybroker.DefaultHash
)

// Server is a broker.
type Server struct {
	cfg    Config
	policy *policy
	signer jose.Signer

	mu       sync.Mutex
	sessions map[string]*session
	order    []string // of sessions, the oldest first
}

// New checks a configuration.
func New(cfg Config) (*Server, error) {
	if cfg.now == nil {
		cfg.now = time.Now
	}
	compiled, err := compile(cfg.Policy)
	if err != nil {
		return nil, err
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: cfg.Key}, (&jose.SignerOptions{EmbedJWK: true}).WithType("JWT"))
	if err != nil {
		return nil, fmt.Errorf("the key of tokens: %w", err)
	}
	return &Server{cfg: cfg, policy: compiled, signer: signer, sessions: map[string]*session{}}, nil
}

// Handler serves the protocol.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+keybroker.Prefix+"auth", s.serve(s.auth))
	mux.HandleFunc("POST "+keybroker.Prefix+"attest", s.serve(s.attest))
	mux.HandleFunc("GET "+keybroker.Prefix+"resource/{repository}/{type}/{tag}", s.serve(s.resource))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/", s.serve(func(*http.Request) (*answer, error) {
		return nil, &failure{http.StatusNotFound, "InvalidRequestPath", errors.New("this broker has POST auth, POST attest and GET resource/REPOSITORY/TYPE/TAG below /kbs/v0")}
	}))
	return mux
}

// answer is one of success.
type answer struct {
	kind    string
	session string
	body    any
}

// failure is a problem of a kind that Trustee has (kbs/src/error.rs), with its status.
type failure struct {
	status int
	kind   string
	error
}

func (s *Server) serve(handle func(*http.Request) (*answer, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, keybroker.MaxMessage)
		given, err := handle(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if given.session != "" {
			http.SetCookie(w, &http.Cookie{Name: keybroker.Cookie, Value: given.session, Path: keybroker.Prefix, HttpOnly: true})
		}
		w.Header().Set("Content-Type", given.kind)
		json.NewEncoder(w).Encode(given.body) //nolint:errcheck // the VM has gone
	}
}

func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	f := &failure{http.StatusUnauthorized, "AttestationError", err}
	errors.As(err, &f)
	s.cfg.Log.Warn("refused", "path", r.URL.Path, "from", r.RemoteAddr, "problem", f.kind, "err", err)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(f.status)
	json.NewEncoder(w).Encode(keybroker.Problem{Type: keybroker.ProblemType + f.kind, Detail: fmt.Sprintf("%.1024v", err)}) //nolint:errcheck // as above
}

// read reads a message strictly enough: fields that are not known are those of newer clients.
func read(r *http.Request, into any) error {
	data, err := io.ReadAll(r.Body)
	if err != nil {
		return &failure{http.StatusRequestEntityTooLarge, "SerdeError", fmt.Errorf("the message has more than %d bytes, or was cut off", keybroker.MaxMessage)}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &failure{http.StatusUnauthorized, "SerdeError", errors.New("the message is not the JSON that is expected here")}
	}
	return nil
}
