// SPDX-License-Identifier: Apache-2.0

package settings

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

// TLS are what --tls-min-version and --tls-cipher-suites take.
type TLS struct {
	// MinVersion is one of VersionTLS10 to VersionTLS13.
	MinVersion string
	// CipherSuites are IANA's names with commas; empty with TLS 1.3, of which they
	// cannot be chosen.
	CipherSuites string
}

// TLSFromFlags returns the settings of flags, which win over every profile. It is empty
// if neither flag is set.
func TLSFromFlags(minVersion, cipherSuites string) (TLS, error) {
	if minVersion != "" {
		if _, err := cliflag.TLSVersion(minVersion); err != nil {
			return TLS{}, fmt.Errorf("--tls-min-version: %w; there are %s", err, strings.Join(cliflag.TLSPossibleVersions(), ", "))
		}
	}
	var names []string
	if cipherSuites != "" {
		names = strings.Split(cipherSuites, ",")
	}
	if _, err := cliflag.TLSCipherSuites(names); err != nil {
		return TLS{}, fmt.Errorf("--tls-cipher-suites: %w", err)
	}
	return TLS{minVersion, cipherSuites}.without13(), nil
}

// TLSFromAPIServer returns the settings of the cluster's profile if all components have
// to follow it, else those of the profile Intermediate. a is nil for a cluster without
// one.
func TLSFromAPIServer(a *configv1.APIServer) (TLS, error) {
	intermediate := configv1.TLSProfiles[configv1.TLSProfileIntermediateType]
	if a == nil || a.Spec.TLSAdherence == configv1.TLSAdherencePolicyNoOpinion || a.Spec.TLSAdherence == configv1.TLSAdherencePolicyLegacyAdheringComponentsOnly {
		return ofProfile(intermediate)
	}
	p := a.Spec.TLSSecurityProfile
	switch {
	case p == nil || p.Type == "":
		return ofProfile(intermediate)
	case p.Type == configv1.TLSProfileCustomType && p.Custom == nil:
		return TLS{}, fmt.Errorf("%s: missing", custom)
	case p.Type == configv1.TLSProfileCustomType:
		return ofProfile(&p.Custom.TLSProfileSpec)
	}
	s, known := configv1.TLSProfiles[p.Type]
	if !known {
		return TLS{}, fmt.Errorf("apiserver %s: spec.tlsSecurityProfile.type %q is not known", openshift.ClusterName, p.Type)
	}
	return ofProfile(s)
}

// Or returns the settings, with those that are empty from others.
func (s TLS) Or(other TLS) TLS {
	return TLS{cmp.Or(s.MinVersion, other.MinVersion), cmp.Or(s.CipherSuites, other.CipherSuites)}.without13()
}

func (s TLS) without13() TLS {
	if s.MinVersion == "VersionTLS13" {
		s.CipherSuites = ""
	}
	return s
}

// Apply sets a server's configuration.
func (s TLS) Apply(c *tls.Config) {
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
func ofProfile(p *configv1.TLSProfileSpec) (TLS, error) {
	version := string(p.MinTLSVersion)
	if _, err := cliflag.TLSVersion(version); err != nil {
		return TLS{}, fmt.Errorf("%s.minTLSVersion: %w", custom, err)
	}
	known := cliflag.TLSCipherPossibleValues()
	var names []string
	served := 0 // those that Go can be told to serve
	for _, c := range p.Ciphers {
		if name := iana(c); slices.Contains(known, name) {
			names = append(names, name)
			if strings.Contains(name, "_WITH_") { // the names of TLS 1.3's have no key exchange
				served++
			}
		}
	}
	if served == 0 && p.MinTLSVersion != configv1.VersionTLS13 {
		return TLS{}, fmt.Errorf("%s.ciphers: none of %q is one that can be served with %s", custom, p.Ciphers, version)
	}
	return TLS{version, strings.Join(names, ",")}.without13(), nil
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
