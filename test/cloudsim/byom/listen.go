// SPDX-License-Identifier: Apache-2.0

package byom

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/outrigger/outrigger/test/testns"
)

// Listen makes a pool of n machines that other processes reach: they listen on
// one port at the addresses that [Start] gives machines, too. The test must be
// in a network namespace of its own, which gets these addresses. [Pool.Env]
// tells where they are.
func Listen(t testing.TB, n int, k *Keys) *Pool {
	t.Helper()
	takeNetwork(t)
	p := Start(t, n, k)
	for i := range n {
		listener, err := net.Listen("tcp", netip.AddrPortFrom(Addr(i+1), p.port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		p.port = listener.Addr().(*net.TCPAddr).AddrPort().Port()
		go p.acceptAll(listener, p.Machine(i+1))
	}
	return p
}

// takeNetwork makes all addresses of the machines' network this host's.
// Loopback's own would not do: an instance cannot have one.
func takeNetwork(t testing.TB) {
	t.Helper()
	testns.RequireRoot(t)
	if !testns.Inside() {
		t.Fatal("not in a network namespace of the test's own: call testns.Main from TestMain")
	}
	network := netip.PrefixFrom(netip.AddrFrom4([4]byte{documentation[0], documentation[1], documentation[2]}), 24)
	if out, err := exec.Command("ip", "route", "replace", "local", network.String(), "dev", "lo").CombinedOutput(); err != nil {
		t.Fatalf("ip route: %v: %s", err, out)
	}
}

// acceptAll ends with the listener.
func (p *Pool) acceptAll(listener net.Listener, m *Machine) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			if p.connecting() != nil || !m.take(conn) {
				conn.Close()
			}
		}()
	}
}

// Env is the configuration of a provider for the pool, as variables.
func (p *Pool) Env() []string {
	return []string{
		fmt.Sprintf("VM_POOL_IPS=%s-%s", Addr(1), Addr(len(p.machines))), "BYOM_SSH_PORT=" + strconv.Itoa(int(p.port)),
		"SSH_PRIV_KEY_PATH=" + p.keys.File("id"), "SSH_PUB_KEY_PATH=" + p.keys.File("id.pub"), "SSH_HOST_KEY_ALLOWLIST_DIR=" + p.keys.File("allowed"),
		"POOL_NAMESPACE=pods", "KUBECONFIG=" + p.Kubeconfig,
	}
}

// Listens returns where machine n listens.
func (p *Pool) Listens(n int) netip.AddrPort { return netip.AddrPortFrom(Addr(n), p.port) }

// serviceAccount is where a pod finds the API server's certificate and its token.
const serviceAccount = "/run/secrets/kubernetes.io/serviceaccount"

// InCluster makes the test's own namespaces look like a pod of the cluster, and returns
// the variables that a pod has.
func (p *Pool) InCluster(t testing.TB) []string {
	t.Helper()
	if !testns.Inside() {
		t.Fatal("not in namespaces of the test's own: call testns.Main from TestMain")
	}
	ca, err := os.ReadFile(p.server.CAFile)
	if err == nil {
		err = os.MkdirAll(serviceAccount, 0o755)
	}
	for name, data := range map[string][]byte{"ca.crt": ca, "token": []byte("token"), "namespace": []byte("pods")} {
		err = errors.Join(err, os.WriteFile(filepath.Join(serviceAccount, name), data, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(p.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	return []string{"KUBERNETES_SERVICE_HOST=" + at.Hostname(), "KUBERNETES_SERVICE_PORT=" + at.Port()}
}
