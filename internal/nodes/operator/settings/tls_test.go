// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"crypto/tls"
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	cliflag "k8s.io/component-base/cli/flag"
)

func TestFlags(t *testing.T) {
	if s, err := TLSFromFlags("VersionTLS13", "TLS_RSA_WITH_AES_128_GCM_SHA256"); err != nil || s.CipherSuites != "" {
		t.Errorf("%+v, %v: with TLS 1.3 there is nothing to choose", s, err)
	}
	if s, err := TLSFromFlags("", ""); err != nil || s != (TLS{}) {
		t.Errorf("%+v, %v", s, err)
	}
	for want, flags := range map[string][2]string{
		"--tls-min-version: ":   {"VersionTLS99", ""},
		"--tls-cipher-suites: ": {"VersionTLS12", "TLS_NONE"},
	} {
		if _, err := TLSFromFlags(flags[0], flags[1]); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", flags, err, want)
		}
	}
}

func TestAPIServer(t *testing.T) {
	with := func(adherence configv1.TLSAdherencePolicy, p *configv1.TLSSecurityProfile) *configv1.APIServer {
		return &configv1.APIServer{Spec: configv1.APIServerSpec{TLSAdherence: adherence, TLSSecurityProfile: p}}
	}
	modern := &configv1.TLSSecurityProfile{Type: configv1.TLSProfileModernType}
	custom := func(version configv1.TLSProtocolVersion, ciphers ...string) *configv1.TLSSecurityProfile {
		return &configv1.TLSSecurityProfile{Type: configv1.TLSProfileCustomType, Custom: &configv1.CustomTLSProfile{
			TLSProfileSpec: configv1.TLSProfileSpec{MinTLSVersion: version, Ciphers: ciphers},
		}}
	}
	// Those of OpenShift's own operator, with the ciphers that Go has, also those of TLS 1.3.
	ciphers := []string{
		"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384", "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
		"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
	}
	intermediate := TLS{"VersionTLS12", strings.Join(ciphers, ",")}
	old := TLS{"VersionTLS10", strings.Join(append(ciphers,
		"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
		"TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
		"TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA", "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
		"TLS_RSA_WITH_AES_128_GCM_SHA256", "TLS_RSA_WITH_AES_256_GCM_SHA384", "TLS_RSA_WITH_AES_128_CBC_SHA256",
		"TLS_RSA_WITH_AES_128_CBC_SHA", "TLS_RSA_WITH_AES_256_CBC_SHA", "TLS_RSA_WITH_3DES_EDE_CBC_SHA"), ",")}
	for name, c := range map[string]struct {
		a    *configv1.APIServer
		want TLS
	}{
		"none":           {nil, intermediate},
		"no opinion":     {with("", modern), intermediate},
		"legacy":         {with(configv1.TLSAdherencePolicyLegacyAdheringComponentsOnly, modern), intermediate},
		"strict":         {with(configv1.TLSAdherencePolicyStrictAllComponents, modern), TLS{MinVersion: "VersionTLS13"}},
		"a later value":  {with("Another", modern), TLS{MinVersion: "VersionTLS13"}},
		"strict, none":   {with(configv1.TLSAdherencePolicyStrictAllComponents, nil), intermediate},
		"old":            {with(configv1.TLSAdherencePolicyStrictAllComponents, &configv1.TLSSecurityProfile{Type: configv1.TLSProfileOldType}), old},
		"custom":         {with(configv1.TLSAdherencePolicyStrictAllComponents, custom("VersionTLS11", "ECDHE-RSA-AES128-SHA", "DHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256")), TLS{"VersionTLS11", "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256"}},
		"custom TLS 1.3": {with(configv1.TLSAdherencePolicyStrictAllComponents, custom("VersionTLS13", "TLS_AES_128_GCM_SHA256")), TLS{MinVersion: "VersionTLS13"}},
	} {
		if got, err := TLSFromAPIServer(c.a); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
	for want, bad := range map[string]*configv1.TLSSecurityProfile{
		"custom: missing":       {Type: configv1.TLSProfileCustomType},
		"custom.minTLSVersion":  custom("VersionTLS9"),
		"custom.ciphers: none":  custom("VersionTLS12", "DHE-RSA-AES128-GCM-SHA256"),
		"custom.ciphers: none ": custom("VersionTLS12", "TLS_AES_128_GCM_SHA256"),
		`type "X" is not known`: {Type: "X"},
	} {
		if got, err := TLSFromAPIServer(with(configv1.TLSAdherencePolicyStrictAllComponents, bad)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v, %v; want %q", got, err, want)
		}
	}
}

// TestProfilesAreKnown: a program refuses to start with a cipher that it does not know.
func TestProfilesAreKnown(t *testing.T) {
	for name, p := range configv1.TLSProfiles {
		s, err := ofProfile(p)
		if err == nil {
			_, err = TLSFromFlags(s.MinVersion, s.CipherSuites)
		}
		if err != nil {
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
	TLS{"VersionTLS12", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"}.Apply(&c)
	if c.MinVersion != tls.VersionTLS12 || len(c.CipherSuites) != 1 || c.CipherSuites[0] != tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 {
		t.Errorf("version %d, ciphers %d", c.MinVersion, c.CipherSuites)
	}
}
