// SPDX-License-Identifier: Apache-2.0

package otherbroker

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	_ "crypto/sha256" // for package crypto, as the next
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Attestation is accepted evidence, and which of what the documents permit it was.
type Attestation struct {
	Tee        string
	Hash       string         // of the runtime data: "sha256", "sha384" or "sha512"
	Serialised []string       // what has that hash: "sorted" and compact, "compact", as "sent", "with additional-evidence"
	ReportData string         // how it has the hash: "whole", "padded to 64", "cut to 32", in bytes
	InitData   string         // "none", "bound" (checked against the evidence) or "unbound" (a sample without it)
	Signature  string         // of a TPM: "TPMT_SIGNATURE" or "raw"
	PCRs       map[int]string // what the TPM signed, in hexadecimal
}

// restful-as.md: "sha384" if nothing is said, so it comes first.
var hashes = []struct {
	name string
	hash crypto.Hash
}{{"sha384", crypto.SHA384}, {"sha256", crypto.SHA256}, {"sha512", crypto.SHA512}}

func digest(hash crypto.Hash, parts ...[]byte) []byte {
	h := hash.New()
	for _, part := range parts {
		h.Write(part)
	}
	return h.Sum(nil)
}

func (b *Broker) verify(v *visit, tee string, found map[string]json.RawMessage) (a Attestation, err error) {
	a = Attestation{Tee: tee, InitData: "none"}
	initData, err := initDigest(found)
	if err != nil {
		return a, fmt.Errorf("init-data: %w", err)
	}
	evidence, err := fields(found["tee-evidence.primary_evidence"])
	if err != nil {
		return a, fmt.Errorf("primary_evidence: %w", err)
	}
	var report []byte
	if tee == "tpm" {
		report, err = a.tpm(evidence, initData, b.TrustedAKs)
	} else {
		report, err = a.sample(evidence, initData)
	}
	if err != nil {
		return a, fmt.Errorf("evidence of tee %s: %w", tee, err)
	}
	additional := text(found["tee-evidence.additional_evidence"])
	if _, err := fields([]byte(additional)); err != nil {
		v.note("deviation: additional_evidence is not a mapping in a string: %v", err)
	}
	return a, a.bind(report, found["runtime-data"], additional)
}

// bind finds the hash of the runtime data in report data. restful-as.md sorts
// and compacts before it hashes; the protocol's text has only "the hash of this data".
func (a *Attestation) bind(report []byte, sent json.RawMessage, additional string) error {
	var compact bytes.Buffer
	var decoded map[string]any
	if err := errors.Join(json.Compact(&compact, sent), json.Unmarshal(sent, &decoded)); err != nil {
		return err
	}
	candidates := map[string][]byte{"sorted": sorted(decoded), "compact": compact.Bytes(), "sent": sent}
	// No document says that it is bound, nor under which name: Trustee's source (kbs/src/attestation/backend.rs) has this one.
	decoded["additional-evidence"] = additional
	candidates["with additional-evidence"] = sorted(decoded)
	for _, h := range hashes {
		for _, name := range slices.Sorted(maps.Keys(candidates)) {
			if how := a.holds(report, digest(h.hash, candidates[name])); how != "" {
				a.Hash, a.ReportData, a.Serialised = h.name, how, append(a.Serialised, name)
			}
		}
	}
	if a.Hash == "" {
		return fmt.Errorf("report data %x is not a hash of the runtime data", report)
	}
	return nil
}

