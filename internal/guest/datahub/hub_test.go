// SPDX-License-Identifier: Apache-2.0

package datahub

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/eventlog"
	"github.com/outrigger/outrigger/internal/guest/pull"
	"github.com/outrigger/outrigger/internal/keybroker"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// measurer remembers what was measured.
type measurer struct {
	bound  string
	events []eventlog.Event
}

func (*measurer) TEE() attest.TEE { return attest.Sample }

func (*measurer) Evidence(_ context.Context, data []byte) (json.RawMessage, error) {
	return json.Marshal(string(data))
}

func (*measurer) Close() error { return nil }

func (m *measurer) BindInitData(_ context.Context, digest []byte) error {
	if m.bound == "unsupported" {
		return errors.ErrUnsupported
	}
	if m.bound != "" && m.bound != hex.EncodeToString(digest) {
		return errors.New("PCR 8 has another value")
	}
	m.bound = hex.EncodeToString(digest)
	return nil
}

func (m *measurer) Extend(_ context.Context, event eventlog.Event) error {
	if _, err := event.Line(); err != nil {
		return err
	}
	m.events = append(m.events, event)
	return nil
}

// broker has resources by URI.
type broker map[string]string

func (b broker) Resource(_ context.Context, uri string) ([]byte, error) {
	data, is := b[uri]
	if !is {
		return nil, fmt.Errorf("%s: %w", uri, keybroker.ErrNotFound)
	}
	return []byte(data), nil
}

func (b broker) Token(context.Context) (string, []byte, error) {
	if token, is := b["token"]; is {
		return token, []byte("PEM"), nil
	}
	return "", nil, errors.New("the evidence is refused")
}

const withBroker = "[kbc]\nname = 'cc_kbc'\nurl = 'https://broker:8080'\nkbs_cert = 'PEM'\n"

// with returns a hub for initdata with these files, and what it measured.
func with(t *testing.T, files map[string]string, b broker) (*Hub, *measurer, error) {
	t.Helper()
	dir, m := t.TempDir(), &measurer{}
	data, err := cloudinit.NewInitData("sha256", "0.1.0", files)
	if err != nil {
		t.Fatal(err)
	}
	text, err := data.Encode()
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "initdata", text)
	for name, content := range files {
		write(t, dir, name, content)
	}
	h, err := New(t.Context(), Config{
		Provisioned: dir, Attester: m, Version: "v1", Log: slog.New(slog.DiscardHandler),
		Connect: func(url, certificate, initdata string) (Broker, error) {
			if url != "https://broker:8080" || certificate != "PEM" || initdata != string(data.TOML()) {
				t.Errorf("connect %s, %s, %s", url, certificate, initdata)
			}
			return b, nil
		},
	})
	if m.bound != data.Digest() && (err == nil || !strings.Contains(err.Error(), "user-data")) {
		t.Errorf("measured %q, want %s", m.bound, data.Digest())
	}
	return h, m, err
}

