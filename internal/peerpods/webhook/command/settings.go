// SPDX-License-Identifier: Apache-2.0

package command

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// settings are what flags and environment say.
type settings struct {
	metricsAddress, healthAddress string
	leaderElect                   bool
	port                          int
	certDir, certSecret           string
	configuration                 string
	kubeconfig                    string
	logLevel, logFormat           string
	version                       bool

	level        slog.Level
	namespace    string
	runtimeClass string
	slot         corev1.ResourceName
	tlsMin       uint16
	tlsSuites    []uint16
}

func (s *settings) flags(out io.Writer) *flag.FlagSet {
	fs := flag.NewFlagSet("peerpods-webhook", flag.ContinueOnError)
	fs.SetOutput(out)
	fs.StringVar(&s.metricsAddress, "metrics-bind-address", ":8443", "`ADDRESS` of /metrics: HTTPS, for clients with a token that the cluster allows; 0 is off")
	fs.StringVar(&s.healthAddress, "health-probe-bind-address", ":8081", "`ADDRESS` of /healthz and /readyz; 0 is off")
	fs.BoolVar(&s.leaderElect, "leader-elect", false, "leave the renewal of certificates to one replica; each of them answers pods")
	fs.IntVar(&s.port, "webhook-port", 9443, "`PORT` on which the API server calls")
	fs.StringVar(&s.certDir, "cert-dir", "", "`FOLDER` with tls.crt and tls.key, such as cert-manager's; without it the webhook makes its own")
	fs.StringVar(&s.certSecret, "cert-secret", "peerpods-webhook-tls", "`NAME` of the Secret that the replicas share for certificates of their own")
	fs.StringVar(&s.configuration, "webhook-configuration", "peerpods-webhook", "`NAME` of the MutatingWebhookConfiguration")
	fs.StringVar(&s.kubeconfig, "kubeconfig", "", "`FILE` that says how to reach the cluster from outside of it (default: KUBECONFIG)")
	fs.StringVar(&s.logLevel, "log-level", "info", "least level that is logged: debug, info, warn or error")
	fs.StringVar(&s.logFormat, "log-format", "text", "text or json")
	// Those of programs that are built with controller-runtime, as manifests have them.
	fs.StringVar(&s.logLevel, "zap-log-level", "info", "the same as -log-level, or a verbosity such as 1")
	fs.StringVar(&s.logFormat, "zap-encoder", "text", "the same as -log-format; console is text")
	fs.BoolFunc("zap-devel", "the same as -log-level debug -log-format text", func(text string) error {
		on, err := strconv.ParseBool(text)
		if on {
			s.logLevel, s.logFormat = "debug", "text"
		}
		return err
	})
	fs.String("zap-stacktrace-level", "", "accepted, without effect")
	fs.String("zap-time-encoding", "", "accepted, without effect")
	fs.BoolVar(&s.version, "version", false, "print the version")
	fs.Usage = func() { usage(fs) }
	return fs
}

// Flags returns the program's flags.
func Flags() *flag.FlagSet { return new(settings).flags(io.Discard) }

// Variables returns the environment variables of the program, each with its meaning.
func Variables() [][2]string {
	return [][2]string{
		{"TARGET_RUNTIMECLASS", "runtime class of the pods to size (default kata-remote)"},
		{"POD_VM_EXTENDED_RESOURCE", "resource of which each takes one (default kata.peerpods.io/vm)"},
		{"TLS_MIN_VERSION", "VersionTLS12 (default) or VersionTLS13"},
		{"TLS_CIPHER_SUITES", "IANA names, by comma; not with VersionTLS13"},
		{"POD_NAMESPACE", "namespace of Secret and lease (default: that of the service account)"},
		{"KUBECONFIG", "the same as -kubeconfig"},
	}
}

