// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/verify"
	"github.com/outrigger/outrigger/internal/guest/attester"
	"github.com/outrigger/outrigger/internal/keybroker"
	"github.com/outrigger/outrigger/internal/keybroker/server"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/swtpm"
)

// sample makes evidence of that kind.
type sample struct{ made atomic.Int64 }

func (*sample) TEE() attest.TEE { return attest.Sample }

func (s *sample) Evidence(_ context.Context, reportData []byte) (json.RawMessage, error) {
	s.made.Add(1)
	return json.Marshal(attest.SampleEvidence{SVN: "1", ReportData: reportData})
}

const allowAll = "package policy\ndefault allow := true\n"

// broker is a real one, over TLS.
func broker(t *testing.T, config server.Config, wrap func(http.Handler) http.Handler) *httptest.Server {
	t.Helper()
	config.Resources = t.TempDir()
	for name, content := range map[string]string{"default/key/1": "sesame", "default/key/2": "poppy"} {
		path := filepath.Join(config.Resources, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if config.Policy == "" {
		config.Policy = allowAll
	}
	if config.Verifier == nil {
		config.Verifier = &verify.Verifier{AllowSample: true}
	}
	var err error
	if config.Key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	config.Log = slog.New(slog.DiscardHandler)
	s, err := server.New(config)
	if err != nil {
		t.Fatal(err)
	}
	handler := s.Handler()
	if wrap != nil {
		handler = wrap(handler)
	}
	web := httptest.NewTLSServer(handler)
	t.Cleanup(web.Close)
	return web
}

func connect(t *testing.T, web *httptest.Server, config Config) *Client {
	t.Helper()
	if config.URL == "" {
		config.URL = web.URL
	}
	if config.Certificate == "" && strings.HasPrefix(config.URL, "https") {
		config.Certificate = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}))
	}
	if config.Attester == nil {
		config.Attester = &sample{}
	}
	config.Log, config.pause = slog.New(slog.DiscardHandler), time.Millisecond
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestResource: a VM attests once, and gets what there is.
func TestResource(t *testing.T) {
	of := &sample{}
	c := connect(t, broker(t, server.Config{}, nil), Config{Attester: of, InitData: string(cloudinit.EmptyInitData().TOML())})
	for uri, want := range map[string]string{"kbs:///default/key/1": "sesame", "kbs://elsewhere:80/default/key/2": "poppy"} {
		if data, err := c.Resource(t.Context(), uri); err != nil || string(data) != want {
			t.Errorf("%s: %q, %v", uri, data, err)
		}
	}
	if of.made.Load() != 1 {
		t.Errorf("attested %d times", of.made.Load())
	}
	if _, err := c.Resource(t.Context(), "kbs:///default/key/3"); !errors.Is(err, keybroker.ErrNotFound) {
		t.Errorf("what there is not: %v", err)
	}
	token, key, err := c.Token(t.Context())
	if err != nil || strings.Count(token, ".") != 2 || !strings.Contains(string(key), "BEGIN PRIVATE KEY") || expiry(token).Before(time.Now()) {
		t.Errorf("token %.20q, valid until %v, key %d bytes: %v", token, expiry(token), len(key), err)
	}
}

