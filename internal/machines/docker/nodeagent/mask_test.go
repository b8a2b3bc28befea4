// SPDX-License-Identifier: Apache-2.0

package nodeagent

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/provider/kit/poll"
)

const (
	token  = "abcdef.0123456789abcdef"
	sixty4 = "f8902e114ef118304e561c3ecd4d0b543adc226b7a07f675f56564185ffe0c07"
	base   = "MIIEpAIBAAKCAQEAxN8sPmPOZ6xZk0q7vB9QmQ"
)

// masked returns what comes out when a text comes in.
func masked(secrets *Secrets, ofCommand bool, parts ...string) string {
	var out bytes.Buffer
	m := &mask{Secrets: secrets, out: &out, ofCommand: ofCommand}
	for _, part := range parts {
		m.Write([]byte(part))
	}
	m.flush()
	return out.String()
}

func TestMask(t *testing.T) {
	join := "kubeadm join 10.0.0.1:6443 --token " + token + " \\\n\t--discovery-token-ca-cert-hash sha256:" + sixty4 + " \\\n\t--control-plane --certificate-key " + sixty4 + "\n"
	want := "kubeadm join 10.0.0.1:6443 --token [hidden] \\\n\t--discovery-token-ca-cert-hash sha256:" + sixty4 + " \\\n\t--control-plane --certificate-key [hidden]\n"
	for _, ofCommand := range []bool{true, false} {
		if got := masked(&Secrets{}, ofCommand, join); got != want {
			t.Errorf("of a command %v: %q", ofCommand, got)
		}
		var letters []string
		for _, letter := range join {
			letters = append(letters, string(letter))
		}
		if got := masked(&Secrets{}, ofCommand, letters...); got != want {
			t.Errorf("letter by letter, of a command %v: %q", ofCommand, got)
		}
	}
	for _, row := range []struct{ text, ofCommand, ofService string }{
		{"[upload-certs] Using certificate key:\n" + sixty4 + "\n", "[upload-certs] Using certificate key:\n[hidden]\n", "[upload-certs] Using certificate key:\n[hidden]\n"},
		{"certificateKey: " + sixty4, "certificateKey: [hidden]\n", "certificateKey: [hidden]\n"},
		{`started id="` + sixty4 + `"` + "\n", `started id="[hidden]"` + "\n", `started id="` + sixty4 + `"` + "\n"},
		{"10%\r20%\r" + token + "\r\n", "10%\r20%\r[hidden]\r\n", "10%\r20%\r[hidden]\r\n"},
		{"v1.36.3 k8s.io/api 0123456.0123456789abcdef0\n", "v1.36.3 k8s.io/api 0123456.0123456789abcdef0\n", "v1.36.3 k8s.io/api 0123456.0123456789abcdef0\n"},
		{"no end", "no end\n", "no end\n"},
		{strings.Repeat("x", maxLine) + token + "\nafter\n", "[a line of more than 64 KiB, which is not shown]\nafter\n", "[a line of more than 64 KiB, which is not shown]\nafter\n"},
	} {
		if got := masked(&Secrets{}, true, row.text); got != row.ofCommand {
			t.Errorf("of a command: %q, want %q", got, row.ofCommand)
		}
		if got := masked(&Secrets{}, false, row.text); got != row.ofService {
			t.Errorf("of a service: %q, want %q", got, row.ofService)
		}
	}
}

