// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"

	"github.com/outrigger/outrigger/internal/guest/forwarder"
	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

// roleVar makes this program one party of a chain, with its folder in dirVar.
// Parties that share a process wake each other without the kernel, several
// times faster than on a node, so the benchmark gives each its own.
const (
	roleVar = "OUTRIGGER_RELAY_TEST_ROLE"
	dirVar  = "OUTRIGGER_RELAY_TEST_DIR"
)

// playRole runs until standard input ends, as it does with the parent. Its
// first line of output says that it is ready.
func playRole(role, dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	go func() { io.Copy(io.Discard, os.Stdin); cancel() }()
	switch role {
	case "agent":
		return playAgent(ctx, dir)
	case "forwarder":
		return playForwarder(ctx, dir)
	case "relay":
		return Run(ctx, DaemonOptions{Socket: dir + "/relay.sock", Logger: slog.New(slog.NewTextHandler(os.Stdout, nil))})
	}
	return fmt.Errorf("no role %q", role)
}

func playAgent(ctx context.Context, dir string) error {
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	fake := &fakeAgent{waits: make(chan struct{})}
	agent.RegisterHealthService(server, fake)
	agent.RegisterAgentServiceService(server, fake)
	listener, err := net.Listen("unix", dir+"/agent.sock")
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Println("ready")
	if err := server.Serve(ctx, listener); !errors.Is(err, ttrpc.ErrServerClosed) {
		return err
	}
	return nil
}

func playForwarder(ctx context.Context, dir string) error {
	pem := map[string][]byte{}
	for _, name := range []string{"ca", "cert", "key"} {
		var err error
		if pem[name], err = os.ReadFile(dir + "/" + name); err != nil {
			return err
		}
	}
	config, err := podtls.ServerConfig(podtls.ServerOptions{CertPEM: pem["cert"], KeyPEM: pem["key"], ClientCAPEM: pem["ca"]})
	if err != nil {
		return err
	}
	f, err := forwarder.New(forwarder.Options{
		Config: &apf.Config{}, Listen: "127.0.0.1:0", AgentSocket: dir + "/agent.sock", TLS: config,
		SetupNetwork: func(context.Context, string, string, *podnetwork.Config) error { return nil },
		Ready:        func(a net.Addr) { fmt.Println(a) }, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	return f.Run(ctx)
}

// startRole starts this program as a party and returns its process and its
// first line.
func startRole(t testing.TB, role, dir string) (pid int, first string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+role, dirVar+"="+dir)
	cmd.Stderr = os.Stderr
	hold, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hold.Close(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", role, err)
	}
	return cmd.Process.Pid, strings.TrimSpace(line)
}

func writeBundle(t testing.TB, dir string) *podtls.Bundle {
	t.Helper()
	bundle, err := podtls.NewBundle(serverName, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, pem := range map[string][]byte{"ca": bundle.CAPEM, "cert": bundle.ServerCertPEM, "key": bundle.ServerKeyPEM} {
		if err := os.WriteFile(dir+"/"+name, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return bundle
}

// newProcesses starts agent, forwarder and relay. The agent's own socket and
// the relay's are in the chain's fields.
func newProcesses(t testing.TB) *chain {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rl")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	c := &chain{agentSocket: dir + "/agent.sock", socket: dir + "/agent.ttrpc"}
	c.bundle = writeBundle(t, dir)
	startRole(t, "agent", dir)
	forwarderPID, address := startRole(t, "forwarder", dir)
	relayPID, _ := startRole(t, "relay", dir)
	c.address, c.between = address, []int{relayPID, forwarderPID}
	control, err := Dial(t.Context(), dir+"/relay.sock")
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	if _, err := control.Serve(t.Context(), c.request()); err != nil {
		t.Fatal(err)
	}
	return c
}
