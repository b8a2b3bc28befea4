// SPDX-License-Identifier: Apache-2.0

// Package command is outrigger-kbs, a key broker for development and tests.
package command

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/outrigger/outrigger/internal/attest"
	"github.com/outrigger/outrigger/internal/attest/verify"
	"github.com/outrigger/outrigger/internal/commandline"
	"github.com/outrigger/outrigger/internal/keybroker/server"
	"github.com/outrigger/outrigger/internal/program"
)

// Name of the program.
const Name = "outrigger-kbs"

// Main is outrigger-kbs; it returns the exit code.
func Main() int {
	err := program.UntilSignal(func(ctx context.Context) error { return Command().ExecuteContext(ctx) })
	return program.Exit(Name, os.Stderr, err)
}

type options struct {
	listen, certificate, key      string
	resources, policy, references string
	tpmCA, tokenKey               string
	allowSample                   bool
}

// Command returns the command line.
func Command() *cobra.Command {
	root := commandline.Root(&cobra.Command{Use: Name, Short: "A key broker for development and tests"})
	root.AddCommand(serveCommand(), sealCommand())
	return root
}

func serveCommand() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use: "serve", Short: "Give resources to VMs that attest", Args: commandline.NoArgs,
		Long: `Give resources to VMs that attest, by the protocol of Trustee's Key Broker Service. It is not a Trustee, and not
for secrets that matter: resources are plain files, there is one policy, and nothing is kept when it ends.

A VM gets a resource if the policy says so. Without --policy that is a VM whose claims are as the reference
values have them, so without --reference-values nobody gets anything.`,
		Example: `  mkdir -p resources/default/key; echo sesame > resources/default/key/1
  outrigger-kbs serve --resources resources --reference-values references.json --tpm-ca ca.pem`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.serve(cmd) },
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:8080", "host:port to serve on; without --tls-cert on the loopback address alone")
	f.StringVar(&o.certificate, "tls-cert", "", "PEM file of the server's certificate")
	f.StringVar(&o.key, "tls-key", "", "PEM file of its key")
	f.StringVar(&o.resources, "resources", "", "folder with a file REPOSITORY/TYPE/TAG for each resource (required)")
	f.StringVar(&o.policy, "policy", "", "Rego file that says who gets what: data.policy.allow, as of Trustee's resource policies")
	f.StringVar(&o.references, "reference-values", "", `JSON file of what claims must be, {"pcr04": ["HEX", ...], ...}: podvm-image measure -o rvps writes one`)
	f.BoolVar(&o.allowSample, "allow-sample", false, "accept evidence of the sample attester, which proves nothing")
	f.StringVar(&o.tpmCA, "tpm-ca", "", "PEM file of those who certify TPMs' endorsement keys; TPMs of others are refused then")
	f.StringVar(&o.tokenKey, "token-key", "", "PEM file of the P-256 key that signs tokens (default: one that is forgotten in the end)")
	return cmd
}

