// SPDX-License-Identifier: Apache-2.0

package tlsprofile

import (
	"crypto/tls"
	"strings"
	"testing"

	cliflag "k8s.io/component-base/cli/flag"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

func TestFlags(t *testing.T) {
	if s, err := FromFlags("VersionTLS13", "TLS_RSA_WITH_AES_128_GCM_SHA256"); err != nil || s.CipherSuites != "" {
		t.Errorf("%+v, %v: with TLS 1.3 there is nothing to choose", s, err)
	}
	if s, err := FromFlags("", ""); err != nil || s != (Settings{}) {
		t.Errorf("%+v, %v", s, err)
	}
	for want, flags := range map[string][2]string{
		"--tls-min-version: ":   {"VersionTLS99", ""},
		"--tls-cipher-suites: ": {"VersionTLS12", "TLS_NONE"},
	} {
		if _, err := FromFlags(flags[0], flags[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", flags, err, want)
		}
	}
}

func TestAPIServer(t *testing.T) {
	with := func(adherence openshift.TLSAdherence, p *openshift.TLSSecurityProfile) *openshift.APIServer {
		return &openshift.APIServer{Spec: openshift.APIServerSpec{TLSAdherence: adherence, TLSSecurityProfile: p}}
	}
	modern := &openshift.TLSSecurityProfile{Type: openshift.TLSProfileModern}
	custom := func(version string, ciphers ...string) *openshift.TLSSecurityProfile {
		return &openshift.TLSSecurityProfile{Type: openshift.TLSProfileCustom, Custom: &openshift.CustomTLSProfile{MinTLSVersion: version, Ciphers: ciphers}}
	}
	intermediate := profiles[openshift.TLSProfileIntermediate]
	for name, c := range map[string]struct {
		a    *openshift.APIServer
		want Settings
	}{
		"none":           {nil, intermediate},
		"no opinion":     {with("", modern), intermediate},
		"legacy":         {with(openshift.TLSAdherenceLegacy, modern), intermediate},
		"strict":         {with(openshift.TLSAdherenceStrict, modern), Settings{MinVersion: "VersionTLS13"}},
		"a later value":  {with("Another", modern), Settings{MinVersion: "VersionTLS13"}},
		"strict, none":   {with(openshift.TLSAdherenceStrict, nil), intermediate},
		"old":            {with(openshift.TLSAdherenceStrict, &openshift.TLSSecurityProfile{Type: openshift.TLSProfileOld}), profiles[openshift.TLSProfileOld]},
		"custom":         {with(openshift.TLSAdherenceStrict, custom("VersionTLS11", "ECDHE-RSA-AES128-SHA", "DHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256")), Settings{"VersionTLS11", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"}},
		"custom TLS 1.3": {with(openshift.TLSAdherenceStrict, custom("VersionTLS13", "TLS_AES_128_GCM_SHA256")), Settings{MinVersion: "VersionTLS13"}},
	} {
		if got, err := FromAPIServer(c.a); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for want, bad := range map[string]*openshift.TLSSecurityProfile{
		"custom: missing":       {Type: openshift.TLSProfileCustom},
		"custom.minTLSVersion":  custom("VersionTLS9"),
		"custom.ciphers: none":  custom("VersionTLS12", "DHE-RSA-AES128-GCM-SHA256"),
		`type "X" is not known`: {Type: "X"},
	} {
		if got, err := FromAPIServer(with(openshift.TLSAdherenceStrict, bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %q", got, err, want)
		}
	}
}

// TestProfilesAreKnown: a program refuses to start with a cipher that it does not know.
func TestProfilesAreKnown(t *testing.T) {
	for name, s := range profiles {
		if _, err := FromFlags(s.MinVersion, s.CipherSuites); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestNames: every cipher of the old profile by the name that OpenSSL gives it.
func TestNames(t *testing.T) {
	known := cliflag.TLSCipherPossibleValues()
	for openssl, want := range map[string]string{
		"ECDHE-ECDSA-CHACHA20-POLY1305": "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
		"ECDHE-RSA-AES256-GCM-SHA384":   "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"ECDHE-ECDSA-AES128-SHA256":     "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
		"ECDHE-RSA-AES256-SHA":          "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
		"AES128-GCM-SHA256":             "TLS_RSA_WITH_AES_128_GCM_SHA256",
		"AES128-SHA256":                 "TLS_RSA_WITH_AES_128_CBC_SHA256",
		"AES256-SHA":                    "TLS_RSA_WITH_AES_256_CBC_SHA",
		"DES-CBC3-SHA":                  "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
	} {
		found := false
		for _, k := range known {
			found = found || k == want
		}
		if got := iana(openssl); got != want || !found {
			t.Errorf("%s: %s, want %s (known: %t)", openssl, got, want, found)
		}
	}
}

func TestApply(t *testing.T) {
	var c tls.Config
	Settings{"VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}.Apply(&c)
	if c.MinVersion != tls.VersionTLS12 || len(c.CipherSuites) != 1 || c.CipherSuites[0] != tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 {
		t.Errorf("version %d, ciphers %d", c.MinVersion, c.CipherSuites)
	}
}
