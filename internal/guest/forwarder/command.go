// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/outrigger/outrigger/internal/guest/hold"
	"github.com/outrigger/outrigger/internal/guest/kataguest"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/program"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/internal/version"
	"github.com/outrigger/outrigger/internal/wholefile"
)

// Main is agent-protocol-forwarder.
func Main() {
	c, err := parseCommand(os.Args[1:], os.Stderr)
	began := marks.ProcessStart()
	if err == nil && hold.Wait(prepare) {
		began = marks.Uptime()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		err = program.UsageError(err)
	case c.version:
		fmt.Println("agent-protocol-forwarder", version.Version)
		return
	default:
		c.began = began
		err = program.UntilSignal(c.run)
	}
	os.Exit(program.Exit("agent-protocol-forwarder", os.Stderr, err))
}

// prepare makes what the VM has before there is a pod.
func prepare() {
	if err := podnetwork.PrepareGuest(); err != nil {
		slog.Warn("not made in advance: the rules of the pod's tunnel", "err", err)
	}
}

// command is the command line.
type command struct {
	options Options
	// config and the others are files.
	config, caCert, cert, key string
	skipVerify, noTLS         bool
	version                   bool
	// began is when this program was started, or released, by uptime.
	began time.Duration
}

// parseCommand reads the command line; the usage goes to w. Errors name the flag.
func parseCommand(args []string, w io.Writer) (*command, error) {
	c := &command{}
	flags := flag.NewFlagSet("agent-protocol-forwarder", flag.ContinueOnError)
	flags.SetOutput(w)
	flags.StringVar(&c.config, "config", apf.DefaultPath, "configuration `file` that the node sent")
	flags.StringVar(&c.options.Listen, "listen", DefaultListen, "`address` to listen on, host:port")
	flags.StringVar(&c.options.AgentSocket, "kata-agent-socket", DefaultAgentSocket, "unix `socket` of the agent")
	flags.StringVar(&c.options.PodNamespace, "pod-namespace", DefaultPodNamespace, "`path` of the pod's network namespace; made if missing")
	flags.StringVar(&c.options.HostInterface, "host-interface", "", "`interface` that carries the tunnel (default: the one with the default route)")
	flags.StringVar(&c.caCert, "ca-cert-file", "", "PEM `file` that the node's certificate must chain to (default: from the configuration)")
	flags.StringVar(&c.cert, "cert-file", "", "PEM `file` with this VM's certificate (default: from the configuration)")
	flags.StringVar(&c.key, "cert-key", "", "PEM `file` with this VM's private key (default: from the configuration)")
	flags.BoolVar(&c.skipVerify, "tls-skip-verify", false, "take any client; for debugging")
	flags.BoolVar(&c.noTLS, "disable-tls", false, "listen without TLS; for debugging")
	flags.BoolVar(&c.options.DropDNS, "drop-dns", false, "take the pod's DNS settings out of CreateSandbox, for a stock kata-agent")
	flags.BoolVar(&c.version, "version", false, "print the version")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if flags.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if (c.cert == "") != (c.key == "") {
		return nil, errors.New("-cert-file and -cert-key go together")
	}
	return c, nil
}

func (c *command) run(ctx context.Context) error {
	c.options.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	c.options.Kata = kataguest.Find()
	if err := c.readFiles(ctx); err != nil {
		return err
	}
	c.options.DropDNS = c.options.DropDNS || c.options.Kata != nil
	c.options.Marks = marks.Beside(c.options.AgentSocket)
	c.options.Ready = func(net.Addr) {
		c.options.Marks.Note("forwarder", c.began, "until its port is open")
		daemon.SdNotify(false, daemon.SdNotifyReady)
	}
	f, err := New(c.options)
	if err != nil {
		return err
	}
	defer daemon.SdNotify(false, daemon.SdNotifyStopping)
	return f.Run(ctx)
}

