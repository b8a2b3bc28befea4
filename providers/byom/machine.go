// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"

	"github.com/outrigger/outrigger/provider"
)

// Files of a machine, in the folder that its SFTP server shows: /media of the
// guest.
const (
	userDataFile = "cidata/user-data"
	// rebootFile makes the guest reboot when it appears.
	rebootFile = "cidata/reboot"
	// bootFile holds the guest's /proc/sys/kernel/random/boot_id.
	bootFile = "cidata/boot-id"
)

// dialer opens a connection to a machine's SSH port.
type dialer func(ctx context.Context, address string) (net.Conn, error)

func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// machine is a connection to one.
type machine struct {
	addr netip.Addr
	conn net.Conn
	ssh  *ssh.Client
	sftp *sftp.Client
	// stop ends the watch for the end of the caller's context.
	stop func() bool
}

// connect opens SFTP to a machine. Everything on it ends with ctx.
func (p *Provider) connect(ctx context.Context, addr netip.Addr) (*machine, error) {
	late := fmt.Errorf("%w: connecting took longer than -ssh-timeout (SSH_TIMEOUT) %ds", provider.ErrUnavailable, p.cfg.Timeout)
	dialing, cancel := context.WithTimeoutCause(ctx, time.Duration(p.cfg.Timeout)*time.Second, late)
	defer cancel()
	conn, err := p.dial(dialing, net.JoinHostPort(addr.String(), strconv.FormatInt(p.cfg.Port, 10)))
	if err != nil {
		return nil, unreachable(dialing, addr, err)
	}
	stopDialing := context.AfterFunc(dialing, func() { conn.Close() })
	m := &machine{addr: addr, conn: conn}
	if err := m.open(p); err != nil {
		conn.Close()
		stopDialing()
		return nil, unreachable(dialing, addr, err)
	}
	m.stop = context.AfterFunc(ctx, func() { conn.Close() })
	stopDialing()
	return m, nil
}

func (m *machine) open(p *Provider) error {
	c, channels, requests, err := ssh.NewClientConn(m.conn, m.addr.String(), &ssh.ClientConfig{
		User: p.cfg.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(p.identity.signer)}, HostKeyCallback: p.checkHostKey,
	})
	if err != nil {
		return err
	}
	m.ssh = ssh.NewClient(c, channels, requests)
	m.sftp, err = sftp.NewClient(m.ssh)
	return err
}

func (m *machine) close() {
	m.stop()
	m.sftp.Close()
	m.ssh.Close()
}

var errHostKey = fmt.Errorf("%w: its host key is in no file of -ssh-host-key-allowlist-dir (SSH_HOST_KEY_ALLOWLIST_DIR)", provider.ErrUnauthenticated)

func (p *Provider) checkHostKey(_ string, _ net.Addr, key ssh.PublicKey) error {
	if len(p.identity.hostKeys) == 0 {
		return nil
	}
	if slices.ContainsFunc(p.identity.hostKeys, func(allowed ssh.PublicKey) bool { return bytes.Equal(allowed.Marshal(), key.Marshal()) }) {
		return nil
	}
	return errHostKey
}

// unreachable gives the failure of a connection its class.
func unreachable(ctx context.Context, addr netip.Addr, err error) error {
	class := provider.ErrUnavailable
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, errHostKey):
		class = provider.ErrUnauthenticated
	case strings.Contains(err.Error(), "unable to authenticate"): // package ssh has no type for it
		class = provider.ErrUnauthenticated
		err = fmt.Errorf("it refuses -ssh-priv-key (SSH_PRIV_KEY_PATH) for -ssh-username (SSH_USERNAME): %w", err)
	}
	return fmt.Errorf("%w: machine %s: %w", class, addr, err)
}

// failed returns the error of a call over an open connection.
func (m *machine) failed(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	class := provider.ErrUnavailable
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, os.ErrPermission):
		class = provider.ErrPermissionDenied
	}
	return fmt.Errorf("%w: machine %s: %s: %w", class, m.addr, what, err)
}

// maxFile bounds what is read from a machine.
const maxFile = 1 << 20

// read returns a file, and whether there is one.
func (m *machine) read(ctx context.Context, name string) (text string, there bool, err error) {
	f, err := m.sftp.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return "", false, nil
	}
	if err != nil {
		return "", false, m.failed(ctx, "open "+name, err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	return string(data), true, m.failed(ctx, "read "+name, err)
}

// boot returns the machine's boot id, or nothing where it serves none.
func (m *machine) boot(ctx context.Context) (string, error) {
	text, _, err := m.read(ctx, bootFile)
	return strings.TrimSpace(text), err
}

// errThere means that the file exists already.
var errThere = errors.New("the file is there")

// put makes a file that is not there, with all of its content at once: the
// guest waits for it. OpenSSH's rename refuses to replace a file.
func (m *machine) put(ctx context.Context, name, text string) error {
	part := name + "." + rand.Text()
	f, err := m.sftp.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return m.failed(ctx, "make "+part, err)
	}
	_, err = f.Write([]byte(text))
	if err = errors.Join(err, f.Close()); err != nil {
		return m.failed(ctx, "write "+part, err)
	}
	err = m.sftp.Rename(part, name)
	if err == nil {
		return nil
	}
	_ = m.sftp.Remove(part)
	if _, statErr := m.sftp.Stat(name); statErr == nil {
		return errThere
	}
	return m.failed(ctx, "rename to "+name, err)
}

// clean reports whether a machine has booted since boot, and is nobody's.
func (m *machine) clean(ctx context.Context, boot string) (bool, error) {
	now, err := m.boot(ctx)
	if err != nil || boot != "" && now == boot {
		return false, err
	}
	for _, name := range []string{userDataFile, rebootFile} {
		if _, there, err := m.read(ctx, name); err != nil || there {
			return false, err
		}
	}
	return true, nil
}
