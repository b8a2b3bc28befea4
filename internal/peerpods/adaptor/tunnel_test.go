// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/frametunnel"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	relaypb "github.com/outrigger/outrigger/internal/protocol/relay"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// TestEncryptedTunnelIsOffered to the relay while it is asked to serve, also by an adaptor
// that finds a relay which has lost the sandbox, and whatever its own setting is by then.
func TestEncryptedTunnelIsOffered(t *testing.T) {
	s := newStand(t, func(s *stand) { s.opts.TunnelType = podnetwork.TunnelTLS })
	offered := make(chan error, 2)
	take := func(ctx context.Context, req *relaypb.ServeRequest) error {
		file, err := frametunnel.Take(ctx, req.GetFramesPath())
		if err == nil {
			file.Close()
		}
		offered <- err
		return err
	}
	s.relay.ServeErr = take
	s.run("t1")
	if err := <-offered; err != nil {
		t.Error(err)
	}
	data, err := s.cloud.UserData("fake-000001")
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err := apf.Parse([]byte(userDataFiles(t, data)[apf.DefaultPath])); err != nil || cfg.PodNetwork.TunnelType != podnetwork.TunnelTLS {
		t.Errorf("the VM is told %+v, %v", cfg, err)
	}
	socket := filepath.Join(s.opts.PodsDir, "t1", "frames.sock")
	if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there: %v", socket, err)
	}

	s.close()
	if err := s.relay.Stop(t.Context(), "t1"); err != nil { // as if the relay had died
		t.Fatal(err)
	}
	s.opts.TunnelType = podnetwork.TunnelVXLAN
	s.open()
	if err := <-offered; err != nil {
		t.Error(err)
	}
	s.eventually("served", func() bool { return s.relay.Served() == 1 })
	s.stop("t1")
	s.wantNothing()
}

// TestTunnelOfPodsThatAttest is encrypted without being asked for; that of others is the kernel's.
func TestTunnelOfPodsThatAttest(t *testing.T) {
	for want, data := range map[string]map[string]string{
		podnetwork.TunnelTLS:   {"cdh.toml": "[kbc]\nname = \"cc_kbc\"\nurl = \"https://broker\"\n"},
		podnetwork.TunnelVXLAN: {"policy.rego": "package agent_policy"},
	} {
		initdata, err := cloudinit.NewInitData("sha256", "0.1.0", data)
		if err != nil {
			t.Fatal(err)
		}
		s := newStand(t, func(s *stand) {
			s.opts.TunnelType = adaptor.TunnelAuto
			if s.opts.Initdata, err = initdata.Encode(); err != nil {
				t.Fatal(err)
			}
		})
		s.relay.ServeErr = func(ctx context.Context, req *relaypb.ServeRequest) error {
			if (req.GetFramesPath() != "") != (want == podnetwork.TunnelTLS) {
				t.Errorf("%s: frames at %q", want, req.GetFramesPath())
			}
			return nil
		}
		s.run("t1")
		user, err := s.cloud.UserData("fake-000001")
		if err != nil {
			t.Fatal(err)
		}
		if cfg, err := apf.Parse([]byte(userDataFiles(t, user)[apf.DefaultPath])); err != nil || cfg.PodNetwork.TunnelType != want {
			t.Errorf("%s: the VM is told %+v, %v", want, cfg, err)
		}
	}
}

// TestNoEncryptedTunnelNoPod: StartVM ends with the relay's sentence, and nothing is left.
func TestNoEncryptedTunnelNoPod(t *testing.T) {
	s := newStand(t, func(s *stand) { s.opts.TunnelType = podnetwork.TunnelTLS })
	s.relay.ServeErr = func(context.Context, *relaypb.ServeRequest) error {
		return status.Error(codes.FailedPrecondition, "the pod VM knows no encrypted tunnel")
	}
	s.create("t2")
	if err := s.start("t2"); err == nil || !strings.Contains(err.Error(), "knows no encrypted tunnel") {
		t.Errorf("error %v", err)
	}
	s.eventually("removed", func() bool { return len(s.sandboxes()) == 0 })
	s.wantNothing()
}

func TestEncryptedTunnelNeedsTLS(t *testing.T) {
	for _, verified := range []bool{false, true} {
		opts := newStand(t, nil).opts
		opts.TunnelType = podnetwork.TunnelTLS
		opts.TLS.Disabled, opts.TLS.SkipVerify = !verified, verified
		if err := opts.Check(); err == nil || !strings.Contains(err.Error(), "TUNNEL_TYPE") {
			t.Errorf("disabled=%v: %v", !verified, err)
		}
	}
}
