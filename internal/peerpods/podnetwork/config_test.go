// SPDX-License-Identifier: Apache-2.0

package podnetwork

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const headJSON = `{
  "podip": "10.244.1.27/24", "pod-hw-addr": "0a:58:0a:f4:01:1b", "interface": "eth0",
  "worker-node-ip": "192.168.122.25/24", "tunnel-type": "vxlan",
  "routes": [
    {"dst": "0.0.0.0/0", "gw": "10.244.1.1", "dev": "eth0", "protocol": "boot"},
    {"dst": "10.244.1.1/32", "gw": "", "dev": "eth0", "protocol": "kernel", "scope": "link"}
  ],
  "neighbors": [{"ip": "10.244.1.1", "hw-addr": "ee:ee:ee:ee:ee:ee", "dev": "eth0", "state": "permanent"}],
  "mtu": 1450, "index": 2, "vxlan-port": 4789, "vxlan-id": 555002, "dedicated": false, "external-net-via-pod-vm": true
}`

const oldJSON = `{
  "podip": "10.244.1.27/24", "pod-hw-addr": "0a:58:0a:f4:01:1b", "interface": "eth0",
  "worker-node-ip": "192.168.122.25/24", "tunnel-type": "vxlan",
  "routes": [{"Dst": "", "GW": "10.244.1.1", "Dev": "eth0"}, {"Dst": "10.244.0.0/16", "GW": "", "Dev": "eth0"}],
  "mtu": 1450, "index": 2, "vxlan-port": 4789, "vxlan-id": 555002, "dedicated": false
}`

func parse(t *testing.T, text string) *Config {
	t.Helper()
	var cfg Config
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		t.Fatal(err)
	}
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	return &cfg
}

func TestConfigOfOtherAdaptors(t *testing.T) {
	head := Config{
		PodIP: netip.MustParsePrefix("10.244.1.27/24"), PodHwAddr: "0a:58:0a:f4:01:1b", Interface: "eth0",
		WorkerNodeIP: netip.MustParsePrefix("192.168.122.25/24"), TunnelType: "vxlan",
		Routes: []Route{
			{Dst: "0.0.0.0/0", GW: "10.244.1.1", Dev: "eth0", Protocol: "boot"},
			{Dst: "10.244.1.1/32", Dev: "eth0", Protocol: "kernel", Scope: "link"},
		},
		Neighbors: []Neighbor{{IP: "10.244.1.1", HwAddr: "ee:ee:ee:ee:ee:ee", Dev: "eth0", State: "permanent"}},
		MTU:       1450, Index: 2, VXLANPort: 4789, VXLANID: 555002, ExternalNetViaPodVM: true,
	}
	old := head
	old.Neighbors, old.ExternalNetViaPodVM = nil, false
	old.Routes = []Route{{GW: "10.244.1.1", Dev: "eth0"}, {Dst: "10.244.0.0/16", Dev: "eth0"}}
	for name, c := range map[string]struct {
		text string
		want Config
	}{"HEAD": {headJSON, head}, "v0.8.2": {oldJSON, old}} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(&c.want, parse(t, c.text), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestMappedAddresses: adaptors write IPv4 as IPv6 where the library they use
// keeps addresses in 16 bytes.
func TestMappedAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"::ffff:0.0.0.0/0":        "0.0.0.0/0",
		"::ffff:10.244.0.0/16":    "10.244.0.0/16",
		"::ffff:10.244.1.1/128":   "10.244.1.1/32",
		"::ffff:10.244.0.0/112":   "10.244.0.0/16",
		"::/0":                    "::/0",
		"10.244.1.77/24":          "10.244.1.0/24",
		"::ffff:10.244.0.0/33":    "",
		"::ffff:10.244.0.0/95":    "",
		"::ffff:10.244.0.0%e0/16": "",
	} {
		dst, err := (&Route{Dst: text}).dst()
		if (err == nil) != (want != "") || err == nil && dst.String() != want {
			t.Errorf("%s: %v, %v; want %q", text, dst, err, want)
		}
	}
	cfg := parse(t, strings.NewReplacer("0.0.0.0/0", "::ffff:0.0.0.0/0", "10.244.1.27/24", "::ffff:10.244.1.27/24", "192.168.122.25/24", "::ffff:192.168.122.25/24").Replace(headJSON))
	if got := cfg.podIPs()[0].String(); got != "10.244.1.27/24" {
		t.Errorf("the pod has %s", got)
	}
}

func TestConfigSurvivesMarshal(t *testing.T) {
	for _, text := range []string{headJSON, oldJSON} {
		cfg := parse(t, text)
		data, err := json.Marshal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(cfg, parse(t, string(data)), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Error(diff)
		}
	}
}

func TestUnknownWordsAreErrors(t *testing.T) {
	for _, c := range []struct{ old, bad, want string }{
		{`"protocol": "boot"`, `"protocol": "bgp"`, `unknown protocol "bgp"`},
		{`"scope": "link"`, `"scope": "galaxy"`, `unknown scope "galaxy"`},
		{`"state": "permanent"`, `"state": "eternal"`, `unknown state "eternal"`},
	} {
		var cfg Config
		err := json.Unmarshal([]byte(strings.Replace(headJSON, c.old, c.bad, 1)), &cfg)
		if err == nil {
			err = cfg.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", c.bad, err, c.want)
		}
	}
}

