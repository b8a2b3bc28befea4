// SPDX-License-Identifier: Apache-2.0

// Package server is a small key broker, for development and tests: resources are files in a folder, a policy in Rego says
// which VM gets which. It is not a Trustee: it keeps nothing, has one policy, and nobody administers it over the network.
package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/pelletier/go-toml/v2"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/keybroker"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/provider/cloudinit"
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

// attested returns key and claims of a request's session, or of the token that it brings.
func (s *Server) attested(r *http.Request) (*ecdsa.PublicKey, map[string]any, error) {
	_, found, err := s.find(r)
	if token, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); err != nil && is {
		return s.parse(token)
	}
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if found.key == nil {
		return nil, nil, &failure{http.StatusUnauthorized, "TokenNotFound", errors.New("this session has not attested")}
	}
	return found.key, found.input, nil
}

// parse verifies a token by this broker's key, never by the one in it.
func (s *Server) parse(token string) (*ecdsa.PublicKey, map[string]any, error) {
	bad := &failure{http.StatusUnauthorized, "TokenVerifierError", errors.New("the token is not one of this broker that is valid now")}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil, nil, bad
	}
	payload, err := signed.Verify(s.cfg.Key.Public())
	if err != nil {
		return nil, nil, bad
	}
	var claims struct {
		Expires int64         `json:"exp"`
		PubKey  keybroker.JWK `json:"tee-pubkey"`
	}
	var input map[string]any
	if errors.Join(json.Unmarshal(payload, &claims), json.Unmarshal(payload, &input)) != nil || s.cfg.now().Unix() >= claims.Expires {
		return nil, nil, bad
	}
	key, err := claims.PubKey.Key()
	return key, input, err
}

// appraised returns what the claims of a policy's input say of the VM.
func appraised(input map[string]any) string {
	submods, _ := input["submods"].(map[string]any)
	cpu, _ := submods["cpu0"].(map[string]any)
	return fmt.Sprintf("the VM is %v: %v", cpu["ear.status"], cpu["outrigger.why"])
}

// resource gives a VM what the policy gives it.
func (s *Server) resource(r *http.Request) (*answer, error) {
	key, input, err := s.attested(r)
	if err != nil {
		return nil, err
	}
	names := []string{r.PathValue("repository"), r.PathValue("type"), r.PathValue("tag")}
	name := strings.Join(names, "/")
	if _, err := keybroker.ResourcePath("kbs:///" + name); err != nil {
		return nil, &failure{http.StatusNotFound, "InvalidRequestPath", err}
	}
	if err := s.policy.allow(r.Context(), input, names, r.URL.Query()); err != nil {
		return nil, &failure{http.StatusForbidden, "PolicyDeny", fmt.Errorf("resource %s: %w; %s", name, err, appraised(input))}
	}
	data, err := s.read(name)
	if err != nil {
		return nil, err
	}
	sealed, err := encrypt(data, key)
	if err != nil {
		return nil, err
	}
	s.cfg.Log.Info("resource", "name", name, "from", r.RemoteAddr)
	return &answer{"application/jwe", "", sealed}, nil
}

// read reads a resource's file, which is in the folder: os.Root follows no link out of it. Trustee says PluginInternalError of what it does
// not have.
func (s *Server) read(name string) ([]byte, error) {
	root, err := os.OpenRoot(s.cfg.Resources)
	if err != nil {
		return nil, fmt.Errorf("the folder of resources: %w", err)
	}
	defer root.Close()
	none := &failure{http.StatusNotFound, "PluginInternalError", fmt.Errorf("there is no resource %s", name)}
	info, err := root.Stat(name)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxResource) {
		err = fmt.Errorf("it is not a file of at most %d bytes", maxResource)
	}
	var data []byte
	if err == nil {
		data, err = root.ReadFile(name)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.cfg.Log.Error("resource", "name", name, "err", err)
	}
	if err != nil {
		return nil, none
	}
	return data, nil
}

// Resources returns the names of the resources that there are.
func (s *Server) Resources() (names []string, err error) {
	err = fs.WalkDir(os.DirFS(s.cfg.Resources), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.Count(name, "/") == 2 {
			names = append(names, name)
		}
		return err
	})
	slices.Sort(names)
	return names, err
}
