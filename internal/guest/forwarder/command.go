// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
)

// Command is the command line of agent-protocol-forwarder.
type Command struct {
	Config        string
	Listen        string
	AgentSocket   string
	PodNamespace  string
	HostInterface string
	CACertFile    string
	CertFile      string
	CertKey       string
	TLSSkipVerify bool
	DisableTLS    bool
	DropDNS       bool
	Version       bool
}

// ParseCommand reads the command line; the usage goes to w. Errors name the flag.
func ParseCommand(args []string, w io.Writer) (*Command, error) {
	c := &Command{}
	flags := flag.NewFlagSet("agent-protocol-forwarder", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&c.Config, "config", apf.DefaultPath, "configuration `file` that the node sent")
	flags.StringVar(&c.Listen, "listen", DefaultListen, "`address` to listen on, host:port")
	flags.StringVar(&c.AgentSocket, "kata-agent-socket", DefaultAgentSocket, "unix `socket` of the agent")
	flags.StringVar(&c.PodNamespace, "pod-namespace", DefaultPodNamespace, "`path` of the pod's network namespace; made if missing")
	flags.StringVar(&c.HostInterface, "host-interface", "", "`interface` that carries the tunnel (default: the one with the default route)")
	flags.StringVar(&c.CACertFile, "ca-cert-file", "", "PEM `file` that the node's certificate must chain to (default: from the configuration)")
	flags.StringVar(&c.CertFile, "cert-file", "", "PEM `file` with this VM's certificate (default: from the configuration)")
	flags.StringVar(&c.CertKey, "cert-key", "", "PEM `file` with this VM's private key (default: from the configuration)")
	flags.BoolVar(&c.TLSSkipVerify, "tls-skip-verify", false, "take any client; for debugging")
	flags.BoolVar(&c.DisableTLS, "disable-tls", false, "listen without TLS; for debugging")
	flags.BoolVar(&c.DropDNS, "drop-dns", false, "take the pod's DNS settings out of CreateSandbox, for a stock kata-agent")
	flags.BoolVar(&c.Version, "version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if (c.CertFile == "") != (c.CertKey == "") {
		return nil, errors.New("-cert-file and -cert-key go together")
	}
	return c, nil
}

// Options reads the files that the command line names.
func (c *Command) Options() (Options, error) {
	data, err := os.ReadFile(c.Config)
	if err != nil {
		return Options{}, fmt.Errorf("-config: %w", err)
	}
	config, err := apf.Parse(data)
	if err != nil {
		return Options{}, fmt.Errorf("-config %s: %w", c.Config, err)
	}
	o := Options{
		Config: config, Listen: c.Listen, AgentSocket: c.AgentSocket,
		PodNamespace: c.PodNamespace, HostInterface: c.HostInterface, DropDNS: c.DropDNS,
	}
	if !c.DisableTLS {
		if o.TLS, err = c.tlsConfig(config); err != nil {
			return Options{}, fmt.Errorf("TLS: %w", err)
		}
	}
	return o, nil
}

// tlsConfig takes each part from its file if there is one, else from config.
func (c *Command) tlsConfig(config *apf.Config) (*tls.Config, error) {
	o := podtls.ServerOptions{SkipVerify: c.TLSSkipVerify}
	var err error
	for _, part := range []struct {
		name, file, text string
		to               *[]byte
	}{
		{"-cert-file or tls-server-cert", c.CertFile, config.TLSServerCert, &o.CertPEM},
		{"-cert-key or tls-server-key", c.CertKey, config.TLSServerKey, &o.KeyPEM},
		{"-ca-cert-file or tls-client-ca", c.CACertFile, config.TLSClientCA, &o.ClientCAPEM},
	} {
		if *part.to = []byte(part.text); part.file != "" {
			if *part.to, err = os.ReadFile(part.file); err != nil {
				return nil, fmt.Errorf("%s: %w", part.name, err)
			}
		}
		if len(*part.to) == 0 && !(c.TLSSkipVerify && part.to == &o.ClientCAPEM) {
			return nil, fmt.Errorf("%s is missing", part.name)
		}
	}
	if o.MinVersion, err = podtls.ParseVersion(config.TLSMinVersion); err != nil {
		return nil, fmt.Errorf("tls-min-version: %w", err)
	}
	if o.CipherSuites, err = podtls.ParseCipherSuites(config.TLSCipherSuites); err != nil {
		return nil, fmt.Errorf("tls-cipher-suites: %w", err)
	}
	return podtls.ServerConfig(o)
}
