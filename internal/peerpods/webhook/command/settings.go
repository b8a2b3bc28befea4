// SPDX-License-Identifier: Apache-2.0

package command

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/internal/controllers"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/provider/config"
)

// settings are what flags and environment say.
type settings struct {
	controllers.API
	MetricsAddress address `flag:"metrics-bind-address" default:":8443" usage:"address of /metrics: HTTPS, for clients with a token that the cluster allows; 0 is off"`
	HealthAddress  address `flag:"health-probe-bind-address" default:":8081" usage:"address of /healthz and /readyz; 0 is off"`
	LeaderElect    bool    `flag:"leader-elect" usage:"leave the renewal of certificates to one replica; each of them answers pods"`
	Port           int     `flag:"webhook-port" default:"9443" min:"1" max:"65535" usage:"port on which the API server calls"`
	CertDir        string  `flag:"cert-dir" usage:"folder with tls.crt and tls.key, such as cert-manager's; without it the webhook makes its own"`
	CertSecret     name    `flag:"cert-secret" default:"peerpods-webhook-tls" usage:"name of the Secret that the replicas share for certificates of their own"`
	Configuration  name    `flag:"webhook-configuration" default:"peerpods-webhook" usage:"name of the MutatingWebhookConfiguration"`
	controllers.Log
	controllers.Accepted
	program.VersionFlag

	RuntimeClass name                `env:"TARGET_RUNTIMECLASS" default:"kata-remote" usage:"runtime class of the pods to size"`
	Slot         corev1.ResourceName `env:"POD_VM_EXTENDED_RESOURCE" default:"kata.peerpods.io/vm" usage:"resource of which each takes one"`
	MinVersion   string              `env:"TLS_MIN_VERSION" usage:"VersionTLS12 (default) or VersionTLS13"`
	CipherSuites []string            `env:"TLS_CIPHER_SUITES" usage:"IANA names, by comma; not with VersionTLS13"`
	Namespace    string              `env:"POD_NAMESPACE" usage:"namespace of Secret and lease; default: that of the service account"`

	tlsMin    uint16
	tlsSuites []uint16
}

func newSettings() *settings {
	return &settings{Log: controllers.Log{Format: "text"}}
}

// Settings returns the program's settings.
func Settings() *config.Settings { return config.Bind(newSettings()) }

// address is one to listen at; 0 is none.
type address string

// UnmarshalText implements encoding.TextUnmarshaler.
func (a *address) UnmarshalText(text []byte) error {
	*a = address(text)
	if *a == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(string(text))
	if err != nil {
		return fmt.Errorf("want HOST:PORT, :PORT or 0: %w", err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return fmt.Errorf("%q is not a port from 0 to 65535", port)
	}
	return nil
}

// name is that of an object.
type name string

// UnmarshalText implements encoding.TextUnmarshaler.
func (n *name) UnmarshalText(text []byte) error {
	*n = name(text)
	if msgs := validation.IsDNS1123Subdomain(string(text)); len(msgs) > 0 {
		return fmt.Errorf("want a name: %s", msgs[0])
	}
	return nil
}

// check reads what no tag can express.
func (s *settings) check() error {
	var problems []error
	note := func(where string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", where, err))
		}
	}
	var err error
	if s.CertDir != "" {
		_, err = tls.LoadX509KeyPair(s.CertDir+"/tls.crt", s.CertDir+"/tls.key")
		note("flag -cert-dir", err)
	}
	note("variable POD_VM_EXTENDED_RESOURCE", checkSlot(string(s.Slot)))
	s.tlsMin, err = podtls.ParseVersion(s.MinVersion)
	note("variable TLS_MIN_VERSION", err)
	if len(s.CipherSuites) > 0 {
		s.tlsSuites, err = podtls.ParseCipherSuites(s.CipherSuites)
		note("variable TLS_CIPHER_SUITES", errors.Join(err, podtls.CheckCipherSuites(s.tlsMin, s.tlsSuites)))
	}
	s.Namespace, err = namespace(s.Namespace)
	note("variable POD_NAMESPACE", err)
	return errors.Join(problems...)
}

func firstOf(value string, msgs []string) error {
	if len(msgs) == 0 {
		return nil
	}
	return fmt.Errorf("%q: %s", value, msgs[0])
}

// checkSlot returns what the API server would say of each pod.
func checkSlot(name string) error {
	domain, _, found := strings.Cut(name, "/")
	if !found || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io") || strings.HasPrefix(name, "requests.") {
		return fmt.Errorf("%q is not an extended resource: it needs a domain of its own, as in kata.peerpods.io/vm", name)
	}
	return firstOf(name, validation.IsQualifiedName(name))
}

const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

func namespace(fromEnv string) (string, error) {
	if fromEnv == "" {
		b, err := os.ReadFile(serviceAccountNamespace)
		if err != nil {
			return "", fmt.Errorf("it is not set, and this is not a pod with a service account: %w", err)
		}
		fromEnv = strings.TrimSpace(string(b))
	}
	return fromEnv, firstOf(fromEnv, validation.IsDNS1123Label(fromEnv))
}
