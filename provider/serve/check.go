// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/conformance"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// runCheck runs the checks on the configured provider, and returns errFailed
// when one has failed.
func (c *command) runCheck() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal does not wait for the clean-up
	checks, err := c.chosenChecks()
	if err != nil {
		return err
	}
	if err := c.verify(ctx); err != nil {
		return usagef("the provider cannot be checked: %w", err)
	}
	write := func(result conformance.Result) { conformance.WriteResult(c.Stdout, result) }
	results := conformance.ExecuteWith(ctx, conformance.Options{Ended: write}, checks, c.subject)
	summary := conformance.Summarize(results)
	fmt.Fprintln(c.Stdout, summary)
	if err := c.writeJUnit(results); err != nil {
		return err
	}
	if summary.Failed > 0 {
		return errFailed
	}
	return nil
}

// verify spares the checks a configuration that makes all of them fail.
func (c *command) verify(ctx context.Context) error {
	p, err := c.open(ctx)
	if err != nil {
		return err
	}
	var opened closers
	remote, err := c.overWire(ctx, p, &opened)
	if err == nil {
		err = provider.VerifyConfig(ctx, remote)
	}
	return errors.Join(err, opened.close())
}

func (c *command) chosenChecks() ([]conformance.Check, error) {
	pattern := regexp.MustCompile(c.only) // validate has compiled it
	checks := slices.DeleteFunc(conformance.Checks(), func(check conformance.Check) bool { return !pattern.MatchString(check.Name) })
	if len(checks) == 0 {
		return nil, usagef("--run %s matches no check", c.only)
	}
	return checks, nil
}

func (c *command) writeJUnit(results []conformance.Result) error {
	if c.junit == "" {
		return nil
	}
	file, err := os.Create(c.junit)
	if err != nil {
		return fmt.Errorf("--junit: %w", err)
	}
	return errors.Join(conformance.WriteJUnit(file, c.Name, results), file.Close())
}

// subject returns the provider as its hosts see it: over the wire. Reopen makes
// another one from the same settings.
func (c *command) subject(t conformance.T) conformance.Subject {
	var opened closers
	t.Cleanup(func() { // after the check has cleaned up
		if err := opened.close(); err != nil {
			t.Errorf("Teardown: %v", err)
		}
	})
	open := func() provider.Provider {
		p, err := provider.Open(t.Context(), c.Cloud)
		if err != nil {
			t.Fatalf("NewProvider: %v", err)
		}
		remote, err := c.overWire(t.Context(), p, &opened)
		if err != nil {
			t.Fatalf("%v", err)
		}
		return remote
	}
	subject := conformance.Subject{
		Provider: open(), Reopen: open,
		Open: func(ctx context.Context) (provider.Provider, error) { return provider.Open(ctx, c.Cloud) },
	}
	if c.Subject != nil {
		c.Subject(&subject)
	}
	return subject
}

// closers are called in reverse order.
type closers []func() error

func (c *closers) close() error {
	var errs []error
	for _, f := range slices.Backward(*c) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// overWire returns p at the other end of a connection in memory.
func (c *command) overWire(ctx context.Context, p provider.Provider, opened *closers) (provider.Provider, error) {
	listener := bufconn.Listen(1 << 20)
	server := wire.NewServer(c.wireOptions(p))
	rpc := grpc.NewServer(wire.ServerOptions()...)
	server.Register(rpc)
	go rpc.Serve(listener)
	*opened = append(*opened, server.Close, func() error { rpc.Stop(); return nil })
	conn, err := grpc.NewClient("passthrough:"+c.Name, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		return nil, err
	}
	*opened = append(*opened, conn.Close)
	capabilities, err := wire.Configure(ctx, conn, "check", nil, wire.PluginName(c.Name))
	if err != nil {
		return nil, err
	}
	return wire.NewProvider(conn, "check", capabilities, wire.PluginName(c.Name)), nil
}