// readFiles reads the files that the command line names.
func (c *command) readFiles(ctx context.Context) error {
	data, err := os.ReadFile(c.config)
	if err != nil {
		return fmt.Errorf("-config: %w", err)
	}
	if c.options.Config, err = apf.Parse(data); err != nil {
		return fmt.Errorf("-config %s: %w", c.config, err)
	}
	if c.options.Config.AwaitPod {
		return fmt.Errorf("-config %s: the VM is one of a pool and has no pod yet", c.config)
	}
	if !c.noTLS {
		if c.options.TLS, err = c.tlsConfig(ctx, c.options.Config); err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
	}
	return nil
}

// ServerIdentity returns what the pod's key broker has at a URI. Provisioned is the folder with the pod's initdata. It is nil in an image
// that cannot attest.
var ServerIdentity func(ctx context.Context, provisioned, uri string, log *slog.Logger) ([]byte, error)

const (
	// identityTime bounds an attempt; then PID 1 starts this program again.
	identityTime = 2 * time.Minute
	// identityFile is where it is in the VM's memory, beside the configuration; process-user-data does not write it.
	identityFile = "server-identity.pem"
)

// bringIdentity has certificate and key brought from the broker: the node and its cloud have read what is in config.
func (c *command) bringIdentity(ctx context.Context, config *apf.Config) error {
	uri := config.TLSServerIdentity
	switch {
	case uri == "":
		return nil
	case config.TLSServerKey != "" || config.TLSServerCert != "":
		return errors.New("tls-server-identity goes without tls-server-key and tls-server-cert")
	case ServerIdentity == nil, c.options.Kata != nil:
		return errors.New("tls-server-identity: the VM's key is at a key broker, and this VM image does not attest by itself: use one of podvm-image build --confidential")
	}
	// One that was killed goes on without the broker.
	kept := filepath.Join(filepath.Dir(c.config), identityFile)
	pem, err := os.ReadFile(kept)
	if errors.Is(err, fs.ErrNotExist) {
		ctx, cancel := context.WithTimeout(ctx, identityTime)
		defer cancel()
		if pem, err = ServerIdentity(ctx, filepath.Dir(c.config), uri, c.options.Logger); err == nil {
			err = checkIdentity(pem)
		}
		if err == nil {
			err = wholefile.Replace(kept, pem, 0o600)
		}
	}
	if err != nil {
		return fmt.Errorf("tls-server-identity: %w", err)
	}
	config.TLSServerCert, config.TLSServerKey = string(pem), string(pem)
	return nil
}

// checkIdentity refuses a certificate by which its owner could be a node, too: a VM asks of who calls it only that the CA has said so.
func checkIdentity(pem []byte) error {
	pair, err := tls.X509KeyPair(pem, pem)
	if err != nil {
		return fmt.Errorf("want a certificate and its key, PEM: %w", err)
	}
	if slices.Equal(pair.Leaf.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) && len(pair.Leaf.UnknownExtKeyUsage) == 0 {
		return nil
	}
	return errors.New("its certificate has to have the extended key usage serverAuth and no other: who has it could be a node to other VMs")
}

// tlsConfig takes each part from its file if there is one, else from config.
func (c *command) tlsConfig(ctx context.Context, config *apf.Config) (*tls.Config, error) {
	if err := c.bringIdentity(ctx, config); err != nil {
		return nil, err
	}
	o, err := config.TLS()
	if err != nil {
		return nil, err
	}
	o.SkipVerify = c.skipVerify
	for _, part := range []struct {
		name, file string
		to         *[]byte
	}{
		{"-cert-file or tls-server-cert", c.cert, &o.CertPEM},
		{"-cert-key or tls-server-key", c.key, &o.KeyPEM},
		{"-ca-cert-file or tls-client-ca", c.caCert, &o.ClientCAPEM},
	} {
		if part.file != "" {
			if *part.to, err = os.ReadFile(part.file); err != nil {
				return nil, fmt.Errorf("%s: %w", part.name, err)
			}
		}
		if len(*part.to) == 0 && !(c.skipVerify && part.to == &o.ClientCAPEM) {
			return nil, fmt.Errorf("%s is missing", part.name)
		}
	}
	return podtls.ServerConfig(o)
}