func write(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestSettings: what is asked for is there, or an error that names it.
func TestSettings(t *testing.T) {
	for _, c := range []struct{ aa, cdh, want string }{
		{"", "", ""},
		{"\n", withBroker, ""},
		{"[token_configs.kbs]\nurl = 'https://broker:8080'\ncert = 'PEM'\n[eventlog_config]\ninit_pcr = 17\nenable_eventlog = false\n[log]\nlevel = 'info'\n", withBroker + "[image]\nmax_concurrent_layer_downloads_per_image = 3\nimage_security_policy_uri = 'kbs:///a/b/c'\n", ""},
		{"[token_configs.coco_as]\nurl = 'x'\n", "", "aa.toml: this VM image does not have token_configs.coco_as"},
		{"[token_configs.kbs]\nurl = 'x'\ntee_key_algorithm = 'RSA-OAEP-256'\n", "", "tee_key_algorithm"},
		{"[token_configs.kbs]\n", "", "token_configs.kbs.url is missing"},
		{"[eventlog_config]\ninit_pcr = 17\nenable_eventlog = true\n", "", "this VM image extends PCR 15"},
		{"[token_configs.kbs]\nurl = 'https://other'\n", withBroker, "another broker"},
		{"", "[kbc]\nname = 'offline_fs_kbc'\nurl = ''\n", "offline_fs_kbc"},
		{"", "[kbc]\nname = 'cc_kbc'\n", "kbc.url is missing"},
		{"", "socket = 'unix:///run/other.sock'\n", "socket"},
		{"", "[aa]\naa_socket = 'unix:///run/other.sock'\n", "aa_socket"},
		{"", "[[credentials]]\nresource_uri = 'kbs:///a/b/c'\npath = '/run/x'\n", "cdh.toml: this VM image does not have credentials"},
		{"", "[image]\nsigstore_config_uri = 'kbs:///a/b/c'\n", "image.sigstore_config_uri"},
		{"", "[image]\nimage_security_policy = '{}'\nimage_security_policy_uri = 'kbs:///a/b/c'\n", "want one of them"},
		{"", "secret = \nsesame", "cdh.toml: bad TOML at line 1"},
		{"", "skip_sealed_secret_verification = 'yes'\n", "wrong type"},
	} {
		_, _, err := with(t, map[string]string{aaFile: c.aa, cdhFile: c.cdh}, broker{})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("aa.toml %q, cdh.toml %q: %v, want %s", c.aa, c.cdh, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "sesame") {
			t.Errorf("the file is quoted: %v", err)
		}
	}
}

// TestOnlyTheInitdataCounts: settings that user-data brings beside the initdata would not be in the evidence.
func TestOnlyTheInitdataCounts(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, cdhFile, withBroker)
	_, err := New(t.Context(), Config{Provisioned: dir, Attester: &measurer{}})
	if err == nil || !strings.Contains(err.Error(), "cdh.toml is in the VM's user-data") {
		t.Errorf("%v", err)
	}
	dir = t.TempDir() // as after a policy that could not be written
	data, err := cloudinit.NewInitData("sha256", "0.1.0", map[string]string{policyFile: "package agent_policy"})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "initdata", string(data.TOML()))
	if _, err := New(t.Context(), Config{Provisioned: dir, Attester: &measurer{}}); err == nil || !strings.Contains(err.Error(), "policy.rego") {
		t.Errorf("a policy that is measured and not in force: %v", err)
	}
	m := &measurer{}
	if _, err := New(t.Context(), Config{Provisioned: t.TempDir(), Attester: m}); err != nil || m.bound != cloudinit.EmptyInitData().Digest() {
		t.Errorf("without initdata: %v, measured %s", err, m.bound)
	}
}

// TestInitdataThatIsNotMeasured: a VM whose TEE has no place for it does not say to the broker that it had measured one.
func TestInitdataThatIsNotMeasured(t *testing.T) {
	dir := t.TempDir()
	data, err := cloudinit.NewInitData("sha256", "0.1.0", map[string]string{cdhFile: withBroker})
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "initdata", string(data.TOML()))
	write(t, dir, cdhFile, withBroker)
	said := "nothing"
	_, err = New(t.Context(), Config{
		Provisioned: dir, Attester: &measurer{bound: "unsupported"}, Log: slog.New(slog.DiscardHandler),
		Connect: func(_, _, initdata string) (Broker, error) { said = initdata; return broker{}, nil },
	})
	if err != nil || said != "" {
		t.Errorf("said %q, %v", said, err)
	}
}

