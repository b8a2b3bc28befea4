// SPDX-License-Identifier: Apache-2.0

//go:build integration

package aws

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	sim "github.com/outrigger/outrigger/test/cloudsim/aws"
	programs "github.com/outrigger/outrigger/test/stand"
	"github.com/outrigger/outrigger/test/testns"
	"github.com/outrigger/outrigger/test/tier"
)

// settings are a configuration as variables.
func (s *stand) settings() []string {
	return []string{
		"AWS_ACCESS_KEY_ID=" + sim.KeyID, "AWS_SECRET_ACCESS_KEY=" + sim.Secret, "AWS_REGION=" + sim.Region, "AWS_EC2_METADATA_DISABLED=true",
		"AWS_ENDPOINT_URL_EC2=" + s.cfg.Endpoint, "AWS_ENDPOINT_URL_STS=" + s.cfg.STSEndpoint, "AWS_CA_BUNDLE=" + s.cfg.CABundle,
		"PODVM_AMI_ID=" + sim.AMI, "AWS_SUBNET_ID=" + sim.SubnetA, "AWS_SG_IDS=" + sim.Group, "PODVM_INSTANCE_TYPES=m6a.*,c6a.*",
	}
}

// TestAsProcessPlugin runs provider-check, as a user does, on the program.
func TestAsProcessPlugin(t *testing.T) {
	plugin := programs.BinaryAs(t, "provider-aws", Name)
	s := newStand(t, lively)
	cmd := exec.CommandContext(t.Context(), programs.Binary(t, "provider-check"), "--plugin", plugin, "--run", tier.Checks(), "--parallel", "4")
	cmd.Env = append(os.Environ(), s.settings()...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	t.Log(lines[len(lines)-1])
	s.wantNothing(t)
}

// TestDiscoversAtTheTrueAddress serves the metadata service where it is in the
// cloud, in a network of the test's own.
func TestDiscoversAtTheTrueAddress(t *testing.T) {
	testns.RequireRoot(t)
	if !testns.Inside() {
		t.Fatal("not in a network namespace of its own")
	}
	const address = "169.254.169.254"
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrAdd(lo, addr); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netlink.AddrDel(lo, addr) })
	listener, err := net.Listen("tcp", netip.AddrPortFrom(netip.MustParseAddr(address), 80).String())
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: sim.StandardMetadata()}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })

	s := newStand(t, lively)
	cfg := s.cfg
	cfg.Region, cfg.KeyName, cfg.Subnets, cfg.SecurityGroups, cfg.MetadataDisabled = "", "", nil, nil, false
	p, err := newProvider(cfg, quick)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Teardown() })
	if got := s.inspect(t, create(t, p, "k").ID); got.Subnet != sim.SubnetA || got.Key != sim.Key {
		t.Errorf("made %+v", got)
	}
}
