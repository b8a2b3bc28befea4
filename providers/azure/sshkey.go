// SPDX-License-Identifier: Apache-2.0

package azure

import (
	"crypto/rand"
	"crypto/rsa"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"
)

// publicKey returns the key of the administrator account, which Azure wants.
// Where none is configured it is one whose private half nobody has.
func (p *Provider) publicKey() (string, error) {
	p.keyMu.Lock()
	defer p.keyMu.Unlock()
	if p.key != "" {
		return p.key, nil
	}
	key, err := loadKey(p.cfg.SSHKeyPath)
	if err != nil {
		return "", err
	}
	p.key = key
	return key, nil
}

func loadKey(file string) (string, error) {
	if file == "" {
		return throwAwayKey()
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", wrong("ssh-key-path", "%v", err)
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey(data); err != nil {
		return "", wrong("ssh-key-path", "%s is not a public key: %v", file, err)
	}
	return strings.TrimSpace(string(data)), nil
}

// throwAwayKey is RSA, which Azure takes from everybody. The private half is
// kept by nobody, so that one is enough for a process.
var throwAwayKey = sync.OnceValues(func() (string, error) {
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", fmt.Errorf("make an SSH key: %w", err)
	}
	public, err := ssh.NewPublicKey(&private.PublicKey)
	if err != nil {
		return "", fmt.Errorf("make an SSH key: %w", err)
	}
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))), nil
})
