// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/verify"
	"github.com/outrigger/outrigger/internal/keybroker"
	"github.com/outrigger/outrigger/internal/keybroker/client"
)

const (
	uri    = "kbs:///default/key/1"
	secret = "s3cr3t of the resource"
)

// clock is one that a test sets.
type clock struct {
	mu   sync.Mutex
	time time.Time
}

func (c *clock) now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.time }

func (c *clock) add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.time = c.time.Add(d) }

// broker is one that serves.
type broker struct {
	url, certificate string
	clock            *clock
	folder           string
	log              *bytes.Buffer
	http             *http.Client
}

const allowAll = "package policy\ndefault allow := true\n"

// start serves a broker that accepts samples and gives all, unless cfg says otherwise.
func start(t testing.TB, cfg Config) *broker {
	t.Helper()
	b := &broker{clock: &clock{time: time.Now()}, folder: t.TempDir(), log: &bytes.Buffer{}}
	b.write(t, "default/key/1", secret)
	cfg.Resources, cfg.now, cfg.Log = b.folder, b.clock.now, slog.New(slog.NewTextHandler(b.log, nil))
	if cfg.Verifier == nil {
		cfg.Verifier = &verify.Verifier{AllowSample: true}
	}
	if cfg.Policy == "" {
		cfg.Policy = allowAll
	}
	cfg.Key = newKey(t, elliptic.P256())
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewTLSServer(s.Handler())
	t.Cleanup(web.Close)
	b.url, b.http = web.URL, web.Client()
	b.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	b.certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}))
	return b
}

func newKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (b *broker) write(t testing.TB, path, text string) {
	t.Helper()
	path = filepath.Join(b.folder, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (b *broker) client(t testing.TB, a attest.Attester, initData string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: b.url, Certificate: b.certificate, Attester: a, InitData: initData, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type sample struct{}

func (sample) TEE() attest.TEE { return attest.Sample }

func (sample) Evidence(_ context.Context, reportData []byte) (json.RawMessage, error) {
	return json.Marshal(attest.SampleEvidence{SVN: "1", ReportData: reportData})
}

// TestToken looks at what a token says, and at what the log does not.
func TestToken(t *testing.T) {
	b := start(t, Config{})
	c := b.client(t, sample{}, "algorithm = \"sha384\"\nversion = \"0.1.0\"\n\n[data]\n\"aa.toml\" = \"a = 1\"\n")
	if got, err := c.Resource(t.Context(), uri); err != nil || string(got) != secret {
		t.Fatalf("%q, %v", got, err)
	}
	token, _, err := c.Token(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])
	for _, want := range []string{`"ear.status":"warning"`, `"ear.trustworthiness-vector":{`, `"ear.verifier-id":{`, `"init_data_claims":{"aa.toml":{"a":1}}`, `"runtime_data_claims":{"nonce":"`, `"sample":{`, `"exp":`} {
		if !bytes.Contains(payload, []byte(want)) {
			t.Errorf("the token has no %s: %s", want, payload)
		}
	}
	if text := b.log.String(); !strings.Contains(text, "name=default/key/1") || strings.Contains(text, secret) || strings.Contains(text, token) {
		t.Errorf("log:\n%s", text)
	}
}

// TestJudgement: evidence that agrees with reference values is worth something if somebody vouches for who made it.
func TestJudgement(t *testing.T) {
	for name, c := range map[string]struct {
		references attest.References
		claims     attest.Claims
		want       string
	}{
		"certified":       {attest.References{"tpm_pcr04": {"aa"}}, attest.Claims{"pcr04": "aa", "ak_certified": true}, affirming},
		"by its key":      {attest.References{"pcr04": {"aa"}, "trusted_ak": {"k"}}, attest.Claims{"pcr04": "aa", "ak_public": "k"}, affirming},
		"of anybody":      {attest.References{"pcr04": {"aa"}}, attest.Claims{"pcr04": "aa", "ak_certified": false}, warning},
		"another key":     {attest.References{"pcr04": {"aa"}, "trusted_ak": {"k"}}, attest.Claims{"pcr04": "aa", "ak_public": "j"}, contraindicated},
		"another image":   {attest.References{"pcr04": {"aa"}}, attest.Claims{"pcr04": "ab", "ak_certified": true}, contraindicated},
		"no claim":        {attest.References{"pcr30": {"aa"}}, attest.Claims{"ak_certified": true}, contraindicated},
		"no reference":    {nil, attest.Claims{"ak_certified": true}, warning},
		"of another kind": {attest.References{"snp_measurement": {"aa"}}, attest.Claims{"ak_certified": true}, warning},
	} {
		s := &Server{cfg: Config{References: c.references}}
		if got, _, why := s.judge(attest.TPM, c.claims); got != c.want {
			t.Errorf("%s: %s (%s), want %s", name, got, why, c.want)
		}
	}
}

func decrypted(reply []byte, key *ecdsa.PrivateKey) ([]byte, error) {
	sealed, err := jose.ParseEncryptedJSON(string(reply), []jose.KeyAlgorithm{jose.ECDH_ES_A256KW}, []jose.ContentEncryption{jose.A256GCM})
	if err != nil {
		return nil, err
	}
	return sealed.Decrypt(key)
}

// exchange is the protocol by hand.
type exchange struct {
	t      testing.TB
	b      *broker
	cookie *http.Cookie
	key    *ecdsa.PrivateKey
	bearer string
}

func (e *exchange) do(method, path string, body any) (int, []byte) {
	e.t.Helper()
	var text []byte
	switch body := body.(type) {
	case nil:
	case []byte:
		text = body
	default:
		var err error
		if text, err = json.Marshal(body); err != nil {
			e.t.Fatal(err)
		}
	}
	request, err := http.NewRequest(method, e.b.url+path, bytes.NewReader(text))
	if err != nil {
		e.t.Fatal(err)
	}
	if e.cookie != nil {
		request.AddCookie(e.cookie)
	}
	if e.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+e.bearer)
	}
	response, err := e.b.http.Do(request)
	if err != nil {
		e.t.Fatal(err)
	}
	defer response.Body.Close()
	reply, err := io.ReadAll(response.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	for _, cookie := range response.Cookies() {
		e.cookie = cookie
	}
	return response.StatusCode, reply
}

// begin returns an attestation that the broker would accept.
func (e *exchange) begin() *keybroker.Attestation {
	e.t.Helper()
	e.cookie = nil
	status, reply := e.do("POST", "/kbs/v0/auth", keybroker.Request{Version: keybroker.Version, TEE: "sample", ExtraParams: json.RawMessage(`""`)})
	var challenge keybroker.Challenge
	if err := json.Unmarshal(reply, &challenge); status != 200 || err != nil {
		e.t.Fatalf("%d %s, %v", status, reply, err)
	}
	e.key = newKey(e.t, elliptic.P256())
	a := &keybroker.Attestation{RuntimeData: keybroker.RuntimeData{Nonce: challenge.Nonce, PubKey: keybroker.PublicJWK(&e.key.PublicKey)}}
	e.bind(a)
	return a
}

func (e *exchange) bind(a *keybroker.Attestation) {
	e.t.Helper()
	data, err := a.ReportData(hash)
	if err == nil {
		a.Evidence.Primary, err = json.Marshal(attest.SampleEvidence{SVN: "1", ReportData: data})
	}
	if err != nil {
		e.t.Fatal(err)
	}
}

// refused asserts a problem.
func (e *exchange) refused(status int, reply []byte, wantStatus int, want string) {
	e.t.Helper()
	var p keybroker.Problem
	if err := json.Unmarshal(reply, &p); err != nil || status != wantStatus || !strings.Contains(p.Type+" "+p.Detail, want) || strings.Contains(string(reply), secret) {
		e.t.Errorf("%d %s, want %d with %q", status, reply, wantStatus, want)
	}
}

func TestAttestationIsRefused(t *testing.T) {
	b := start(t, Config{})
	for want, change := range map[string]func(*exchange, *keybroker.Attestation){
		"nonce is not": func(e *exchange, a *keybroker.Attestation) { a.RuntimeData.Nonce = "bm9uY2U="; e.bind(a) },
		"report data": func(e *exchange, a *keybroker.Attestation) {
			a.RuntimeData.PubKey = keybroker.PublicJWK(&newKey(e.t, elliptic.P256()).PublicKey)
		},
		"further devices": func(e *exchange, a *keybroker.Attestation) { a.Evidence.Additional = `{"x":1}`; e.bind(a) },
		"tee-pubkey":      func(e *exchange, a *keybroker.Attestation) { a.RuntimeData.PubKey.Crv = "P-384"; e.bind(a) },
		"initdata of":     func(_ *exchange, a *keybroker.Attestation) { a.InitData = &keybroker.InitData{Format: "json"} },
		"initdata": func(_ *exchange, a *keybroker.Attestation) {
			a.InitData = &keybroker.InitData{Format: "toml", Body: "="}
		},
		"evidence of":         func(_ *exchange, a *keybroker.Attestation) { a.Evidence.Primary = json.RawMessage("null") },
		"session has expired": func(e *exchange, _ *keybroker.Attestation) { e.cookie.Value = "other" },
		"no cookie":           func(e *exchange, _ *keybroker.Attestation) { e.cookie = nil },
	} {
		e := &exchange{t: t, b: b}
		a := e.begin()
		change(e, a)
		status, reply := e.do("POST", "/kbs/v0/attest", a)
		e.refused(status, reply, 401, want)
		// The nonce is used up.
		if e.cookie != nil {
			status, reply = e.do("GET", "/kbs/v0/resource/default/key/1", nil)
			e.refused(status, reply, 401, "TokenNotFound")
		}
	}
	e := &exchange{t: t, b: b}
	for body, want := range map[string]int{"{": 401, `{"version":"0.4.0","tee":["sample"]}`: 401, `{"version":"0.1.1","tee":"sample"}`: 401, `{"version":"0.4.0","tee":"sgx"}`: 401, strings.Repeat(" ", keybroker.MaxMessage) + "{}": 413} {
		status, reply := e.do("POST", "/kbs/v0/auth", []byte(body))
		e.refused(status, reply, want, "")
	}
	e.begin()
	status, reply := e.do("POST", "/kbs/v0/attest", bytes.Repeat([]byte(" "), keybroker.MaxMessage+1))
	e.refused(status, reply, 413, "more than")
	for _, path := range []string{"/", "/kbs/v1/auth", "/kbs/v0", "/metrics"} {
		status, reply := e.do("GET", path, nil)
		e.refused(status, reply, 404, "")
	}
	if status, _ := e.do("GET", "/healthz", nil); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
}

func TestSampleIsRefused(t *testing.T) {
	b := start(t, Config{Verifier: &verify.Verifier{}})
	if _, err := b.client(t, sample{}, "").Resource(t.Context(), uri); !errors.Is(err, keybroker.ErrRefused) || !strings.Contains(err.Error(), "sample") {
		t.Error(err)
	}
}

func TestSessionIsForOneNonce(t *testing.T) {
	b := start(t, Config{})
	e := &exchange{t: t, b: b}
	a := e.begin()
	status, reply := e.do("GET", "/kbs/v0/resource/default/key/1", nil)
	e.refused(status, reply, 401, "has not attested")
	if status, reply := e.do("POST", "/kbs/v0/attest", a); status != 200 {
		t.Fatalf("%d %s", status, reply)
	}
	status, reply = e.do("POST", "/kbs/v0/attest", a)
	e.refused(status, reply, 401, "answered before")

	a = e.begin()
	b.clock.add(6 * time.Minute)
	status, reply = e.do("POST", "/kbs/v0/attest", a)
	e.refused(status, reply, 401, "session has expired")

	a = e.begin()
	if status, reply := e.do("POST", "/kbs/v0/attest", a); status != 200 {
		t.Fatalf("%d %s", status, reply)
	}
	b.clock.add(6 * time.Minute)
	status, reply = e.do("GET", "/kbs/v0/resource/default/key/1", nil)
	e.refused(status, reply, 401, "session has expired")
}

// TestTokenIsAPassport: a token is good for its own broker, until it expires, and its resources for its own key.
func TestTokenIsAPassport(t *testing.T) {
	b, other := start(t, Config{}), start(t, Config{})
	e := &exchange{t: t, b: b}
	_, reply := e.do("POST", "/kbs/v0/attest", e.begin())
	var token keybroker.Token
	if err := json.Unmarshal(reply, &token); err != nil || token.Token == "" {
		t.Fatalf("%s, %v", reply, err)
	}
	thief := &exchange{t: t, b: b, bearer: token.Token}
	status, reply := thief.do("GET", "/kbs/v0/resource/default/key/1", nil)
	if got, err := decrypted(reply, e.key); status != 200 || err != nil || string(got) != secret {
		t.Errorf("%d, %q, %v", status, got, err)
	}
	if got, err := decrypted(reply, newKey(t, elliptic.P256())); err == nil {
		t.Errorf("another key decrypts %q", got)
	}
	parts := strings.Split(token.Token, ".")
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	parts[1] = base64.RawURLEncoding.EncodeToString(bytes.Replace(payload, []byte("warning"), []byte("affirming"), 1))
	for name, bad := range map[string]string{"changed": strings.Join(parts, "."), "unsigned": "eyJhbGciOiJub25lIn0." + parts[1] + ".", "no": "x"} {
		thief.bearer = bad
		if status, reply := thief.do("GET", "/kbs/v0/resource/default/key/1", nil); status != 401 {
			t.Errorf("%s token: %d %s", name, status, reply)
		}
	}
	elsewhere := &exchange{t: t, b: other, bearer: token.Token}
	status, reply = elsewhere.do("GET", "/kbs/v0/resource/default/key/1", nil)
	elsewhere.refused(status, reply, 401, "not one of this broker")
	b.clock.add(6 * time.Minute)
	thief.bearer = token.Token
	status, reply = thief.do("GET", "/kbs/v0/resource/default/key/1", nil)
	thief.refused(status, reply, 401, "valid now")
}

func TestResourcesAreConfined(t *testing.T) {
	b := start(t, Config{})
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	b.write(t, "default/big/1", strings.Repeat("x", maxResource+1))
	b.write(t, "default/largest/1", strings.Repeat("x", maxResource))
	for path, to := range map[string]string{"default/key/out": outside, "default/out": filepath.Dir(outside), "default/key/up": "../../../" + filepath.Base(b.folder) + "/default/key/1", "default/key/in": "1"} {
		if err := os.Symlink(to, filepath.Join(b.folder, path)); err != nil {
			t.Fatal(err)
		}
	}
	e := &exchange{t: t, b: b}
	e.do("POST", "/kbs/v0/attest", e.begin())
	for _, path := range []string{
		"default/key/out", "default/out/outside", "default/key/up", "default/big/1", "default/key/2", "default/key/1/2", "default/key", "", "default/key/",
		"../x/default/key/1", "default/key/../key/1", "default/%2e%2e/default/key/1", "default/key/..%2fkey%2f1", "default/key/%00", "%2fetc%2fpasswd", "default/key/.1", "default//1",
	} {
		status, reply := e.do("GET", "/kbs/v0/resource/"+path, nil)
		if status == 307 && !bytes.Contains(reply, []byte("//")) { // to a path without .., here
			continue
		}
		e.refused(status, reply, 404, "")
	}
	for _, path := range []string{"default/key/in", "default/key/1", "default/largest/1"} {
		if status, reply := e.do("GET", "/kbs/v0/resource/"+path, nil); status != 200 {
			t.Errorf("%s: %d %.200s", path, status, reply)
		} else if len(reply) > keybroker.MaxMessage {
			t.Errorf("%s: a reply of %d bytes, more than a client reads", path, len(reply))
		}
	}
	if status, reply := e.do("PUT", "/kbs/v0/resource/default/key/1", []byte("x")); status != 404 {
		t.Errorf("PUT: %d %s", status, reply)
	}
}

func TestPolicies(t *testing.T) {
	const allowed, denied = true, false
	for name, c := range map[string]struct {
		policy string
		want   bool
	}{
		"default":       {DefaultPolicy, denied},
		"by path":       {"package policy\ndefault allow := false\nallow if { data[\"resource-path\"] == [\"default\", \"key\", \"1\"]; data.plugin == \"resource\" }", allowed},
		"another path":  {"package policy\ndefault allow := false\nallow if data[\"resource-path\"][1] == \"other\"", denied},
		"affirming":     {"package policy\ndefault allow = false\nallow { input.submods.cpu0[\"ear.status\"] == \"affirming\" }", denied},
		"no sample":     {"package policy\nallow if not input.submods.cpu0[\"ear.veraison.annotated-evidence\"].sample", denied},
		"of the TEE":    {"package policy\nallow if input.submods.cpu0[\"ear.veraison.annotated-evidence\"].sample.svn == \"1\"", allowed},
		"by query":      {"package policy\nallow if data.query.a == \"1\"", allowed},
		"without allow": {"package policy\nx := 1", denied},
		"no boolean":    {"package policy\nallow := \"true\"", denied},
		"endless":       {"package policy\nallow if { count([1 | some i in numbers.range(1, 20000); some j in numbers.range(1, 20000); i * j == -1]) == 0 }", denied},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &exchange{t: t, b: start(t, Config{Policy: c.policy})}
			e.do("POST", "/kbs/v0/attest", e.begin())
			status, reply := e.do("GET", "/kbs/v0/resource/default/key/1?a=1", nil)
			if (status == 200) != c.want || status != 200 && status != 403 {
				t.Errorf("%d %s", status, reply)
			}
		})
	}
	for _, bad := range []string{"package other\nallow := true", "package policy\nallow if {", "package policy\nallow if http.send({\"url\": \"http://localhost\", \"method\": \"get\"})", "package policy\nallow if opa.runtime().env", "package policy\nallow if nothing"} {
		if _, err := New(Config{Policy: bad, Key: newKey(t, elliptic.P256())}); err == nil {
			t.Errorf("%q compiles", bad)
		}
	}
}