// TestTPM: a broker knows a TPM by the certificate of its endorsement key, the VM by its reference values, and the initdata by the register.
func TestTPM(t *testing.T) {
	tpm := swtpm.Start(t)
	initdata := cloudinit.EmptyInitData()
	vm, err := attester.NewTPM(tpm.Open(t), attester.Options{Folder: t.TempDir(), BootLog: "/nowhere"})
	if err != nil {
		t.Fatal(err)
	}
	bindInitData(t, vm, initdata)
	zeros := strings.Repeat("0", 64)
	good := server.Config{Policy: server.DefaultPolicy, Certified: true, References: attest.References{"tpm_pcr04": {zeros}, "snp_measurement": {"00"}}, Verifier: &verify.Verifier{EndorsementRoots: tpm.Roots}}
	c := connect(t, broker(t, good, nil), Config{Attester: vm, InitData: string(initdata.TOML())})
	if data, err := c.Resource(t.Context(), "kbs:///default/key/1"); err != nil || string(data) != "sesame" {
		t.Errorf("%q, %v", data, err)
	}
	for name, change := range map[string]func(*server.Config, *Config) string{
		"another image": func(s *server.Config, _ *Config) string {
			s.References = attest.References{"pcr04": {"00"}}
			return "PolicyDeny"
		},
		"no reference values": func(s *server.Config, _ *Config) string { s.References = nil; return "PolicyDeny" },
		"another TPM's maker": func(s *server.Config, _ *Config) string {
			s.Verifier = &verify.Verifier{EndorsementRoots: swtpm.Start(t).Roots}
			return "endorsement key"
		},
		"another initdata": func(_ *server.Config, c *Config) string {
			c.InitData = strings.Replace(c.InitData, "0.1.0", "0.1.1", 1)
			return "another initdata"
		},
		"initdata in YAML": func(_ *server.Config, c *Config) string { c.InitData = "x"; return "initdata" },
		"sample is not allowed": func(_ *server.Config, c *Config) string {
			c.Attester = &sample{}
			return "sample evidence proves nothing"
		},
	} {
		of, by := good, Config{Attester: vm, InitData: string(initdata.TOML())}
		want := change(&of, &by)
		c := connect(t, broker(t, of, nil), by)
		if data, err := c.Resource(t.Context(), "kbs:///default/key/1"); !errors.Is(err, keybroker.ErrRefused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v; want %s", name, data, err, want)
		}
	}
}

func bindInitData(t *testing.T, vm attester.Attester, data *cloudinit.InitData) {
	t.Helper()
	digest, err := hex.DecodeString(data.Digest())
	if err == nil {
		err = vm.BindInitData(t.Context(), digest)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPolicyOfResources: one VM gets one key and not another; Trustee's own rules of a resource policy compile and decide.
func TestPolicyOfResources(t *testing.T) {
	c := connect(t, broker(t, server.Config{Policy: `package policy
import rego.v1
default allow = false
allow if {
	data.plugin == "resource"
	data["resource-path"] == ["default", "key", "1"]
	input.submods.cpu0["ear.veraison.annotated-evidence"].sample.svn == "1"
}`}, nil), Config{})
	if data, err := c.Resource(t.Context(), "kbs:///default/key/1"); err != nil || string(data) != "sesame" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := c.Resource(t.Context(), "kbs:///default/key/2"); !errors.Is(err, keybroker.ErrRefused) {
		t.Errorf("%v", err)
	}
}

// TestFaults: a broker that is not there for a while is waited for, and one that lies is not believed.
func TestFaults(t *testing.T) {
	var asked atomic.Int64
	times := func(n int64, status int) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if asked.Add(1) <= n {
					w.WriteHeader(status)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	instead := func(path string, answer http.HandlerFunc) func(http.Handler) http.Handler {
		return func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.Contains(r.URL.Path, path) {
					answer(w, r)
					return
				}
				next.ServeHTTP(w, r)
			})
		}
	}
	text := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); w.Write([]byte(body)) }
	}
	// lost is a way on which the broker's first answer to evidence is lost.
	lost := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/attest") && asked.Add(1) == 1 {
				next.ServeHTTP(httptest.NewRecorder(), r)
				panic(http.ErrAbortHandler)
			}
			next.ServeHTTP(w, r)
		})
	}
	other := broker(t, server.Config{}, nil)
	for name, c := range map[string]struct {
		wrap func(http.Handler) http.Handler
		want string // "": it succeeds
	}{
		"down for a while":       {times(3, http.StatusBadGateway), ""},
		"busy for a while":       {times(2, http.StatusTooManyRequests), ""},
		"missing, of a Trustee":  {instead("/resource", text(401, `{"type":"https://github.com/confidential-containers/kbs/errors/PluginInternalError","detail":"Plugin internal error"}`)), "not found"},
		"reply to evidence lost": {lost, ""},
		"says the session's name": {func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if cookie, err := r.Cookie(keybroker.Cookie); err == nil {
					w.WriteHeader(http.StatusForbidden)
					json.NewEncoder(w).Encode(keybroker.Problem{Detail: "it is " + cookie.Value})
					return
				}
				http.SetCookie(w, &http.Cookie{Name: keybroker.Cookie, Value: "name-of-the-session"})
				w.Write([]byte(`{"nonce":"x"}`))
			})
		}, "it is …"},
		"unauthorized":       {instead("/auth", text(401, `{"type":"https://github.com/confidential-containers/kbs/errors/AttestationError","detail":"no"}`)), "AttestationError"},
		"not JSON":           {instead("/auth", text(200, "<html>")), "not the JSON"},
		"no token":           {instead("/attest", text(200, "{}")), "no token"},
		"hash":               {instead("/auth", text(200, `{"nonce":"x","extra-params":{"selected-hash-algorithm":"md5"}}`)), "md5"},
		"extra-params":       {instead("/auth", text(200, `{"nonce":"x","extra-params":{"selected-hash-algorithm":1}}`)), "extra-params"},
		"nonce of another":   {instead("/auth", text(200, `{"nonce":"x","extra-params":""}`)), "refused"},
		"no JWE":             {instead("/resource", text(200, "sesame")), "not a JWE"},
		"JWE of another key": {instead("/resource", text(200, `{"protected":"eyJhbGciOiJFQ0RILUVTK0EyNTZLVyIsImVuYyI6IkEyNTZHQ00iLCJlcGsiOnsiY3J2IjoiUC0yNTYiLCJrdHkiOiJFQyIsIngiOiI4QkJ0Y2RzZGZzZGZzZGZzIiwieSI6IngifX0","encrypted_key":"x","iv":"x","ciphertext":"x","tag":"x"}`)), "JWE"},
		"weak JWE":           {instead("/resource", text(200, `{"protected":"eyJhbGciOiJSU0ExXzUiLCJlbmMiOiJBMjU2R0NNIn0","encrypted_key":"AA","iv":"AA","ciphertext":"AA","tag":"AA"}`)), "not a JWE"},
		"redirect": {instead("/auth", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		}), "307"},
		"too much": {instead("/resource", func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, keybroker.MaxMessage+1)) }), "more than"},
	} {
		asked.Store(0)
		data, err := connect(t, broker(t, server.Config{}, c.wrap), Config{}).Resource(t.Context(), "kbs:///default/key/1")
		if c.want == "" && string(data) != "sesame" || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %q, %v; want %s", name, data, err, c.want)
		}
		if err != nil && len(err.Error()) > 2048 {
			t.Errorf("%s: an error of %d bytes", name, len(err.Error()))
		}
	}
}

