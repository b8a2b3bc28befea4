// SPDX-License-Identifier: Apache-2.0

package localnet

import (
	"net/netip"
	"os"
	"strings"
)

// ResolvConf returns the lines of this machine's resolv.conf that are of use to guests,
// and the name servers in them. Those on loopback and on links, which no guest reaches,
// are left out; if there are no others, unreachable names them.
func ResolvConf() (lines []string, servers []netip.Addr, unreachable []string) {
	// systemd-resolved puts only itself into the first and keeps the real servers in the other.
	return resolvConf("/etc/resolv.conf", "/run/systemd/resolve/resolv.conf")
}

func resolvConf(files ...string) (lines []string, servers []netip.Addr, unreachable []string) {
	for _, file := range files {
		text, _ := os.ReadFile(file)
		usable, reachable, others := parseResolvConf(string(text))
		if len(reachable) > 0 {
			return usable, reachable, nil
		}
		if lines == nil {
			lines = usable
		}
		unreachable = append(unreachable, others...)
	}
	return lines, nil, unreachable
}

func parseResolvConf(text string) (lines []string, servers []netip.Addr, unreachable []string) {
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 || strings.HasPrefix(fields[0], "#") || strings.HasPrefix(fields[0], ";") {
			continue
		}
		if addr, err := netip.ParseAddr(fields[1]); err == nil && fields[0] == "nameserver" {
			if addr.IsLoopback() || addr.IsLinkLocalUnicast() {
				unreachable = append(unreachable, fields[1])
				continue
			}
			servers = append(servers, addr)
		}
		lines = append(lines, strings.Join(fields, " "))
	}
	return lines, servers, unreachable
}
