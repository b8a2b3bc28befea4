// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"fmt"
	"time"
)

// ContextOpener is a [CloudProvider] that can be stopped while it connects. Hosts call
// it through [Open].
type ContextOpener interface {
	// NewProviderContext is NewProvider. It returns soon after ctx has ended, and
	// leaves nothing open then. A provider that it has returned does not need ctx.
	NewProviderContext(ctx context.Context) (Provider, error)
}

// ContextVerifier is a [Provider] that can be stopped while it verifies its
// configuration. Hosts call it through [VerifyConfig].
type ContextVerifier interface {
	// VerifyConfig is ConfigVerifier. It returns soon after ctx has ended.
	VerifyConfig(ctx context.Context) error
}

// ContextCloser is a [Provider] whose Teardown may wait, for instance for a cloud that
// ends a session. Hosts call it through [Teardown].
type ContextCloser interface {
	// TeardownContext is Teardown. It returns soon after ctx has ended, also when it
	// had ended before, and has released then what it can without waiting.
	TeardownContext(ctx context.Context) error
}

// Open opens the provider of a manager. One that is no [ContextOpener] cannot be
// stopped: Open returns when its NewProvider does. Nothing is opened when ctx has ended
// before.
func Open(ctx context.Context, cloud CloudProvider) (Provider, error) {
	if err := notBegun(ctx, "NewProvider"); err != nil {
		return nil, err
	}
	if opener, ok := cloud.(ContextOpener); ok {
		return opener.NewProviderContext(ctx)
	}
	return cloud.NewProvider()
}

// VerifyConfig verifies the configuration of a provider. One that is no
// [ContextVerifier] cannot be stopped: VerifyConfig returns when its ConfigVerifier does.
func VerifyConfig(ctx context.Context, p Provider) error {
	if err := notBegun(ctx, "ConfigVerifier"); err != nil {
		return err
	}
	if verifier, ok := As[ContextVerifier](p); ok {
		return verifier.VerifyConfig(ctx)
	}
	return p.ConfigVerifier()
}

// TeardownTimeout is how long [Teardown] may take.
const TeardownTimeout = 10 * time.Second

// Teardown releases a provider within [TeardownTimeout], also when ctx has ended before,
// as it has when a daemon stops. One that is no [ContextCloser] cannot be stopped:
// Teardown returns when its Teardown does.
func Teardown(ctx context.Context, p Provider) error {
	closer, ok := As[ContextCloser](p)
	if !ok {
		return p.Teardown()
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, TeardownTimeout)
	defer cancel()
	return closer.TeardownContext(ctx)
}

// notBegun returns why a call is not made.
func notBegun(ctx context.Context, call string) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("%w: %s was not begun: %w", ErrUnavailable, call, context.Cause(ctx))
}