// sorted is RFC 8785's form for what runtime data has: ASCII strings and objects.
func sorted(object map[string]any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(object) // it came from JSON
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

func (a *Attestation) holds(report, sum []byte) string {
	switch {
	case bytes.Equal(report, sum):
		return "whole"
	case a.Tee == "tpm" && bytes.Equal(report, sum[:32]):
		return "cut to 32"
	case a.Tee != "tpm" && bytes.Equal(report, append(sum, make([]byte, 64-len(sum))...)):
		return "padded to 64"
	}
	return ""
}

// sample has init data's hash as tcb_claims.md names it: the evidence itself is in no document.
func (a *Attestation) sample(evidence map[string]json.RawMessage, initData []byte) ([]byte, error) {
	if text(evidence["svn"]) == "" {
		return nil, errors.New("svn is not a string")
	}
	if initData != nil {
		a.InitData = "unbound"
		if claimed, has := evidence["init_data"]; has {
			if a.InitData = "bound"; text(claimed) != base64.StdEncoding.EncodeToString(initData) {
				return nil, fmt.Errorf("init_data is not the digest %x", initData)
			}
		}
	}
	return base64.StdEncoding.DecodeString(text(evidence["report_data"]))
}

var tomlAlgorithm = regexp.MustCompile(`(?m)^\s*algorithm\s*=\s*["']([A-Za-z0-9-]{1,20})["']\s*(?:#.*)?$`)

// initDigest returns the digest of initdata.md, or nil without init data. Both
// "sha-384", IANA's name, and "sha384", as in the examples, are permitted.
func initDigest(found map[string]json.RawMessage) ([]byte, error) {
	if found["init-data"] == nil {
		return nil, nil
	}
	body := text(found["init-data.body"])
	var name string
	if text(found["init-data.format"]) == "json" {
		members, _ := fields([]byte(body)) // without members it has no algorithm
		name = text(members["algorithm"])
	} else if top, _, _ := strings.Cut("\n"+body, "\n["); tomlAlgorithm.MatchString(top) {
		name = tomlAlgorithm.FindStringSubmatch(top)[1]
	}
	for _, h := range hashes {
		if strings.EqualFold(strings.ReplaceAll(name, "-", ""), h.name) {
			return digest(h.hash, []byte(body)), nil
		}
	}
	return nil, fmt.Errorf("algorithm %.20q is not sha-256, sha-384 or sha-512", name)
}

// tpm verifies a quote by an RSA key over the SHA-256 bank and returns its extraData.
func (a *Attestation) tpm(evidence map[string]json.RawMessage, initData []byte, trusted []*rsa.PublicKey) ([]byte, error) {
	ak, err := akOf(text(evidence["ak_public"]))
	if err != nil {
		return nil, fmt.Errorf("ak_public: %w", err)
	}
	if len(trusted) > 0 && !slices.ContainsFunc(trusted, func(k *rsa.PublicKey) bool { return k.Equal(ak) }) {
		return nil, errors.New("ak_public is not a trusted key")
	}
	var quote struct {
		Message   []byte   `json:"message"`
		PCRs      []string `json:"pcrs"`
		Signature []byte   `json:"signature"`
	}
	if err := json.Unmarshal(evidence["tpm_quote"], &quote); err != nil {
		return nil, fmt.Errorf("tpm_quote: %w", err)
	}
	a.Signature = "raw"
	if s := (cursor{rest: quote.Signature}); len(quote.Signature) != ak.Size() {
		a.Signature = "TPMT_SIGNATURE"
		if scheme, hash := s.number(2), s.number(2); scheme != algRSASSA || hash != algSHA256 {
			return nil, fmt.Errorf("the signature is of scheme %#x with hash %#x, not RSASSA with SHA-256", scheme, hash)
		}
		if quote.Signature = s.sized(); s.short || len(s.rest) > 0 {
			return nil, errors.New("the signature is not a TPMT_SIGNATURE")
		}
	}
	if err := rsa.VerifyPKCS1v15(ak, crypto.SHA256, digest(crypto.SHA256, quote.Message), quote.Signature); err != nil {
		return nil, fmt.Errorf("the quote's signature: %w", err)
	}
	extra, selected, pcrDigest, err := parseQuote(quote.Message)
	if err != nil {
		return nil, err
	}
	if err := a.registers(quote.PCRs, selected, pcrDigest); err != nil {
		return nil, err
	}
	if initData != nil {
		// initdata.md cuts or pads the digest to what a register takes, and
		// extends "the PCR" by it: PCR 8 of tcb_claims.md, which was zero before.
		want := hex.EncodeToString(digest(crypto.SHA256, make([]byte, 32), initData[:32]))
		if a.InitData = "bound"; a.PCRs[8] != want {
			return nil, fmt.Errorf("PCR 8 is %q, and the init data makes it %q", a.PCRs[8], want)
		}
	}
	return extra, nil
}

// akOf reads a public key: base64 of DER, as the README's example of evidence, or PEM, as its text.
func akOf(s string) (*rsa.PublicKey, error) {
	der, err := base64.StdEncoding.DecodeString(s)
	if block, _ := pem.Decode([]byte(s)); block != nil {
		der, err = block.Bytes, nil
	}
	if err != nil {
		return nil, err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return nil, err
	}
	ak, is := key.(*rsa.PublicKey)
	if !is || ak.Size() > 512 {
		return nil, fmt.Errorf("it is a %T, not an RSA key of at most 4096 bits", key)
	}
	return ak, nil
}

// Of the TPM 2.0 Library, part 2: TPM_GENERATED_VALUE, TPM_ST_ATTEST_QUOTE, TPM_ALG_ID.
const (
	generated, attestQuote = 0xff544347, 0x8018
	algSHA256, algRSASSA   = 0x000b, 0x0014
)

// cursor reads a TPM's structures; short is set when there is too little.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if n > len(c.rest) {
		c.short = true
		return make([]byte, min(n, 8))
	}
	taken := c.rest[:n]
	c.rest = c.rest[n:]
	return taken
}

