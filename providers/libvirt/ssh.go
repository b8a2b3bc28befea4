// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/outrigger/outrigger/provider"
)

// dialSSH reaches the daemon's socket through its machine's SSH server, as
// `ssh -L` does: neither netcat nor a shell is needed there. All streams of a
// provider share one SSH connection.
func (t *target) dialSSH(ctx context.Context) (net.Conn, error) {
	client, release, err := t.tunnel.use(ctx, t.openTunnel)
	if err != nil {
		return nil, err
	}
	stream, err := client.DialContext(ctx, "unix", t.socket)
	if err != nil {
		t.tunnel.forget(client)
		release()
		return nil, fmt.Errorf("%s on %s: %w; its sshd must allow AllowStreamLocalForwarding, and libvirtd must run", t.socket, t.host, err)
	}
	return &sshStream{Conn: stream, release: sync.OnceFunc(release)}, nil
}

// openTunnel makes an SSH connection.
func (t *target) openTunnel(ctx context.Context) (*ssh.Client, error) {
	conf, done, err := t.sshConfig()
	if err != nil {
		return nil, err
	}
	defer done()
	address := net.JoinHostPort(t.host, t.port)
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// The handshake knows no context.
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	tunnel, channels, requests, err := ssh.NewClientConn(conn, address, conf)
	if err != nil {
		conn.Close()
		return nil, t.sshError(ctx, err)
	}
	return ssh.NewClient(tunnel, channels, requests), nil
}

// sshStream gives its part of the SSH connection back when it is closed.
type sshStream struct {
	net.Conn
	release func()
}

func (s *sshStream) Close() error {
	defer s.release()
	return s.Conn.Close()
}

// tunnel is an SSH connection that streams share. It ends with the last.
type tunnel struct {
	mu     sync.Mutex
	client *ssh.Client
	users  map[*ssh.Client]int
}

// use returns the connection, or makes one. Two callers at the same time may
// make two; both serve, and one is shared from then on.
func (t *tunnel) use(ctx context.Context, open func(context.Context) (*ssh.Client, error)) (*ssh.Client, func(), error) {
	t.mu.Lock()
	client := t.client
	if client != nil {
		t.users[client]++
	}
	t.mu.Unlock()
	if client == nil {
		var err error
		if client, err = open(ctx); err != nil {
			return nil, nil, err
		}
		t.mu.Lock()
		t.client = client
		t.users[client]++
		t.mu.Unlock()
	}
	return client, func() { t.leave(client) }, nil
}

// forget drops a connection that may have broken.
func (t *tunnel) forget(client *ssh.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.client == client {
		t.client = nil
	}
}

func (t *tunnel) leave(client *ssh.Client) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.users[client]--; t.users[client] > 0 {
		return
	}
	delete(t.users, client)
	if t.client == client {
		t.client = nil
	}
	client.Close()
}

func (t *target) sshError(ctx context.Context, err error) error {
	var unknown *knownhosts.KeyError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.As(err, &unknown):
		return fmt.Errorf("%w: SSH host key of %s: %w; add it with ssh-keyscan to -libvirt-known-hosts (LIBVIRT_KNOWN_HOSTS), or append no_verify=1 to the URI",
			provider.ErrUnauthenticated, t.host, err)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Errorf("%w: SSH user %s: %w; set -libvirt-ssh-key (LIBVIRT_SSH_KEY)", provider.ErrUnauthenticated, t.sshUser(), err)
	}
	return err
}

func (t *target) sshUser() string {
	if t.user != "" {
		return t.user
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// sshConfig returns the configuration of one handshake, after which done is to
// be called.
func (t *target) sshConfig() (conf *ssh.ClientConfig, done func(), err error) {
	verify, err := t.hostKeys()
	if err != nil {
		return nil, nil, err
	}
	signers, done, err := t.signers()
	if err != nil {
		return nil, nil, err
	}
	if len(signers) == 0 {
		done()
		return nil, nil, fmt.Errorf("%w: qemu+ssh has no key: set -libvirt-ssh-key (LIBVIRT_SSH_KEY)", provider.ErrUnauthenticated)
	}
	return &ssh.ClientConfig{User: t.sshUser(), HostKeyCallback: verify, Auth: []ssh.AuthMethod{ssh.PublicKeys(signers...)}}, done, nil
}

func (t *target) hostKeys() (ssh.HostKeyCallback, error) {
	if t.noVerify {
		return ssh.InsecureIgnoreHostKey(), nil
	}
	file := t.knownHosts
	if file == "" {
		file = filepath.Join(sshFolder(), "known_hosts")
	}
	verify, err := knownhosts.New(file)
	if err != nil {
		return nil, fmt.Errorf("%w: -libvirt-known-hosts (LIBVIRT_KNOWN_HOSTS): %w; name a file, or append no_verify=1 to the URI", provider.ErrUnauthenticated, err)
	}
	return verify, nil
}

func sshFolder() string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/root"
	}
	return filepath.Join(home, ".ssh")
}

// signers returns the configured key, or else those of the agent and of the standard
// files.
func (t *target) signers() ([]ssh.Signer, func(), error) {
	if t.keyFile != "" {
		signer, err := readKey(t.keyFile)
		if err != nil {
			return nil, nil, fmt.Errorf("%w: -libvirt-ssh-key (LIBVIRT_SSH_KEY): %w", provider.ErrUnauthenticated, err)
		}
		return []ssh.Signer{signer}, func() {}, nil
	}
	signers, done := agentSigners()
	for _, name := range []string{"id_ed25519", "id_ecdsa", "id_rsa"} {
		signer, err := readKey(filepath.Join(sshFolder(), name))
		switch {
		case err == nil:
			signers = append(signers, signer)
		case !errors.Is(err, fs.ErrNotExist):
			logger().Warn("an SSH key is of no use", "error", err)
		}
	}
	return signers, done, nil
}

func readKey(file string) (ssh.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return signer, nil
}

func agentSigners() ([]ssh.Signer, func()) {
	socket := os.Getenv("SSH_AUTH_SOCK")
	if socket == "" {
		return nil, func() {}
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, func() {}
	}
	signers, err := agent.NewClient(conn).Signers()
	if err != nil {
		conn.Close()
		return nil, func() {}
	}
	return signers, func() { conn.Close() }
}
