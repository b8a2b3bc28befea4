// SPDX-License-Identifier: Apache-2.0

// Package loadbalancer is the default load balancer of a control plane: a TCP
// proxy that is one static program. Its configuration is HAProxy's, of which it
// understands what [Config.HAProxy] writes, so that an image with HAProxy takes
// its place without anybody noticing.
package loadbalancer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// ConfigPath is where images of HAProxy look for the configuration.
const ConfigPath = "/usr/local/etc/haproxy/haproxy.cfg"

// Config is what is balanced over what.
type Config struct {
	// Port is listened on, on all addresses: those of IPv4 and, with IPv6, of both families.
	Port     int
	IPv6     bool
	Backends []Backend
}

// Backend is a server of the API.
type Backend struct {
	// Name is that of the machine. Host is its address, which it keeps: the
	// engine's DNS would not answer while the engine is unreachable.
	Name, Host string
	Port       int
}

// Address is what is dialled.
func (b Backend) Address() string { return net.JoinHostPort(b.Host, strconv.Itoa(b.Port)) }

// preamble works without privileges and without backends, and within the limits
// of open files that engines give. Watches of the API are silent for long: hence
// the hour.
const preamble = `global
  log stdout format raw local0 notice
  maxconn 4000
defaults
  mode tcp
  log global
  option dontlognull
  option redispatch
  retries 3
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  default-server inter 1s fall 2 rise 1
`

// All addresses of a family, as HAProxy writes them before a port.
const (
	anyIPv4 = "*:"
	anyIPv6 = ":::"
)

// HAProxy is the configuration as a file of HAProxy 2.2 and later.
func (c Config) HAProxy() string {
	var s strings.Builder
	s.WriteString(preamble)
	bind := fmt.Sprint(anyIPv4, c.Port)
	if c.IPv6 {
		bind = fmt.Sprint(anyIPv6, c.Port, " v4v6")
	}
	fmt.Fprintf(&s, "frontend control-plane\n  bind %s\n  default_backend control-plane\nbackend control-plane\n  balance roundrobin\n", bind)
	for _, b := range c.Backends {
		fmt.Fprintf(&s, "  server %s %s check\n", b.Name, b.Address())
	}
	return s.String()
}

var word = regexp.MustCompile(`^[A-Za-z0-9_.:-]+$`)

// Parse reads what HAProxy wrote. Lines that say nothing about addresses are
// HAProxy's alone.
func Parse(r io.Reader) (Config, error) {
	var c Config
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		var err error
		switch words := strings.Fields(lines.Text()); {
		case len(words) == 0:
		case words[0] == "bind":
			err = c.bind(words[1:])
		case words[0] == "server":
			err = c.server(words[1:])
		}
		if err != nil {
			return Config{}, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return Config{}, err
	}
	if c.Port == 0 {
		return Config{}, errors.New(`no line is "bind *:PORT" or "bind :::PORT v4v6"`)
	}
	return c, nil
}

func (c *Config) bind(words []string) error {
	if len(words) == 0 || c.Port != 0 {
		return fmt.Errorf("one bind with one address is expected")
	}
	text, ok := strings.CutPrefix(words[0], anyIPv4)
	if !ok {
		text, c.IPv6 = strings.CutPrefix(words[0], anyIPv6)
		c.IPv6 = c.IPv6 && len(words) == 2 && words[1] == "v4v6"
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if !ok && !c.IPv6 || err != nil || port == 0 {
		return fmt.Errorf("bind %s: neither *:PORT nor :::PORT v4v6", strings.Join(words, " "))
	}
	c.Port = int(port)
	return nil
}

func (c *Config) server(words []string) error {
	if len(words) < 2 || !word.MatchString(words[0]) {
		return fmt.Errorf("server: a name and HOST:PORT are expected")
	}
	host, text, err := net.SplitHostPort(words[1])
	if err != nil {
		return fmt.Errorf("server %s: %w", words[0], err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 || !word.MatchString(host) {
		return fmt.Errorf("server %s: %q is not HOST:PORT", words[0], words[1])
	}
	c.Backends = append(c.Backends, Backend{Name: words[0], Host: host, Port: int(port)})
	return nil
}
