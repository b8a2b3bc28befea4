// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	good := Config{Bridge: "orvm0", StateDir: "/state", Subnets: prefixes("192.168.127.0/24", "fd6f:7574:7269::/64")}
	if _, err := Open(good); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"long bridge name": {func(c *Config) { c.Bridge = "a234567890123456" }, "a234567890123456"},
		"bridge with dot":  {func(c *Config) { c.Bridge = "a.b" }, "a.b"},
		"relative folder":  {func(c *Config) { c.StateDir = "state" }, "absolute"},
		"no subnet":        {func(c *Config) { c.Subnets = nil }, "at least one"},
		"host bits":        {func(c *Config) { c.Subnets = prefixes("10.0.0.1/24") }, "10.0.0.0/24"},
		"too small":        {func(c *Config) { c.Subnets = prefixes("10.0.0.0/30") }, "too small"},
		"two of a family":  {func(c *Config) { c.Subnets = prefixes("10.0.0.0/24", "10.0.1.0/24") }, "10.0.1.0/24"},
		"zero prefix":      {func(c *Config) { c.Subnets = []netip.Prefix{{}} }, "not an IPv4"},
		"small MTU":        {func(c *Config) { c.MTU = 1000 }, "1000"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := good
			test.change(&cfg)
			if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestGatewaysAreTheFirstAddresses(t *testing.T) {
	network, err := Open(Config{Bridge: "b", StateDir: "/s", Subnets: prefixes("10.1.2.0/24", "fd00:1::/64")})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(network.Gateways()); got != "[10.1.2.1 fd00:1::1]" {
		t.Errorf("gateways %s", got)
	}
}

func TestLeasesAreUniqueUntilTheNetworkIsFull(t *testing.T) {
	network, err := Open(Config{Bridge: "b", StateDir: "/s", Subnets: prefixes("10.1.2.0/28", "fd00:1::/64")})
	if err != nil {
		t.Fatal(err)
	}
	st := &state{Subnets: network.cfg.Subnets, Leases: map[string]*lease{}}
	seen := map[string]bool{}
	for i := range 13 { // 16 less network, gateway and broadcast
		l, err := network.grant(st, fmt.Sprint("id", i), kindTap)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{l.Addrs[0].String(), l.Addrs[1].String(), l.MAC, l.Interface} {
			if seen[part] {
				t.Errorf("%s given twice", part)
			}
			seen[part] = true
		}
		if len(l.Interface) > 15 {
			t.Errorf("interface name %s is longer than 15", l.Interface)
		}
	}
	for _, never := range []string{"10.1.2.0/28", "10.1.2.1/28", "10.1.2.15/28"} {
		if seen[never] {
			t.Errorf("%s was given away", never)
		}
	}
	if _, err := network.grant(st, "one more", kindTap); !errors.Is(err, ErrFull) {
		t.Errorf("14th port: %v, want ErrFull", err)
	}
	delete(st.Leases, "id7")
	l, err := network.grant(st, "again", kindTap)
	if err != nil || !seen[l.Addrs[0].String()] {
		t.Errorf("after one is freed: %v, %v", l, err)
	}
}

func TestFreedAddressIsNotGivenAgainAtOnce(t *testing.T) {
	network, err := Open(Config{Bridge: "b", StateDir: "/s", Subnets: prefixes("10.1.2.0/24")})
	if err != nil {
		t.Fatal(err)
	}
	st := &state{Subnets: network.cfg.Subnets, Leases: map[string]*lease{}}
	first, _ := network.grant(st, "a", kindTap)
	delete(st.Leases, "a")
	second, _ := network.grant(st, "b", kindTap)
	if first.Addrs[0] == second.Addrs[0] {
		t.Errorf("%s given twice in a row", first.Addrs[0])
	}
}

func TestSameIDSameMAC(t *testing.T) {
	one, other := &state{}, &state{}
	if one.freeMAC("id") != other.freeMAC("id") {
		t.Error("MAC depends on more than the id")
	}
	one.Leases = map[string]*lease{"x": {MAC: one.freeMAC("id")}}
	if one.freeMAC("id") == other.freeMAC("id") {
		t.Error("a MAC in use was given again")
	}
}

func TestResolvConf(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "resolv.conf")
		os.WriteFile(path, []byte(text), 0o600)
		return path
	}
	stub := write("# stub\nnameserver 127.0.0.53\nnameserver fe80::1%eth0\noptions edns0\nsearch example.org\n")
	real := write("nameserver 192.0.2.1\nnameserver fe80::1%eth0\nnameserver 2001:db8::1\nsearch example.org\n")
	usable := []string{"nameserver 192.0.2.1", "nameserver 2001:db8::1", "search example.org"}
	for _, test := range []struct {
		files                []string
		want                 []string
		servers, unreachable string
	}{
		{[]string{real}, usable, "[192.0.2.1 2001:db8::1]", "[]"},
		{[]string{stub, real}, usable, "[192.0.2.1 2001:db8::1]", "[]"},
		{[]string{stub}, []string{"options edns0", "search example.org"}, "[]", "[127.0.0.53 fe80::1%eth0]"},
		{[]string{"/nonexistent"}, nil, "[]", "[]"},
	} {
		lines, servers, unreachable := resolvConf(test.files...)
		if diff := cmp.Diff(test.want, lines); diff != "" || fmt.Sprint(servers) != test.servers || fmt.Sprint(unreachable) != test.unreachable {
			t.Errorf("%v: %s, servers %v, unreachable %v", test.files, diff, servers, unreachable)
		}
	}
}