func (o *options) serve(cmd *cobra.Command) error {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	config, err := o.config(log)
	if err != nil {
		return err
	}
	broker, err := server.New(*config)
	if err != nil {
		return program.Usagef("--policy: %w", err)
	}
	names, err := broker.Resources()
	if err != nil {
		return program.Usagef("--resources: %w", err)
	}
	listener, err := o.open(cmd.Context())
	if err != nil {
		return err
	}
	log.Warn("this is a broker for development and tests, and not Trustee: keep no secrets in it that matter")
	log.Info("serving", "address", listener.Addr().String(), "tls", o.certificate != "", "resources", len(names), "reference values", len(config.References), "sample evidence", o.allowSample)
	s := &http.Server{Handler: broker.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, WriteTimeout: time.Minute, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(cmd.Context(), func() { s.Close() })
	defer stop()
	if err := s.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// open listens.
func (o *options) open(ctx context.Context) (net.Listener, error) {
	if (o.certificate == "") != (o.key == "") {
		return nil, program.Usagef("--tls-cert and --tls-key: want both, or none")
	}
	host, _, err := net.SplitHostPort(o.listen)
	if err != nil {
		return nil, program.Usagef("--listen %q: want HOST:PORT", o.listen)
	}
	if o.certificate == "" {
		if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
			return nil, program.Usagef("--listen %s: without --tls-cert and --tls-key only a loopback address, such as 127.0.0.1:8080", o.listen)
		}
		return new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	}
	pair, err := tls.LoadX509KeyPair(o.certificate, o.key)
	if err != nil {
		return nil, program.Usagef("--tls-cert, --tls-key: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return nil, err
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}), nil
}

func (o *options) config(log *slog.Logger) (*server.Config, error) {
	verifier := &verify.Verifier{AllowSample: o.allowSample}
	config := &server.Config{Resources: o.resources, Policy: server.DefaultPolicy, Verifier: verifier, Log: log}
	if info, err := os.Stat(o.resources); err != nil || !info.IsDir() {
		return nil, program.Usagef("--resources %q: want a folder", o.resources)
	}
	if o.policy != "" {
		text, err := os.ReadFile(o.policy)
		if err != nil {
			return nil, program.Usagef("--policy: %w", err)
		}
		config.Policy = string(text)
	}
	if o.references != "" {
		text, err := os.ReadFile(o.references)
		if err == nil {
			config.References, err = attest.ParseReferences(text)
		}
		if err != nil {
			return nil, program.Usagef("--reference-values %s: %w", o.references, err)
		}
	}
	if o.tpmCA != "" {
		text, err := os.ReadFile(o.tpmCA)
		verifier.EndorsementRoots, config.Certified = x509.NewCertPool(), true
		if err != nil || !verifier.EndorsementRoots.AppendCertsFromPEM(text) {
			return nil, program.Usagef("--tpm-ca %s: not a PEM file with certificates", o.tpmCA)
		}
	}
	var err error
	config.Key, err = o.signingKey()
	return config, err
}

func (o *options) signingKey() (*ecdsa.PrivateKey, error) {
	if o.tokenKey == "" {
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
	key, err := readKey(o.tokenKey)
	if err != nil {
		return nil, program.Usagef("--token-key %s: %w", o.tokenKey, err)
	}
	return key, nil
}

// readKey reads a P-256 key of PKCS #8 or SEC 1. Errors quote nothing of it.
func readKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	wrong := errors.New("not a PEM file with a private key of P-256: openssl ecparam -name prime256v1 -genkey -noout makes one")
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, wrong
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil && key.Curve == elliptic.P256() {
		return key, nil
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if key, is := any.(*ecdsa.PrivateKey); err == nil && is && key.Curve == elliptic.P256() {
		return key, nil
	}
	return nil, wrong
}

func sealCommand() *cobra.Command {
	var key, kid string
	cmd := &cobra.Command{
		Use: "seal RESOURCE", Short: "Print a sealed Secret: a signed pointer to a resource", Args: cobra.ExactArgs(1),
		Long: `Print a sealed Secret: the value of a Kubernetes Secret that only a VM which attests can open. It is a pointer to RESOURCE,
kbs:///REPOSITORY/TYPE/TAG, and signed: the broker must have the public key, as a JSON Web Key, as the resource that
--kid names; --public prints it. Who has the Secret learns nothing but the resource's name.`,
		Example: `  openssl ecparam -name prime256v1 -genkey -noout -out signing.pem
  outrigger-kbs seal --key signing.pem --public > resources/default/signing/1
  outrigger-kbs seal --key signing.pem --kid kbs:///default/signing/1 kbs:///default/key/1`,
	}
	var public bool
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if public && len(args) > 0 || !public && len(args) != 1 {
			return program.Usagef("want one RESOURCE, or --public; see %s --help", cmd.CommandPath())
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		private, err := readKey(key)
		if err != nil {
			return program.Usagef("--key %q: %w", key, err)
		}
		text, err := "", error(nil)
		if public {
			text, err = server.PublicKey(private)
		} else {
			text, err = server.Seal(private, kid, args[0])
		}
		if err != nil {
			return program.UsageError(err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), text)
		return nil
	}
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "PEM file of the P-256 key that signs (required)")
	f.StringVar(&kid, "kid", "", "URI of the public key at the broker, kbs:///REPOSITORY/TYPE/TAG")
	f.BoolVar(&public, "public", false, "print the public key as a JSON Web Key")
	return cmd
}