// TestStatus: what the broker says of the evidence.
func TestStatus(t *testing.T) {
	b := broker{}
	h, _, err := with(t, map[string]string{cdhFile: withBroker}, b)
	if err != nil {
		t.Fatal(err)
	}
	if is := h.Status(); is.Accepted || is.Err != nil || is.Broker != "https://broker:8080" {
		t.Errorf("before: %+v", is)
	}
	if h.Attest(t.Context()); h.Status().Err == nil || h.Status().Accepted {
		t.Errorf("refused: %+v", h.Status())
	}
	b["token"] = "t"
	if h.Attest(t.Context()); h.Status().Err != nil || !h.Status().Accepted {
		t.Errorf("accepted: %+v", h.Status())
	}
	none, _, err := with(t, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	none.Attest(t.Context())
	if _, err := none.Resource(t.Context(), "kbs:///a/b/c"); !errors.Is(err, errNoBroker) || none.Status().Err != nil {
		t.Errorf("without a broker: %v, %+v", err, none.Status())
	}
}

// seal returns a sealed Secret that is signed with a key.
func seal(t *testing.T, key *ecdsa.PrivateKey, kid, payload string) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return "sealed." + text
}

func newKey(t *testing.T) (*ecdsa.PrivateKey, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	public, err := json.Marshal(jose.JSONWebKey{Key: key.Public()})
	if err != nil {
		t.Fatal(err)
	}
	return key, string(public)
}

// sealedWith returns what A256GCM makes of a text.
func sealedWith(t *testing.T, key, iv []byte, text string) string {
	t.Helper()
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(gcm.Seal(nil, iv, []byte(text), nil))
}

const vault = `{"version":"0.1.0","type":"vault","provider":"kbs","name":"kbs:///default/secret/1","provider_settings":{},"annotations":{}}`

// TestUnseal: both forms of sealed Secrets are opened, and what is not as the owner made it is not.
func TestUnseal(t *testing.T) {
	key, public := newKey(t)
	other, _ := newKey(t)
	const kid = "kbs:///default/signing/1"
	kek, dek, iv := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 12)
	envelope := func(encryptedKey, data string) string {
		return fmt.Sprintf(`{"version":"0.1.0","type":"envelope","provider":"kbs","key_id":"kbs:///default/kek/1","encrypted_key":%q,"encrypted_data":%q,"wrap_type":"A256GCM","iv":%q,"provider_settings":{},"annotations":{"iv":%q,"wrap_type":"A256GCM"}}`,
			encryptedKey, data, base64.StdEncoding.EncodeToString(iv), base64.StdEncoding.EncodeToString(iv))
	}
	good := seal(t, key, kid, vault)
	parts := strings.Split(good, ".")
	altered := strings.Join([]string{parts[0], parts[1], base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(vault, "secret/1", "secret/2", 1))), parts[3]}, ".")
	h, _, err := with(t, map[string]string{cdhFile: withBroker}, broker{
		kid: public, "kbs:///default/secret/1": "sesame", "kbs:///default/secret/2": "another's", "kbs:///default/kek/1": string(kek), "kbs:///default/text/1": "no key",
	})
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		good: "it is not for a volume", // the pod's other Secrets
		seal(t, key, kid, envelope(sealedWith(t, kek, iv, string(dek)), sealedWith(t, dek, iv, "open"))): "it is not for a volume",
		seal(t, key, kid, strings.Replace(vault, "secret/1", "volume/1", 1)):                             "not found",
	} {
		if plain, err := h.UnsealVolumeKey(t.Context(), []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("as a volume's key: %q, %v; want %s", plain, err, want)
		}
	}
	for name, c := range map[string]struct{ text, want string }{
		"vault":              {good, "sesame"},
		"vault, line feed":   {good + "\n", "sesame"},
		"envelope":           {seal(t, key, kid, envelope(sealedWith(t, kek, iv, string(dek)), sealedWith(t, dek, iv, "open"))), "open"},
		"altered":            {altered, "! signature"},
		"other's signature":  {seal(t, other, kid, vault), "! signature"},
		"no kid":             {seal(t, key, "", vault), "! kid"},
		"kid is a file":      {seal(t, key, "../../etc/passwd", vault), "! kid"},
		"kid is a text":      {seal(t, key, "kbs:///default/text/1", vault), "! JSON Web Key"},
		"kid is unknown":     {seal(t, key, "kbs:///default/text/2", vault), "! not found"},
		"no signature":       {"sealed.fakejwsheader." + parts[2] + ".fakesignature", "! JWS"},
		"other cloud's":      {seal(t, key, kid, strings.Replace(vault, `"kbs"`, `"aliyun"`, 1)), "! provider \"aliyun\""},
		"newer":              {seal(t, key, kid, strings.Replace(vault, "0.1.0", "0.2.0", 1)), "! version"},
		"unknown type":       {seal(t, key, kid, strings.Replace(vault, "vault", "chest", 1)), "! chest"},
		"not JSON":           {seal(t, key, kid, "x"), "! JSON"},
		"no such resource":   {seal(t, key, kid, strings.Replace(vault, "secret/1", "secret/3", 1)), "! not found"},
		"envelope, wrong":    {seal(t, key, kid, envelope(sealedWith(t, dek, iv, string(dek)), sealedWith(t, dek, iv, "open"))), "! another key"},
		"envelope, altered":  {seal(t, key, kid, envelope(sealedWith(t, kek, iv, string(dek)), sealedWith(t, kek, iv, "open"))), "! another key"},
		"envelope, short":    {seal(t, key, kid, envelope(sealedWith(t, kek, iv, "short"), "")), "! 5 bytes"},
		"envelope, AES-CTR":  {seal(t, key, kid, strings.Replace(envelope("", ""), `"A256GCM","iv"`, `"A256CTR","iv"`, 1)), "! "},
		"too large":          {"sealed." + strings.Repeat("x", MaxSealed), "! at most"},
		"symmetric key used": {seal(t, key, "kbs:///default/kek/1", vault), "! JSON Web Key"},
	} {
		plain, err := h.Unseal(t.Context(), []byte(c.text))
		if want, bad := strings.CutPrefix(c.want, "! "); bad && (err == nil || !strings.Contains(err.Error(), want)) || !bad && string(plain) != c.want {
			t.Errorf("%s: %q, %v; want %s", name, plain, err, c.want)
		}
	}
	unsigned, _, err := with(t, map[string]string{cdhFile: "skip_sealed_secret_verification = true\n" + withBroker}, broker{"kbs:///default/secret/1": "sesame"})
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := unsigned.Unseal(t.Context(), []byte("sealed.fakejwsheader."+parts[2]+".fakesignature")); string(plain) != "sesame" {
		t.Errorf("not verified, as asked: %q, %v", plain, err)
	}
}

