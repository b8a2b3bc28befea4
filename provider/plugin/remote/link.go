// SPDX-License-Identifier: Apache-2.0

// Package remote makes a provider in another process look like one of this
// process: its manager binds flags and environment by the schema that the
// other side tells, and its settings are given again whenever the other side
// has lost them.
package remote

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/config"
	"github.com/outrigger/outrigger/provider/plugin/pluginpb"
	"github.com/outrigger/outrigger/provider/plugin/wire"
)

// Backend has the connection of the moment.
type Backend interface {
	// Conn returns it, waiting a little while there is none, and a function
	// that explains the error of a call over it. Errors have the class
	// provider.ErrUnavailable.
	Conn(context.Context) (grpc.ClientConnInterface, func(error) error, error)
}

// ConfigureTimeout is how long the other side may take to open a provider.
const ConfigureTimeout = time.Minute

// Link is a connection that survives restarts of the other side.
type Link struct {
	backend Backend
	// title is what errors call the other side.
	title string
	// prefix keeps configurations of different hosts apart on one server.
	prefix string

	mu     sync.Mutex
	serial int
	opened map[string]*opened // by configuration
}

// opened is a configuration that the other side has been given.
type opened struct {
	values config.Values
	users  int
}

var _ grpc.ClientConnInterface = (*Link)(nil)

// NewLink returns a link without configurations. The prefix is that of their
// names, which must not be those of another host's.
func NewLink(backend Backend, title, prefix string) *Link {
	return &Link{backend: backend, title: title, prefix: prefix, opened: map[string]*opened{}}
}

// Invoke implements grpc.ClientConnInterface. A call to a configuration that
// the other side has lost configures it again and is made again.
func (l *Link) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	name := configurationOf(args)
	if method == pluginpb.Provider_Teardown_FullMethodName && !l.release(name) {
		return nil // others still use it
	}
	err := l.once(ctx, method, args, reply, options)
	if !notConfigured(err) {
		return err
	}
	values, known := l.valuesOf(name)
	if !known {
		if method == pluginpb.Provider_Teardown_FullMethodName {
			return nil // released by whatever made it forget
		}
		return err
	}
	if err := l.restore(ctx, name, values); err != nil {
		return toStatus(fmt.Errorf("configure provider plugin %s again: %w", l.title, err))
	}
	return l.once(ctx, method, args, reply, options)
}

func (l *Link) once(ctx context.Context, method string, args, reply any, options []grpc.CallOption) error {
	conn, explain, err := l.backend.Conn(ctx)
	if err != nil {
		return toStatus(err)
	}
	err = conn.Invoke(ctx, method, args, reply, options...)
	if err == nil {
		return nil
	}
	return toStatus(explain(err))
}

// NewStream implements grpc.ClientConnInterface. The contract has no streams.
func (l *Link) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unimplemented, "the provider contract has no streams")
}

// configurationOf returns the configuration that a request names.
func configurationOf(request any) string {
	if named, ok := request.(interface{ GetConfiguration() string }); ok {
		return named.GetConfiguration()
	}
	return ""
}

func notConfigured(err error) bool {
	if err == nil {
		return false
	}
	for _, detail := range status.Convert(err).Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.Domain == wire.ErrorDomain && info.Reason == "NOT_CONFIGURED" {
			return true
		}
	}
	return false
}

// toStatus lets an error that was made on this side travel the way of those
// from the other, which package wire reads.
func toStatus(err error) error {
	if _, is := err.(interface{ GRPCStatus() *status.Status }); is {
		return err
	}
	reason := strings.ReplaceAll(strings.ToUpper(provider.Class(err).Error()), " ", "_")
	full, detailed := status.New(codes.Unavailable, err.Error()).WithDetails(&errdetails.ErrorInfo{Reason: reason, Domain: wire.ErrorDomain})
	if detailed != nil { // text that is not UTF-8
		return status.Error(codes.Unavailable, strings.ToValidUTF8(err.Error(), "\uFFFD"))
	}
	return full.Err()
}

// open gives values to the other side and returns the name they have there.
// The same values again have the same name, since a provider that keeps its
// settings in package variables can have but one.
func (l *Link) open(ctx context.Context, values config.Values) (name string, capabilities []provider.Capability, err error) {
	name = l.claim(values)
	capabilities, err = wire.Configure(ctx, direct{l}, name, values, wire.PluginName(l.title))
	if err != nil {
		l.release(name)
	}
	return name, capabilities, err
}

func (l *Link) claim(values config.Values) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, one := range l.opened {
		if maps.Equal(one.values, values) {
			one.users++
			return name
		}
	}
	l.serial++
	name := fmt.Sprintf("%s-%d", l.prefix, l.serial)
	l.opened[name] = &opened{maps.Clone(values), 1}
	return name
}

// release reports whether nobody uses the configuration any more.
func (l *Link) release(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.opened[name]
	if one == nil {
		return true
	}
	if one.users--; one.users > 0 {
		return false
	}
	delete(l.opened, name)
	return true
}

func (l *Link) valuesOf(name string) (config.Values, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.opened[name]
	if one == nil {
		return nil, false
	}
	return one.values, true
}

func (l *Link) restore(ctx context.Context, name string, values config.Values) error {
	ctx, cancel := context.WithTimeout(ctx, ConfigureTimeout)
	defer cancel()
	_, err := wire.Configure(ctx, direct{l}, name, values, wire.PluginName(l.title))
	return err
}

// Restore gives all configurations to a side that has none, ahead of the
// first call. What fails here is tried again by the calls.
func (l *Link) Restore(ctx context.Context, conn grpc.ClientConnInterface) {
	ctx, cancel := context.WithTimeout(ctx, RestoreTimeout)
	defer cancel()
	l.mu.Lock()
	all := map[string]config.Values{}
	for name, one := range l.opened {
		all[name] = one.values
	}
	l.mu.Unlock()
	var each sync.WaitGroup
	for name, values := range all {
		each.Go(func() { _, _ = wire.Configure(ctx, conn, name, values, wire.PluginName(l.title)) })
	}
	each.Wait()
}

// RestoreTimeout is how long calls are held back for [Link.Restore].
const RestoreTimeout = 10 * time.Second

// direct is a link for Configure itself.
type direct struct{ *Link }

func (d direct) Invoke(ctx context.Context, method string, args, reply any, options ...grpc.CallOption) error {
	return d.once(ctx, method, args, reply, options)
}
