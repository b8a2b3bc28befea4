// SPDX-License-Identifier: Apache-2.0

// Package tlsprofile chooses the versions and ciphers of TLS for the operator
// and its operands: from flags, else from the cluster's profile.
package tlsprofile

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/outrigger/outrigger/internal/nodes/operator/openshift"
)

// Settings are what --tls-min-version and --tls-cipher-suites take.
type Settings struct {
	// MinVersion is one of VersionTLS10 to VersionTLS13.
	MinVersion string
	// CipherSuites are IANA's names with commas; empty with TLS 1.3, of which they
	// cannot be chosen.
	CipherSuites string
}

// FromFlags returns the settings of flags, which win over every profile. It is empty
// if neither flag is set.
func FromFlags(minVersion, cipherSuites string) (Settings, error) {
	if minVersion != "" {
		if _, err := cliflag.TLSVersion(minVersion); err != nil {
			return Settings{}, fmt.Errorf("--tls-min-version: %w; there are %s", err, strings.Join(cliflag.TLSPossibleVersions(), ", "))
		}
	}
	var names []string
	if cipherSuites != "" {
		names = strings.Split(cipherSuites, ",")
	}
	if _, err := cliflag.TLSCipherSuites(names); err != nil {
		return Settings{}, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	return Settings{minVersion, cipherSuites}.without13(), nil
}

// FromAPIServer returns the settings of the cluster's profile if all components have
// to follow it, else those of the profile Intermediate. a is nil for a cluster without
// one.
func FromAPIServer(a *configv1.APIServer) (Settings, error) {
	intermediate := configv1.TLSProfiles[configv1.TLSProfileIntermediateType]
	if a == nil || a.Spec.TLSAdherence == configv1.TLSAdherencePolicyNoOpinion || a.Spec.TLSAdherence == configv1.TLSAdherencePolicyLegacyAdheringComponentsOnly {
		return ofProfile(intermediate)
	}
	p := a.Spec.TLSSecurityProfile
	switch {
	case p == nil || p.Type == "":
		return ofProfile(intermediate)
	case p.Type == configv1.TLSProfileCustomType && p.Custom == nil:
		return Settings{}, fmt.Errorf("%s: missing", custom)
	case p.Type == configv1.TLSProfileCustomType:
		return ofProfile(&p.Custom.TLSProfileSpec)
	}
	s, known := configv1.TLSProfiles[p.Type]
	if !known {
		return Settings{}, fmt.Errorf("apiserver %s: spec.tlsSecurityProfile.type %q is not known", openshift.ClusterName, p.Type)
	}
	return ofProfile(s)
}

// Or returns the settings, with those that are empty from others.
func (s Settings) Or(other Settings) Settings {
	return Settings{cmp.Or(s.MinVersion, other.MinVersion), cmp.Or(s.CipherSuites, other.CipherSuites)}.without13()
}

func (s Settings) without13() Settings {
	if s.MinVersion == "VersionTLS13" {
		s.CipherSuites = ""
	}
	return s
}

// Apply sets a server's configuration.
func (s Settings) Apply(c *tls.Config) {
	if v, err := cliflag.TLSVersion(s.MinVersion); err == nil {
		c.MinVersion = v
	}
	if s.CipherSuites != "" {
		c.CipherSuites, _ = cliflag.TLSCipherSuites(strings.Split(s.CipherSuites, ","))
	}
}

// custom is where the one profile is that can be wrong.
const custom = "apiserver " + openshift.ClusterName + ": spec.tlsSecurityProfile.custom"

// ofProfile ignores ciphers that Go does not have, as the API server does; that none
// is left is an error. Those of TLS 1.3 have no effect in Go, and stay: OpenShift's
// operator writes them, and other arguments would restart the operands.
func ofProfile(p *configv1.TLSProfileSpec) (Settings, error) {
	version := string(p.MinTLSVersion)
	if _, err := cliflag.TLSVersion(version); err != nil {
		return Settings{}, fmt.Errorf("%s.minTLSVersion: %w", custom, err)
	}
	known := cliflag.TLSCipherPossibleValues()
	var names []string
	for _, c := range p.Ciphers {
		if name := iana(c); slices.Contains(known, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 && p.MinTLSVersion != configv1.VersionTLS13 {
		return Settings{}, fmt.Errorf("%s.ciphers: none of %q is one that can be served with %s", custom, p.Ciphers, version)
	}
	return Settings{version, strings.Join(names, ",")}.without13(), nil
}

// iana returns IANA's name of a cipher with an OpenSSL name such as
// ECDHE-RSA-AES128-GCM-SHA256.
func iana(name string) string {
	if strings.HasPrefix(name, "TLS_") {
		return name
	}
	exchange, rest := "RSA", name
	for _, e := range []string{"ECDHE-ECDSA-", "ECDHE-RSA-"} {
		if after, has := strings.CutPrefix(name, e); has {
			exchange, rest = strings.ReplaceAll(strings.TrimSuffix(e, "-"), "-", "_"), after
		}
	}
	switch rest {
	case "CHACHA20-POLY1305":
		rest = "CHACHA20_POLY1305_SHA256"
	case "DES-CBC3-SHA":
		rest = "3DES_EDE_CBC_SHA"
	default:
		rest = strings.NewReplacer("AES128-GCM", "AES_128_GCM", "AES256-GCM", "AES_256_GCM", "AES128-", "AES_128_CBC_", "AES256-", "AES_256_CBC_", "-", "_").Replace(rest)
	}
	return "TLS_" + exchange + "_WITH_" + rest
}