// TestCertificate: another broker in the place of the pod's is not asked for anything.
func TestCertificate(t *testing.T) {
	evil := broker(t, server.Config{}, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was asked") })
	})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := connect(t, nil, Config{URL: evil.URL, Certificate: selfSigned(t, key)})
	if _, err := c.Resource(t.Context(), "kbs:///default/key/1"); err == nil || !strings.Contains(err.Error(), "another certificate") {
		t.Errorf("%v", err)
	}
	for url, certificate := range map[string]string{"broker": "", "https://": "", "ftp://broker": "", "https://user@broker": "", "https://broker ": "x", "http://broker": selfSigned(t, key)} {
		if _, err := New(Config{URL: url, Certificate: certificate, Attester: &sample{}, Log: slog.New(slog.DiscardHandler)}); err == nil {
			t.Errorf("%q was taken", url)
		}
	}
}

// selfSigned returns a certificate of a key, PEM.
func selfSigned(t *testing.T, key *ecdsa.PrivateKey) string {
	t.Helper()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// TestSessionsEnd: a VM whose session the broker has forgotten attests again, once; one that is refused for good is told so.
func TestSessionsEnd(t *testing.T) {
	var refuse atomic.Int64
	of := &sample{}
	web := broker(t, server.Config{}, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/resource/") && refuse.Add(-1) >= 0 {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	c := connect(t, web, Config{Attester: of})
	for i, n := range []int64{0, 1, 5} {
		refuse.Store(n)
		data, err := c.Resource(t.Context(), "kbs:///default/key/1")
		if i < 2 && string(data) != "sesame" || i == 2 && !errors.Is(err, keybroker.ErrRefused) {
			t.Errorf("%d refusals: %q, %v", n, data, err)
		}
	}
	if of.made.Load() != 3 {
		t.Errorf("attested %d times, want 3", of.made.Load())
	}
}

// TestBrokerIsNotThere: who asks decides how long it is waited for.
func TestBrokerIsNotThere(t *testing.T) {
	web := broker(t, server.Config{}, nil)
	url := web.URL
	web.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := connect(t, nil, Config{URL: url, Certificate: selfSigned(t, key)}).Resource(ctx, "kbs:///default/key/1"); err == nil {
		t.Error("it succeeded")
	}
}
