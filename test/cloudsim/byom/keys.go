// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/crypto/ssh"
)

// Keys are of a test: the provider's and that of the machines. Folder has them
// as files: id, id.pub, host, host.pub and allowed/host.pub.
type Keys struct {
	Folder     string
	User, Host ssh.Signer
}

// NewKeys makes keys and writes them.
func NewKeys(t testing.TB) *Keys {
	t.Helper()
	k := &Keys{Folder: t.TempDir()}
	k.User, k.Host = k.newKey(t, "id"), k.newKey(t, "host")
	k.Write(t, "allowed/host.pub", "# the machines\n"+string(ssh.MarshalAuthorizedKey(k.Host.PublicKey())))
	return k
}

func (k *Keys) newKey(t testing.TB, name string) ssh.Signer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(private)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		t.Fatal(err)
	}
	k.Write(t, name, string(pem.EncodeToMemory(block)))
	k.Write(t, name+".pub", string(ssh.MarshalAuthorizedKey(signer.PublicKey())))
	return signer
}

// File returns the path of a file in the folder.
func (k *Keys) File(name string) string { return filepath.Join(k.Folder, name) }

// Write makes a file in the folder.
func (k *Keys) Write(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(k.File(name)), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(k.File(name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
