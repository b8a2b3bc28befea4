// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
)

// User is somebody the API server knows.
type User struct {
	// Kubeconfig is a file with mode 0600 that holds all a client needs.
	Kubeconfig string
	// Server is the URL of the API server as this process reaches it.
	Server string

	ca, cert, key []byte
	token         string
	kubectl       string
	// cache, if not empty, is where kubectl keeps what servers told it.
	cache string
}

// Foreign returns the user of a kubeconfig that was not made here. Kubectl, a
// path, may be empty for the one on PATH.
func Foreign(kubeconfig, kubectl string) *User {
	return &User{Kubeconfig: kubeconfig, kubectl: cmp.Or(kubectl, "kubectl")}
}

// NewUser makes a user by a client certificate. What it may do is up to RBAC;
// the group system:masters may do all.
func (c *ControlPlane) NewUser(t testing.TB, name string, groups ...string) *User {
	t.Helper()
	u := c.anonymous()
	u.cert, u.key = c.ca.client(t, name, groups...)
	u.write(t, c.path(strings.NewReplacer(":", "-", "/", "-").Replace(name)+".kubeconfig"))
	return u
}

// ServiceAccount makes a user of a service account that exists, by a token as
// pods have one.
func (c *ControlPlane) ServiceAccount(t testing.TB, namespace, name string) *User {
	t.Helper()
	u := c.anonymous()
	u.token = strings.TrimSpace(c.Kubectl(t, "create", "token", name, "--namespace", namespace, "--duration=24h"))
	u.write(t, c.path("serviceaccount-"+namespace+"-"+name+".kubeconfig"))
	return u
}

// NodeAccount is [ControlPlane.ServiceAccount] with a token that says for which
// node it is, as that of a pod there does.
func (c *ControlPlane) NodeAccount(t testing.TB, namespace, name, node string) *User {
	t.Helper()
	u := c.anonymous()
	u.token = strings.TrimSpace(c.Kubectl(t, "create", "token", name, "--namespace", namespace, "--duration=24h",
		"--bound-object-kind=Node", "--bound-object-name="+node))
	u.write(t, c.path("serviceaccount-"+namespace+"-"+name+"-"+node+".kubeconfig"))
	return u
}

func (c *ControlPlane) anonymous() *User {
	return &User{Server: "https://127.0.0.1:" + c.port.number, ca: c.ca.PEM, kubectl: filepath.Join(c.programs, "kubectl")}
}

// KubeconfigFor returns the kubeconfig of this user for another address of the
// API server.
func (u *User) KubeconfigFor(t testing.TB, server string) string {
	t.Helper()
	type object = map[string]any
	user := object{"client-certificate-data": u.cert, "client-key-data": u.key}
	if u.token != "" {
		user = object{"token": u.token}
	}
	// []byte becomes base64, as the format wants it; YAML includes JSON.
	data, err := json.MarshalIndent(object{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []object{{"name": "test", "cluster": object{"server": server, "certificate-authority-data": u.ca}}},
		"users":    []object{{"name": "test", "user": user}},
		"contexts": []object{{"name": "test", "context": object{"cluster": "test", "user": "test"}}},
	}, "", "  ")
	must(t, err, "make a kubeconfig")
	return string(data)
}

func (u *User) write(t testing.TB, path string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(u.KubeconfigFor(t, u.Server)), 0o600), "write a kubeconfig")
	u.Kubeconfig, u.cache = path, filepath.Dir(path)+"/kubectl"
}

// RESTConfig is what clients in Go start from; each call returns a new one.
func (u *User) RESTConfig() *rest.Config {
	return &rest.Config{
		Host: u.Server, BearerToken: u.token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: u.ca, CertData: u.cert, KeyData: u.key},
	}
}

// Command returns a kubectl that acts as this user and is not yet started.
func (u *User) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(u.kubectl, args...)
	// Half of what a short call costs is the collector's.
	cmd.Env = append(os.Environ(), "KUBECONFIG="+u.Kubeconfig, "GOGC=400")
	if u.cache != "" {
		cmd.Env = append(cmd.Env, "KUBECACHEDIR="+u.cache)
	}
	return cmd
}

// Kubectl returns what kubectl prints; failure ends the test.
func (u *User) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := u.TryKubectl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryKubectl returns what kubectl prints, and as error what it complains about.
func (u *User) TryKubectl(args ...string) (string, error) {
	return output(u.Command(args...))
}

// Apply gives manifests to kubectl apply.
func (u *User) Apply(t testing.TB, manifests string) {
	t.Helper()
	cmd := u.Command("apply", "-f", "-")
	cmd.Stdin = strings.NewReader(manifests)
	if _, err := output(cmd); err != nil {
		t.Fatal(err)
	}
}

func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w: %s%s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, &stderr, &stdout)
	}
	return stdout.String(), nil
}
