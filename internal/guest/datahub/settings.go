// SPDX-License-Identifier: Apache-2.0

package datahub

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/outrigger/outrigger/internal/attest/eventlog"
)

// settings are those of aa.toml and cdh.toml.
type settings struct {
	url, certificate string
	// imagePolicy is a policy.json, as text or at a URI.
	imagePolicy, imagePolicyURI string
	// authURI is where the credentials for registries are.
	authURI string
	// unsigned takes sealed Secrets whose signature is not verified.
	unsigned bool
}

// aaConfig is aa.toml: guest-components, attestation-agent/config.example.toml. Keys that are not here are errors.
type aaConfig struct {
	Tokens struct {
		KBS *struct {
			URL         string `toml:"url"`
			Certificate string `toml:"cert"`
			Algorithm   string `toml:"tee_key_algorithm"`
		} `toml:"kbs"`
	} `toml:"token_configs"`
	EventLog struct {
		PCR     int  `toml:"init_pcr"`
		Enabled bool `toml:"enable_eventlog"`
	} `toml:"eventlog_config"`
	Log logConfig `toml:"log"`
}

// cdhConfig is cdh.toml: guest-components, confidential-data-hub/README.md.
type cdhConfig struct {
	// Socket is where other programs of upstream's image reach the hub: here are none.
	Socket string `toml:"socket"`
	KBC    *struct {
		Name        string `toml:"name"`
		URL         string `toml:"url"`
		Certificate string `toml:"kbs_cert"`
	} `toml:"kbc"`
	AA struct {
		Socket string `toml:"aa_socket"`
	} `toml:"aa"`
	Image struct {
		Policy    string `toml:"image_security_policy"`
		PolicyURI string `toml:"image_security_policy_uri"`
		AuthURI   string `toml:"authenticated_registry_credentials_uri"`
		// Parallel is a hint: this guest decides by itself.
		Parallel int `toml:"max_concurrent_layer_downloads_per_image"`
	} `toml:"image"`
	Unsigned bool      `toml:"skip_sealed_secret_verification"`
	Log      logConfig `toml:"log"`
}

// logConfig is a level: this guest logs to its console only.
type logConfig struct {
	Level string `toml:"level"`
}

const (
	cdhSocket = "unix:///run/confidential-containers/cdh.sock"
	aaSocket  = "unix:///run/confidential-containers/attestation-agent/attestation-agent.sock"
	// eventPCR is the register of a TPM that the event log is bound to.
	eventPCR = eventlog.PCR
	// keyAlgorithm is the only one of upstream's three.
	keyAlgorithm = "ECDH-ES+A256KW-P256"
)

func parseSettings(aaText, cdhText string) (settings, error) {
	var aa aaConfig
	var cdh cdhConfig
	if err := parse(aaFile, aaText, &aa); err != nil {
		return settings{}, err
	}
	if err := parse(cdhFile, cdhText, &cdh); err != nil {
		return settings{}, err
	}
	s := settings{
		imagePolicy: cdh.Image.Policy, imagePolicyURI: cdh.Image.PolicyURI, authURI: cdh.Image.AuthURI, unsigned: cdh.Unsigned,
	}
	if err := errors.Join(s.addTokens(aa), s.addKBC(cdh)); err != nil {
		return settings{}, fmt.Errorf("initdata: %w", err)
	}
	return s, nil
}

// parse reads a file strictly: what is not known is asked for and would be missed.
func parse(file, text string, into any) error {
	decoder := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields()
	err := decoder.Decode(into)
	var unknown *toml.StrictMissingError
	var syntax *toml.DecodeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &unknown):
		return fmt.Errorf("initdata: %s: this VM image does not have %.256s", file, strings.Join(unknown.Errors[0].Key(), "."))
	case errors.As(err, &syntax): // whose text quotes the file
		line, column := syntax.Position()
		return fmt.Errorf("initdata: %s: bad TOML at line %d, column %d, or a value of the wrong type", file, line, column)
	}
	return fmt.Errorf("initdata: %s: not what is expected there", file)
}

func (s *settings) addTokens(aa aaConfig) error {
	kbs := aa.Tokens.KBS
	switch {
	case aa.EventLog.Enabled && aa.EventLog.PCR != 0 && aa.EventLog.PCR != eventPCR:
		return fmt.Errorf("%s: eventlog_config.init_pcr is %d: this VM image extends PCR %d", aaFile, aa.EventLog.PCR, eventPCR)
	case kbs == nil:
		return nil
	case kbs.Algorithm != "" && kbs.Algorithm != keyAlgorithm:
		return fmt.Errorf("%s: token_configs.kbs.tee_key_algorithm %.64q: this VM image has %s", aaFile, kbs.Algorithm, keyAlgorithm)
	case kbs.URL == "":
		return fmt.Errorf("%s: token_configs.kbs.url is missing", aaFile)
	}
	s.url, s.certificate = kbs.URL, kbs.Certificate
	return nil
}

func (s *settings) addKBC(cdh cdhConfig) error {
	switch {
	case cdh.Socket != "" && cdh.Socket != cdhSocket:
		return fmt.Errorf("%s: socket %.128q: this VM image has %s alone", cdhFile, cdh.Socket, RESTAddress)
	case cdh.AA.Socket != "" && cdh.AA.Socket != aaSocket:
		return fmt.Errorf("%s: aa.aa_socket %.128q: this VM image has %s alone", cdhFile, cdh.AA.Socket, RESTAddress)
	case cdh.Image.Policy != "" && cdh.Image.PolicyURI != "":
		return fmt.Errorf("%s: image.image_security_policy and image.image_security_policy_uri: want one of them", cdhFile)
	case cdh.KBC == nil:
		return nil
	case cdh.KBC.Name != "cc_kbc":
		return fmt.Errorf("%s: kbc.name %.64q: this VM image has cc_kbc", cdhFile, cdh.KBC.Name)
	case cdh.KBC.URL == "":
		return fmt.Errorf("%s: kbc.url is missing", cdhFile)
	case s.url != "" && (s.url != cdh.KBC.URL || s.certificate != "" && cdh.KBC.Certificate != "" && strings.TrimSpace(s.certificate) != strings.TrimSpace(cdh.KBC.Certificate)):
		return fmt.Errorf("%s: kbc names another broker than token_configs.kbs of %s: this VM image has one", cdhFile, aaFile)
	}
	s.url = cdh.KBC.URL
	if cdh.KBC.Certificate != "" {
		s.certificate = cdh.KBC.Certificate
	}
	return nil
}
