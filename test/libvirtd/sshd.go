// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/outrigger/outrigger/test/stand"
)

// SSH is a real sshd beside the daemon: what it runs and forwards sees the
// daemon at libvirt's usual path.
type SSH struct {
	// Address is host:port; the user is root.
	Address string
	// Key is the private key that is let in, WrongKey one that is not.
	Key, WrongKey string
	// KnownHosts is a file that knows the server, WrongHosts one that knows it
	// with another key.
	KnownHosts, WrongHosts string
}

const sshdConf = `ListenAddress 127.0.0.1
Port %s
HostKey %s
AuthorizedKeysFile %s
PidFile none
StrictModes no
UsePAM no
PermitRootLogin prohibit-password
PasswordAuthentication no
`

// StartSSH starts sshd in the daemon's mount namespace.
func (d *Daemon) StartSSH(t testing.TB) *SSH {
	t.Helper()
	const program = "/usr/sbin/sshd"
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%v; run: apt-get install --no-install-recommends openssh-server", err)
	}
	port := freePort(t, "127.0.0.1")
	s := &SSH{Address: net.JoinHostPort("127.0.0.1", port), Key: d.Dir + "/id", WrongKey: d.Dir + "/id.wrong"}
	allowed := sshKey(t, s.Key)
	sshKey(t, s.WrongKey)
	host, other := sshKey(t, d.Dir+"/ssh_host"), sshKey(t, d.Dir+"/ssh_host.other")
	d.write(t, "authorized_keys", string(ssh.MarshalAuthorizedKey(allowed)))
	d.write(t, "sshd_config", fmt.Sprintf(sshdConf, port, d.Dir+"/ssh_host", d.Dir+"/authorized_keys"))
	s.KnownHosts, s.WrongHosts = d.Dir+"/known_hosts", d.Dir+"/known_hosts.wrong"
	d.write(t, "known_hosts", knownHost(s.Address, host))
	d.write(t, "known_hosts.wrong", knownHost(s.Address, other))

	d.runSSH(t, s.Address, d.house.command(program, "-D", "-e", "-f", d.Dir+"/sshd_config"))
	return s
}

func (d *Daemon) runSSH(t testing.TB, address string, args []string) {
	t.Helper()
	log, err := os.Create(d.Dir + "/sshd.log")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	stand.ShowOnFailure(t, log.Name())
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	deadline := time.Now().Add(time.Minute)
	for {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("sshd does not serve: %v", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// sshKey writes a private key and returns its public half.
func sshKey(t testing.TB, path string) ssh.PublicKey {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return signer.PublicKey()
}

func knownHost(address string, key ssh.PublicKey) string {
	host, port, _ := net.SplitHostPort(address)
	return fmt.Sprintf("[%s]:%s %s", host, port, ssh.MarshalAuthorizedKey(key))
}