// TestREST: upstream's workloads find what they are used to.
func TestREST(t *testing.T) {
	h, m, err := with(t, map[string]string{cdhFile: withBroker}, broker{"kbs:///default/key/1": "sesame", "token": "jwt"})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h.Handler())
	defer server.Close()
	for _, c := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{"GET", "/cdh/resource/default/key/1", "", 200, "sesame"},
		{"GET", "/cdh/resource/default/key/2", "", 404, "not found"},
		{"POST", "/cdh/resource/default/key/1", "", 405, ""},
		{"GET", "/cdh/resource/key/1", "", 404, ""},
		{"GET", "/aa/token?token_type=kbs", "", 200, `{"tee_keypair":"PEM","token":"jwt"}`},
		{"GET", "/aa/token?token_type=coco_as", "", 400, "coco_as"},
		{"GET", "/aa/evidence?runtime_data=xxxx", "", 200, `"xxxx"`},
		{"GET", "/aa/evidence?runtime_data=eHh4eA&encoding=base64", "", 200, `"xxxx"`},
		{"GET", "/aa/evidence?runtime_data=eHh4e&encoding=base64", "", 400, "base64"},
		{"GET", "/aa/evidence?runtime_data=x&encoding=hex", "", 400, "hex"},
		{"GET", "/aa/evidence", "", 400, "0 bytes"},
		{"GET", "/aa/evidence?runtime_data=" + strings.Repeat("x", 65), "", 400, "65 bytes"},
		{"GET", "/aa/additional-evidence?runtime_data=xxxx", "", 200, "{}"},
		{"GET", "/info", "", 200, `"tee":"sample"`},
		{"POST", "/aa/aael", `{"domain":"example.org","operation":"test","content":"a test"}`, 200, "true"},
		{"POST", "/aa/aael", `{"domain":"two words","operation":"test","content":"a test"}`, 400, "space"},
		{"POST", "/aa/aael", `{"domain":"github.com/confidential-containers","operation":"PullImage","content":"{}"}`, 400, "agent's"},
		{"POST", "/aa/aael", `{"domain":"` + strings.Repeat("x", maxEvent) + `"}`, 400, "4 KiB"},
		{"GET", "/aa/aael", "", 405, ""},
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, server.URL+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var body bytes.Buffer
		body.ReadFrom(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.code || !strings.Contains(body.String(), c.want) {
			t.Errorf("%s %s: %d %q; want %d %s", c.method, c.path, resp.StatusCode, &body, c.code, c.want)
		}
	}
	if err := h.Pulled("docker.io/library/busybox:1", "sha256:00"); err != nil || len(m.events) != 2 || m.events[1].Operation != "PullImage" {
		t.Errorf("%v, %v", m.events, err)
	}
	far := httptest.NewRequest("GET", "/cdh/resource/default/key/1", nil)
	far.RemoteAddr = "10.0.0.2:1234"
	answer := httptest.NewRecorder()
	if h.Handler().ServeHTTP(answer, far); answer.Code != http.StatusForbidden {
		t.Errorf("from another pod: %d %s", answer.Code, answer.Body)
	}
}

