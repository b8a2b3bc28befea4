// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/provider/fake"
)

// echoing is a cloud that quotes the request which it refuses, as Nova does.
type echoing struct {
	*fake.Cloud
	form func(string) string
}

func (e echoing) CreateInstance(_ context.Context, _, _ string, config cloudinit.CloudConfigGenerator, _ provider.InstanceTypeSpec) (*provider.Instance, error) {
	text, err := config.Generate()
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: invalid input for field user_data: %s", provider.ErrInvalidArgument, e.form(text))
}

// privateKey finds the beginning of a key in JSON.
var privateKey = regexp.MustCompile(`PRIVATE KEY-----\\+n([A-Za-z0-9+/]{40})`)

func realKeys(serverName string, now time.Time) (*adaptor.Identity, error) {
	bundle, err := podtls.NewBundle(serverName, now)
	if err != nil {
		return nil, err
	}
	return &adaptor.Identity{
		NodeIdentity: adaptor.NodeIdentity{CA: string(bundle.CAPEM), ClientCert: string(bundle.ClientCertPEM), ClientKey: string(bundle.ClientKeyPEM)},
		ServerCert:   string(bundle.ServerCertPEM), ServerKey: string(bundle.ServerKeyPEM),
	}, nil
}

// TestSecretsThatACloudGivesBack looks at the error that StartVM returns, which
// becomes an Event, and at the log.
func TestSecretsThatACloudGivesBack(t *testing.T) {
	auth := filepath.Join(t.TempDir(), "auth.json")
	const password = "c29tZWJvZHk6aHVudGVyMjI="
	if err := os.WriteFile(auth, []byte(`{"auths":{"registry.example":{"auth":"`+password+`"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, form := range map[string]func(string) string{
		"as it is":           func(s string) string { return s },
		"base64":             func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) },
		"cut":                func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s))[:1500] },
		"quoted":             func(s string) string { return fmt.Sprintf("%q", s) },
		"from the middle on": func(s string) string { return s[strings.Index(s, "PRIVATE KEY")+100:] },
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			var sent string
			s := newStand(t, func(s *stand) {
				s.opts.AuthFile, s.opts.TLS.Issue = auth, realKeys
				s.opts.Provider = echoing{s.cloud, func(text string) string { sent = text; return form(text) }}
				s.opts.Log = slog.New(slog.NewTextHandler(&log, nil))
			})
			s.create("a1")
			err := s.start("a1")
			if err == nil || !strings.Contains(err.Error(), "invalid input for field user_data") {
				t.Fatalf("error %v", err)
			}
			s.close()
			key := privateKey.FindStringSubmatch(sent)
			if key == nil {
				t.Fatalf("no private key was sent:\n%s", sent)
			}
			for _, text := range []string{err.Error(), log.String()} {
				for _, secret := range []string{key[1], base64.StdEncoding.EncodeToString([]byte(sent))[1100:1160]} {
					if strings.Contains(text, secret) {
						t.Errorf("%s came out:\n%s", secret, text)
					}
				}
				if strings.Contains(text, password) || len(text) > 16<<10 {
					t.Errorf("%d bytes, among them perhaps the registry's password:\n%.3000s", len(text), text)
				}
			}
		})
	}
}

// forgetful says that it does not know an instance of an account it has lost, as
// the real Keystone answers a deleted credential with 404.
type forgetful struct {
	*fake.Cloud
	lost  *atomic.Bool
	tries *atomic.Int64
}

func (f forgetful) DeleteInstance(ctx context.Context, id string) error {
	if f.lost.Load() {
		f.tries.Add(1)
		return fmt.Errorf("%w: no such application credential", provider.ErrNotFound)
	}
	return f.Cloud.DeleteInstance(ctx, id)
}

// TestNotFoundIsNotDeleted: what is not there is nil, by the contract.
func TestNotFoundIsNotDeleted(t *testing.T) {
	var lost atomic.Bool
	var tries atomic.Int64
	s := newStand(t, func(s *stand) { s.opts.Provider = forgetful{s.cloud, &lost, &tries} })
	s.run("a1")
	lost.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		s.StopVM(ctx, &hypervisorpb.StopVMRequest{Id: "a1"})
		close(stopped)
	}()
	s.eventually("the deletion is tried", func() bool { return tries.Load() > 0 })
	cancel()
	<-stopped
	if len(s.instances()) != 1 || len(s.sandboxes()) != 1 {
		t.Fatalf("%d instances, %d sandboxes: the instance was leaked", len(s.instances()), len(s.sandboxes()))
	}
	lost.Store(false)
	s.stop("a1")
	s.wantNothing()
}

// TestWhatAGuestSaysAtItsStart is quoted in errors, logs and Events.
func TestWhatAGuestSaysAtItsStart(t *testing.T) {
	s := newStand(t, nil)
	s.relay.ServeErr = func(context.Context, *relaypb.ServeRequest) error {
		return status.Error(codes.Unauthenticated, "agent health: \x1b[2J\n"+strings.Repeat("not well ", 200_000))
	}
	s.create("a1")
	err := s.start("a1")
	wantCode(t, err, codes.Unauthenticated)
	if err == nil || len(err.Error()) > 6<<10 || strings.Contains(err.Error(), "\x1b") || !strings.Contains(err.Error(), "agent health") {
		t.Errorf("%d bytes: %.200q", len(err.Error()), err)
	}
}