func (c *cursor) number(bytes int) (n int) {
	for _, b := range c.take(bytes) {
		n = n<<8 | int(b)
	}
	return n
}

func (c *cursor) sized() []byte { return c.take(c.number(2)) }

// parseQuote reads a TPMS_ATTEST; selected are PCRs of the SHA-256 bank, ascending.
func parseQuote(message []byte) (extra []byte, selected []int, pcrDigest []byte, err error) {
	c := cursor{rest: message}
	if magic, kind := c.number(4), c.number(2); magic != generated || kind != attestQuote {
		return nil, nil, nil, fmt.Errorf("the message begins with %#x %#x and is not a quote", magic, kind)
	}
	c.sized() // qualifiedSigner
	extra = c.sized()
	c.take(8 + 4 + 4 + 1 + 8) // clockInfo, firmwareVersion
	banks, bank := c.number(4), c.number(2)
	for i, bits := range c.take(c.number(1)) {
		for bit := range 8 {
			if bits>>bit&1 == 1 {
				selected = append(selected, 8*i+bit)
			}
		}
	}
	pcrDigest = c.sized()
	switch {
	case banks != 1 || bank != algSHA256:
		err = fmt.Errorf("the quote is of %d banks, the first %#x, not of the SHA-256 bank alone", banks, bank)
	case c.short || len(c.rest) > 0:
		err = errors.New("the message is too short or too long for a quote")
	}
	return extra, selected, pcrDigest, err
}

// registers checks the quote's digest. values are PCR 0 to 23, or the selected ones alone.
func (a *Attestation) registers(values []string, selected []int, pcrDigest []byte) error {
	var all []byte
	a.PCRs = map[int]string{}
	for i, number := range selected {
		if len(values) != len(selected) {
			i = number
		}
		if len(values) > 24 || i >= len(values) {
			return fmt.Errorf("there are %d values of PCRs, and PCR %d is selected", len(values), number)
		}
		value, err := hex.DecodeString(values[i])
		if err != nil || len(value) != 32 {
			return fmt.Errorf("PCR %d is not 32 bytes in hexadecimal", number)
		}
		all = append(all, value...)
		a.PCRs[number] = hex.EncodeToString(value)
	}
	if !bytes.Equal(digest(crypto.SHA256, all), pcrDigest) {
		return errors.New("the quote is not of these PCRs")
	}
	return nil
}