func TestValidateNamesTheKey(t *testing.T) {
	for want, spoil := range map[string]func(*Config){
		"tunnel-type":          func(c *Config) { c.TunnelType = "routing" },
		"worker-node-ip":       func(c *Config) { c.WorkerNodeIP = netip.Prefix{} },
		"interface":            func(c *Config) { c.Interface = "../eth0" },
		`interface "lo"`:       func(c *Config) { c.Interface = "lo" },
		"mtu 0":                func(c *Config) { c.MTU = 0 },
		"underlay-mtu":         func(c *Config) { c.UnderlayMTU = -1 },
		"vxlan-port":           func(c *Config) { c.VXLANPort = 65536 },
		"vxlan-id":             func(c *Config) { c.VXLANID = 1 << 24 },
		"pod-hw-addr":          func(c *Config) { c.PodHwAddr = "nonsense" },
		"unicast":              func(c *Config) { c.PodHwAddr = "01:00:5e:00:00:01" },
		"podip is missing":     func(c *Config) { c.PodIP = netip.Prefix{} },
		"lacks podip":          func(c *Config) { c.PodIPs = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")} },
		`route to "nowhere"`:   func(c *Config) { c.Routes[0].Dst = "nowhere" },
		"gateway":              func(c *Config) { c.Routes[0].GW = "fe80::1%eth0" },
		"of the other family":  func(c *Config) { c.Routes[0].GW = "fe80::1" },
		`neighbor "host"`:      func(c *Config) { c.Neighbors[0].IP = "host" },
		"neighbor 10.244.1.1:": func(c *Config) { c.Neighbors[0].HwAddr = "xx" },
	} {
		cfg := parse(t, headJSON)
		spoil(cfg)
		if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestTunnelMTU(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	for _, c := range []struct {
		pod, underlay int
		node          netip.Addr
		want          int
	}{
		{1500, 1500, v4, 1450},
		{1500, 1500, v6, 1430},
		{1500, 1400, v4, 1350},
		{1500, 1400, v6, 1330},
		{1500, 9000, v4, 1500},
		{8950, 9000, v4, 8950},
		{9000, 9000, v6, 8930},
		{1450, 1500, v4, 1450},
		{1500, 0, v4, 1500},
		{1500, 1500, netip.MustParseAddr("::ffff:192.0.2.1"), 1450},
	} {
		if got := TunnelMTU(c.pod, c.underlay, c.node); got != c.want {
			t.Errorf("pod %d, underlay %d, %s: got %d, want %d", c.pod, c.underlay, c.node, got, c.want)
		}
	}
}

func TestTunnelMTUOfConfig(t *testing.T) {
	cfg := parse(t, headJSON)
	cfg.MTU, cfg.UnderlayMTU = 1500, 1400
	for local, want := range map[int]int{1500: 1350, 1300: 1250} {
		if got, err := cfg.tunnelMTU(local); err != nil || got != want {
			t.Errorf("own underlay %d: got %d, %v, want %d", local, got, err, want)
		}
	}
	cfg.PodIPs = []netip.Prefix{cfg.PodIP, netip.MustParsePrefix("2001:db8::2/64")}
	if _, err := cfg.tunnelMTU(1300); err == nil || !strings.Contains(err.Error(), "at least 1280") {
		t.Errorf("IPv6 below its smallest MTU: got %v", err)
	}
}

func TestAddSubnets(t *testing.T) {
	routes := []Route{{Dst: "0.0.0.0/0", GW: "10.0.0.1"}, {Dst: "::/0", GW: "fe80::1"}, {Dst: "10.8.0.0/16", GW: "10.0.0.9"}}
	subnets := []netip.Prefix{
		netip.MustParsePrefix("10.244.7.9/16"), netip.MustParsePrefix("fd00:1::/48"), netip.MustParsePrefix("10.8.0.0/16"),
	}
	got := addSubnets(routes, subnets, "eth0")[len(routes):]
	want := []Route{
		{Dst: "10.244.0.0/16", GW: "10.0.0.1", Dev: "eth0", Protocol: "static"},
		{Dst: "fd00:1::/48", GW: "fe80::1", Dev: "eth0", Protocol: "static"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := addSubnets(nil, subnets, "eth0"); got != nil {
		t.Errorf("without a default route: got %v", got)
	}
}

// FuzzConfig: what passes Validate means the same after it was written and
// read again, and no input makes the derived values panic.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(headJSON))
	f.Add([]byte(oldJSON))
	f.Add([]byte(`{"podip":"","routes":[{}],"neighbors":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var cfg Config
		if json.Unmarshal(data, &cfg) != nil || cfg.Validate() != nil {
			return
		}
		_, _ = cfg.tunnelMTU(1500)
		written, err := json.Marshal(cfg)
		if err != nil {
			t.Fatalf("valid configuration cannot be written: %v", err)
		}
		var again Config
		if err := json.Unmarshal(written, &again); err != nil {
			t.Fatalf("%v in %s", err, written)
		}
		if err := again.Validate(); err != nil {
			t.Fatalf("%v in %s", err, written)
		}
	})
}
