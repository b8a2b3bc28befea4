// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// defaultSocket is where a system daemon listens (libvirt's remote.html).
const defaultSocket = "/var/run/libvirt/libvirt-sock"

// Transports of a connection URI.
const (
	overUnix = "unix"
	overSSH  = "ssh"
	overTLS  = "tls"
	overTCP  = "tcp"
)

// target is a parsed connection URI.
type target struct {
	driver    string // the URI that the daemon opens, which has no transport
	transport string
	host      string
	port      string
	user      string
	socket    string // of the daemon, on its machine
	noVerify  bool   // skips the check of the host key or the server's certificate
	// keyFile, knownHosts and pkiDir replace the default places.
	keyFile, knownHosts, pkiDir string
	text                        string  // the URI for messages
	tunnel                      *tunnel // the SSH connection
}

// local reports whether the daemon is on this machine.
func (t *target) local() bool { return t.transport == overUnix }

// testDriver reports whether the daemon only pretends (test:///default).
func (t *target) testDriver() bool { return strings.HasPrefix(t.driver, "test:") }

func badURI(format string, args ...any) error { return bad("uri", format, args...) }

var defaultPorts = map[string]string{overSSH: "22", overTLS: "16514", overTCP: "16509"}

// parseURI reads a URI as libvirt's remote.html describes it. What it does not
// know is an error: a mistyped parameter must not pass for a default.
func parseURI(c Config) (*target, error) {
	u, err := url.Parse(c.URI)
	if err != nil || u.Scheme == "" {
		return nil, badURI("%q is not a URI such as qemu:///system or qemu+ssh://root@host/system", c.URI)
	}
	driver, transport, given := strings.Cut(u.Scheme, "+")
	switch {
	case !given && u.Host == "":
		transport = overUnix
	case !given:
		transport = overTLS
	}
	t := &target{
		driver: driver + "://" + u.Path, transport: transport, host: u.Hostname(), port: u.Port(), user: u.User.Username(),
		socket: defaultSocket, keyFile: c.SSHKey, knownHosts: c.KnownHosts, pkiDir: c.PKIDir, text: u.Redacted(),
		tunnel: &tunnel{users: map[*ssh.Client]int{}},
	}
	if t.port == "" {
		t.port = defaultPorts[transport]
	}
	if err := t.check(u); err != nil {
		return nil, err
	}
	return t, t.parameters(u.Query())
}

func (t *target) check(u *url.URL) error {
	driver, _, _ := strings.Cut(t.driver, ":")
	_, password := u.User.Password()
	switch {
	case driver != "qemu" && driver != "test":
		return badURI("%q: the driver is %q; want qemu", t.text, driver)
	case !slices.Contains([]string{overUnix, overSSH, overTLS, overTCP}, t.transport):
		return badURI("%q: the transport is %q; want unix, ssh, tls or tcp", t.text, t.transport)
	case t.transport == overUnix && t.host != "":
		return badURI("%q: a unix socket has no host; for another machine use %s+ssh://%s%s", t.text, driver, t.host, u.Path)
	case t.transport != overUnix && t.host == "":
		return badURI("%q: it names no host", t.text)
	case password:
		return badURI("it has a password, which would be readable by everybody; use a key (-libvirt-ssh-key)")
	case driver == "qemu" && u.Path != "/system":
		return badURI("%q: the path is %q; want /system: users' own daemons have no networks", t.text, u.Path)
	}
	return nil
}

func (t *target) parameters(query url.Values) error {
	for name, values := range query {
		value := values[len(values)-1]
		switch name {
		case "socket":
			t.socket = value
		case "no_verify":
			if value != "0" && value != "1" {
				return badURI("no_verify=%q is neither 0 nor 1", value)
			}
			t.noVerify = value == "1"
		case "keyfile":
			t.keyFile = value
		case "known_hosts":
			t.knownHosts = value
		case "pkipath":
			t.pkiDir = value
		case "name":
			t.driver = value
		case "mode", "no_tty", "keepalive_interval", "keepalive_count":
			// Of libvirt's own client; there is nothing to do about them.
		default:
			return badURI("unknown parameter %q; there are %s", name, "socket, no_verify, keyfile, known_hosts, pkipath, name")
		}
	}
	return nil
}

// String names the daemon in messages.
func (t *target) String() string { return fmt.Sprintf("libvirt at %s", t.text) }