// TestSecretsOfTheData: what the bootstrap data have is known wherever it comes
// out, and what is in them and is not a secret stays readable.
func TestSecretsOfTheData(t *testing.T) {
	m := newMachine(t)
	m.Secrets = &Secrets{}
	m.seed(t, Seed{}, "#cloud-config\nwrite_files:\n"+
		"- path: /etc/kubernetes/pki/ca.key\n  content: |\n    -----BEGIN RSA PRIVATE KEY-----\n    "+base+"\n    AB==\n    -----END RSA PRIVATE KEY-----\n"+
		"- path: /etc/kubernetes/pki/ca.crt\n  content: |\n    -----BEGIN CERTIFICATE-----\n    public"+base+"\n    -----END CERTIFICATE-----\n"+
		"- path: /run/kubeadm/kubeadm.yaml\n  content: |\n    certificateKey: "+sixty4+"\n    secretName: kubeadm-certs\n    caCertHashes: [\"sha256:"+strings.Repeat("ab", 32)+"\"]\n"+
		"- path: /etc/encryption.yaml\n  content: |\n    keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZSBhbmQgbG9uZw==}]\n"+
		"- path: /etc/kubernetes/admin.conf\n  content: |\n    client-key-data: LS0tLS1CRUdJTiBQUklW\n    server: https://10.0.0.1:6443\n"+
		"- path: /run/join.yaml\n  content: |\n    bootstrapToken:\n      token: of-another-kind\n    tlsBootstrapToken:\n      apiServerEndpoint: 10.0.0.2:6443\n"+
		"runcmd:\n- [login, --password, hunter33, --token, --verbose]\n- login --password=hunter22 --user admin\n- [\"curl -H token="+token+"\", \"x\"]\n")
	m.fail = func(command string) error {
		if strings.HasPrefix(command, "curl") {
			return &exec.Error{Name: command, Err: errors.New("executable file not found")}
		}
		return nil
	}
	state, err := m.Bootstrap(t.Context())
	if err != nil || state.Phase != PhaseFailed || strings.Contains(state.Message, token) || !strings.Contains(state.Message, "runcmd/2") {
		t.Errorf("%+v, %v", state, err)
	}
	for secret, stays := range map[string]bool{
		base: false, "c2VjcmV0IGlzIHNlY3VyZSBhbmQgbG9uZw==": false, "LS0tLS1CRUdJTiBQUklW": false, "hunter22": false, "hunter33": false, "of-another-kind": false, sixty4: false,
		"apiServerEndpoint:": true, "--verbose": true, "AB==": true, "kubeadm-certs": true, "https://10.0.0.1:6443": true, "admin": true, "sha256:" + strings.Repeat("ab", 32): true,
	} {
		for _, ofCommand := range []bool{true, false} {
			if got := masked(m.Secrets, ofCommand, "it is '"+secret+"' there"); strings.Contains(got, secret) != stays {
				t.Errorf("of a command %v, %s is shown as %q", ofCommand, secret, got)
			}
		}
	}
}

// TestOutputOfCommands goes through a pipe, which what they leave in the
// background may keep.
func TestOutputOfCommands(t *testing.T) {
	var out bytes.Buffer
	m := &mask{Secrets: &Secrets{}, out: &out, ofCommand: true}
	file, end, err := m.pipe()
	if err != nil {
		t.Fatal(err)
	}
	a := &Agent{Commands: file, Wait: poll.Pace{}}
	hold, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	hold.Close()
	left := `while [ -e "` + hold.Name() + `" ]; do sleep 0.05; done &`
	if err := a.command(t.Context(), []string{"/bin/sh", "-c", left + " echo --token " + token + "; printf rest >&2"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := (poll.Pace{First: time.Millisecond, Max: 10 * time.Millisecond}).Until(ctx, func() (bool, error) {
		m.mu.Lock()
		defer m.mu.Unlock()
		return string(m.line) == "rest", nil
	}); err != nil {
		t.Fatal(err)
	}
	end()
	if got := out.String(); got != "--token [hidden]\nrest\n" {
		t.Errorf("%q", got)
	}
	if err := os.Remove(hold.Name()); err != nil {
		t.Fatal(err)
	}
}

// deaf is where nobody reads any more.
type deaf struct{}

func (deaf) Write([]byte) (int, error) { return 0, os.ErrClosed }

// TestNobodyReads: a program goes on though what it prints can go nowhere.
func TestNobodyReads(t *testing.T) {
	file, end, err := (&mask{Secrets: &Secrets{}, out: deaf{}}).pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	if err := file.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(strings.Repeat("a line\n", 64<<10)); err != nil { // more than a pipe holds
		t.Error(err)
	}
}