// TestSessionsAreBounded: old ones make room for new ones.
func TestSessionsAreBounded(t *testing.T) {
	b := start(t, Config{})
	oldest := &exchange{t: t, b: b}
	a := oldest.begin()
	for range maxSessions {
		e := &exchange{t: t, b: b}
		e.begin()
	}
	status, reply := oldest.do("POST", "/kbs/v0/attest", a)
	oldest.refused(status, reply, 401, "never was")
}

// TestHeaderIsWrittenTheSameAgain: Confidential Containers' client authenticates the header as it writes it again, alg and enc first, all
// others in the order of their names.
func TestHeaderIsWrittenTheSameAgain(t *testing.T) {
	jwe, err := encrypt([]byte(secret), &newKey(t, elliptic.P256()).PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	text, err := base64.RawURLEncoding.DecodeString(jwe.Protected)
	if err != nil {
		t.Fatal(err)
	}
	var all map[string]any // whose names Go sorts; alg and enc are before epk
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if again, _ := json.Marshal(all); !bytes.Equal(text, again) || len(all) != 3 {
		t.Errorf("the header is %s, written again %s", text, again)
	}
}

// FuzzAttestation: whatever is sent, the answer is one of the protocol's.
func FuzzAttestation(f *testing.F) {
	broker, err := New(Config{Verifier: &verify.Verifier{AllowSample: true}, Policy: allowAll, Resources: f.TempDir(), Key: newKey(f, elliptic.P256()), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	s := broker.Handler()
	f.Add([]byte(`{"runtime-data":{"nonce":"NONCE","tee-pubkey":{"alg":"ECDH-ES+A256KW","crv":"P-256","kty":"EC","x":"","y":""}},"tee-evidence":{"primary_evidence":{"svn":"1","report_data":""},"additional_evidence":""}}`))
	f.Add([]byte(`{"init-data":{"format":"toml","body":"x = 1"},"runtime-data":{"nonce":"NONCE"},"tee-evidence":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		auth := httptest.NewRecorder()
		s.ServeHTTP(auth, httptest.NewRequest("POST", "/kbs/v0/auth", strings.NewReader(`{"version":"0.4.0","tee":"sample","extra-params":{}}`)))
		var challenge keybroker.Challenge
		if err := json.Unmarshal(auth.Body.Bytes(), &challenge); err != nil {
			t.Fatal(err)
		}
		request := httptest.NewRequest("POST", "/kbs/v0/attest", bytes.NewReader(bytes.ReplaceAll(body, []byte("NONCE"), []byte(challenge.Nonce))))
		request.AddCookie(auth.Result().Cookies()[0])
		reply := httptest.NewRecorder()
		s.ServeHTTP(reply, request)
		var p keybroker.Problem
		if err := json.Unmarshal(reply.Body.Bytes(), &p); err != nil || reply.Code != 401 || p.Type == "" {
			t.Fatalf("%d %s: nobody binds evidence to the nonce by chance", reply.Code, reply.Body)
		}
	})
}