// TestListen: the port is taken only in pods that ask for something.
func TestListen(t *testing.T) {
	none, _, err := with(t, map[string]string{aaFile: "\n"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if listener, err := none.Listen("/nowhere"); listener != nil || err != nil {
		t.Errorf("%v, %v", listener, err)
	}
	asked, _, err := with(t, map[string]string{cdhFile: withBroker}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asked.Listen("/nowhere"); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("%v", err)
	}
}

// FuzzUnseal: whatever a Secret holds, it is an error, or what the broker has at the URI that it names; and never the latter without a
// signature, which is asked for.
func FuzzUnseal(f *testing.F) {
	f.Add("sealed.fakejwsheader." + base64.RawURLEncoding.EncodeToString([]byte(vault)) + ".fakesignature")
	f.Add("sealed...")
	has := broker{"kbs:///default/secret/1": "sesame"}
	f.Fuzz(func(t *testing.T, text string) {
		for _, h := range []*Hub{{broker: has, settings: settings{unsigned: true}}, {broker: has}} {
			plain, err := h.Unseal(t.Context(), []byte(text))
			if err == nil && (string(plain) != "sesame" || !h.settings.unsigned) {
				t.Errorf("%q: %q", text, plain)
			}
			if err != nil && len(err.Error()) > 2048 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
		}
	})
}

// TestImagePolicy: the policy for images is in the initdata or at the broker, and one that is not there or not read admits nothing.
func TestImagePolicy(t *testing.T) {
	const uri = "kbs:///default/security-policy/1"
	image, err := name.ParseReference("registry.example/app:1")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ image, stored, want string }{
		{"", "", ""},
		{"image_security_policy = '{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}'", "", ""},
		{"image_security_policy = '{\"default\": [{\"type\": \"reject\"}]}'", "", "reject"},
		{"image_security_policy_uri = '" + uri + "'", `{"default": [{"type": "insecureAcceptAnything"}]}`, ""},
		{"image_security_policy_uri = '" + uri + "'", `{"default": [{"type": "reject"}]}`, "reject"},
		{"image_security_policy_uri = '" + uri + "'", "no JSON", "policy for images"},
		{"image_security_policy_uri = 'kbs:///default/security-policy/2'", "", "not found"},
	} {
		h, _, err := with(t, map[string]string{cdhFile: withBroker + "[image]\n" + c.image + "\n"}, broker{uri: c.stored})
		if err != nil {
			t.Fatal(err)
		}
		err = h.AdmitImage(t.Context(), &pull.Candidate{Reference: image, Digests: []v1.Hash{{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}}})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s, stored %q: %v; want %s", c.image, c.stored, err, c.want)
		}
	}
}
