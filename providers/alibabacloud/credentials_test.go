// SPDX-License-Identifier: Apache-2.0

package alibabacloud

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestKeysOfARole: keys that will soon expire are kept when they cannot be renewed; keys
// that the cloud has refused are not.
func TestKeysOfARole(t *testing.T) {
	refused := errors.New("no new keys")
	var next keys
	var fails error
	s := &signer{renew: func(context.Context) (keys, error) { return next, fails }}
	ensure := func(what, want string, wantErr error) {
		t.Helper()
		if err := s.ensure(t.Context()); !errors.Is(err, wantErr) {
			t.Errorf("%s: %v; want %v", what, err, wantErr)
		}
		if got := s.current().id; got != want {
			t.Errorf("%s: keys %q; want %q", what, got, want)
		}
	}
	fails = refused
	ensure("none yet", "", refused)
	next, fails = keys{id: "soon", expire: time.Now().Add(renewBefore / 2)}, nil
	ensure("the first", "soon", nil)
	next, fails = keys{}, refused
	ensure("not renewed", "soon", nil)
	next, fails = keys{id: "later", expire: time.Now().Add(time.Hour)}, nil
	ensure("renewed", "later", nil)
	next = keys{id: "unneeded", expire: time.Now().Add(time.Hour)}
	ensure("still good", "later", nil)

	fails = refused
	if !s.forget() {
		t.Error("there may be others")
	}
	ensure("refused by the cloud", "later", refused)
	next, fails = keys{id: "new", expire: time.Now().Add(time.Hour)}, nil
	ensure("renewed again", "new", nil)

	static := &signer{keys: keys{id: "static"}}
	if static.forget() || static.ensure(t.Context()) != nil || static.current().id != "static" {
		t.Error("keys that stay are forgotten")
	}
}