func usage(fs *flag.FlagSet) {
	fmt.Fprint(fs.Output(), "peerpods-webhook sizes the VMs of pods as the pods are created.\n\nFlags:\n")
	fs.PrintDefaults()
	fmt.Fprint(fs.Output(), "\nEnvironment (an empty variable counts as unset):\n")
	for _, v := range Variables() {
		fmt.Fprintf(fs.Output(), "  %-24s  %s\n", v[0], v[1])
	}
}

// parse returns flag.ErrHelp if help was asked for and printed.
func (s *settings) parse(args []string, getenv func(string) string, out io.Writer) error {
	fs := s.flags(io.Discard)
	if err := fs.Parse(args); errors.Is(err, flag.ErrHelp) {
		fs.SetOutput(out)
		fs.Usage()
		return err
	} else if err != nil {
		return err
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q: there are flags only", fs.Arg(0))
	}
	return errors.Join(s.checkFlags(), s.environment(getenv))
}

func (s *settings) checkFlags() error {
	var problems []error
	bad := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	for name, address := range map[string]string{"metrics-bind-address": s.metricsAddress, "health-probe-bind-address": s.healthAddress} {
		if err := checkAddress(address); err != nil {
			bad("flag -%s: %w", name, err)
		}
	}
	if s.port < 1 || s.port > 65535 {
		bad("flag -webhook-port: %d is not a port from 1 to 65535", s.port)
	}
	for name, value := range map[string]string{"cert-secret": s.certSecret, "webhook-configuration": s.configuration} {
		if msgs := validation.IsDNS1123Subdomain(value); len(msgs) > 0 {
			bad("flag -%s: %q is not a name: %s", name, value, msgs[0])
		}
	}
	if verbosity, err := strconv.Atoi(s.logLevel); err == nil && verbosity >= 0 {
		s.level = slog.Level(-verbosity)
	} else if err := s.level.UnmarshalText([]byte(s.logLevel)); err != nil {
		bad("flag -log-level: %q is not debug, info, warn or error", s.logLevel)
	}
	if s.logFormat == "console" {
		s.logFormat = "text"
	}
	if s.logFormat != "text" && s.logFormat != "json" {
		bad("flag -log-format: %q is neither text nor json", s.logFormat)
	}
	if s.certDir != "" {
		if _, err := tls.LoadX509KeyPair(s.certDir+"/tls.crt", s.certDir+"/tls.key"); err != nil {
			bad("flag -cert-dir: %w", err)
		}
	}
	return errors.Join(problems...)
}

func checkAddress(address string) error {
	if address == "0" {
		return nil
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT, :PORT or 0: %w", address, err)
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Errorf("%q: %q is not a port from 0 to 65535", address, port)
	}
	return nil
}

func (s *settings) environment(getenv func(string) string) error {
	or := func(name, def string) string {
		if value := getenv(name); value != "" {
			return value
		}
		return def
	}
	var problems []error
	note := func(name string, err error) {
		if err != nil {
			problems = append(problems, fmt.Errorf("variable %s: %w", name, err))
		}
	}
	s.runtimeClass = or("TARGET_RUNTIMECLASS", "kata-remote")
	note("TARGET_RUNTIMECLASS", firstOf(s.runtimeClass, validation.IsDNS1123Subdomain(s.runtimeClass)))
	s.slot = corev1.ResourceName(or("POD_VM_EXTENDED_RESOURCE", "kata.peerpods.io/vm"))
	note("POD_VM_EXTENDED_RESOURCE", checkSlot(string(s.slot)))
	var err error
	s.tlsMin, err = podtls.ParseVersion(getenv("TLS_MIN_VERSION"))
	note("TLS_MIN_VERSION", err)
	if suites := getenv("TLS_CIPHER_SUITES"); suites != "" {
		s.tlsSuites, err = podtls.ParseCipherSuites(strings.Split(suites, ","))
		note("TLS_CIPHER_SUITES", err)
		note("TLS_CIPHER_SUITES", podtls.CheckCipherSuites(s.tlsMin, s.tlsSuites))
	}
	s.namespace, err = namespace(getenv("POD_NAMESPACE"))
	note("POD_NAMESPACE", err)
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
