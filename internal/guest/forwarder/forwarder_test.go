// SPDX-License-Identifier: Apache-2.0

package forwarder

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/podnetwork"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/protocol/agent"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const podNS = "/run/netns/podns"

func newForwarder(t *testing.T, change func(*Options)) *Forwarder {
	t.Helper()
	o := Options{
		Config: &apf.Config{}, Listen: "127.0.0.1:0", AgentSocket: "/nowhere", PodNamespace: podNS,
		SetupNetwork: func(context.Context, string, string, *podnetwork.Config) error { return nil },
		Logger:       slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	f, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// pass sends a message through intercept and reads what comes out into out.
func pass(t *testing.T, f *Forwarder, method string, in, out proto.Message) {
	t.Helper()
	payload, err := proto.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	changed, err := f.intercept(t.Context(), agentService, method, payload)
	if err != nil {
		t.Fatal(err)
	}
	if err := proto.Unmarshal(changed, out); err != nil {
		t.Fatal(err)
	}
}

func TestContainerJoinsThePodsNetwork(t *testing.T) {
	for name, tc := range map[string]struct {
		before []*agent.LinuxNamespace
		want   string
	}{
		"none":     {[]*agent.LinuxNamespace{{Type: "ipc"}}, podNS},
		"unnamed":  {[]*agent.LinuxNamespace{{Type: "network"}}, podNS},
		"its own":  {[]*agent.LinuxNamespace{{Type: "network", Path: "/other"}}, "/other"},
		"no linux": {nil, podNS},
	} {
		t.Run(name, func(t *testing.T) {
			in := &agent.CreateContainerRequest{ContainerId: "c", OCI: &agent.Spec{Linux: &agent.Linux{Namespaces: tc.before}}}
			if tc.before == nil {
				in.OCI.Linux = nil
			}
			out := new(agent.CreateContainerRequest)
			pass(t, newForwarder(t, nil), "CreateContainer", in, out)
			var paths []string
			for _, ns := range out.OCI.Linux.Namespaces {
				if ns.Type == "network" {
					paths = append(paths, ns.Path)
				}
			}
			if len(paths) != 1 || paths[0] != tc.want {
				t.Errorf("network namespaces %q, want %q", paths, tc.want)
			}
		})
	}
}

func TestFieldsOfNewerAgentsAreKept(t *testing.T) {
	unknown := protowire.AppendString(protowire.AppendTag(nil, 999, protowire.BytesType), "kept")
	in := &agent.CreateContainerRequest{OCI: &agent.Spec{Linux: &agent.Linux{}}}
	for _, m := range []proto.Message{in, in.OCI, in.OCI.Linux} {
		m.ProtoReflect().SetUnknown(unknown)
	}
	out := new(agent.CreateContainerRequest)
	pass(t, newForwarder(t, nil), "CreateContainer", in, out)
	for _, m := range []proto.Message{out, out.OCI, out.OCI.Linux} {
		if !bytes.Equal(m.ProtoReflect().GetUnknown(), unknown) {
			t.Errorf("%s lost a field", m.ProtoReflect().Descriptor().Name())
		}
	}
}

func TestDNSOfTheSandbox(t *testing.T) {
	for drop, want := range map[bool]int{false: 1, true: 0} {
		out := new(agent.CreateSandboxRequest)
		f := newForwarder(t, func(o *Options) { o.DropDNS = drop })
		pass(t, f, "CreateSandbox", &agent.CreateSandboxRequest{Hostname: "h", Dns: []string{"nameserver 192.0.2.1"}}, out)
		if len(out.Dns) != want || out.Hostname != "h" {
			t.Errorf("drop-dns %v: %v", drop, out)
		}
	}
}

func TestBindSources(t *testing.T) {
	allowed := t.TempDir()
	defer func(old []string) { mayCreate = old }(mayCreate)
	mayCreate = []string{allowed + "/"}
	outside := t.TempDir()
	mount := func(kind, source string) *agent.Mount { return &agent.Mount{Type: kind, Source: source} }
	for name, tc := range map[string]struct {
		mount *agent.Mount
		path  string
		made  bool
	}{
		"missing":     {mount("bind", allowed+"/a/b"), allowed + "/a/b", true},
		"outside":     {mount("bind", outside+"/x"), outside + "/x", false},
		"escaping":    {mount("bind", allowed+"/../"+filepath.Base(outside)+"/y"), outside + "/y", false},
		"not a bind":  {mount("tmpfs", allowed+"/t"), allowed + "/t", false},
		"prefix only": {mount("bind", allowed+"x/z"), allowed + "x/z", false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := makeBindSource(tc.mount); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(tc.path); (err == nil) != tc.made {
				t.Errorf("%s exists: %v, want %v", tc.path, err == nil, tc.made)
			}
		})
	}
}

func TestGarbageIsRefused(t *testing.T) {
	for _, payload := range [][]byte{{0xff}, nil} {
		if _, err := newForwarder(t, nil).intercept(t.Context(), agentService, "CreateContainer", payload); err == nil {
			t.Errorf("took %x for a CreateContainer", payload)
		}
	}
}

// health is an agent that only says that it serves.
type health struct{}

func (health) Check(context.Context, *agent.CheckRequest) (*agent.HealthCheckResponse, error) {
	return &agent.HealthCheckResponse{Status: agent.HealthCheckResponse_SERVING}, nil
}

func (health) Version(context.Context, *agent.CheckRequest) (*agent.VersionCheckResponse, error) {
	return nil, errors.New("not asked")
}

func serveHealth(t *testing.T, socket string) {
	t.Helper()
	server, err := ttrpc.NewServer()
	if err != nil {
		t.Fatal(err)
	}
	agent.RegisterHealthService(server, health{})
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { server.Serve(context.Background(), listener); close(done) }()
	t.Cleanup(func() { server.Close(); <-done })
}

// TestThePortOpensLast holds back the network, then the agent, and looks
// whether the forwarder listens.
func TestThePortOpensLast(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "fw")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket, network, ready := dir+"/agent.sock", make(chan struct{}), make(chan net.Addr, 1)
	f := newForwarder(t, func(o *Options) {
		o.AgentSocket = socket
		o.Ready = func(a net.Addr) { ready <- a }
		o.SetupNetwork = func(ctx context.Context, _, _ string, _ *podnetwork.Config) error {
			select {
			case <-network:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	notYet := func(without string) {
		t.Helper()
		select {
		case a := <-ready:
			t.Fatalf("listens at %v without %s", a, without)
		case err := <-done:
			t.Fatalf("ended without %s: %v", without, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
	notYet("agent and network")
	serveHealth(t, socket)
	notYet("network")
	close(network)
	select {
	case a := <-ready:
		conn, err := net.Dial("tcp", a.String())
		if err != nil {
			t.Error(err)
		} else {
			conn.Close()
		}
	case <-time.After(time.Minute):
		t.Error("does not listen")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestNetworkThatFailsIsTold(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "fw")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	serveHealth(t, dir+"/agent.sock")
	f := newForwarder(t, func(o *Options) {
		o.AgentSocket = dir + "/agent.sock"
		o.SetupNetwork = func(context.Context, string, string, *podnetwork.Config) error { return errors.New("no vxlan") }
	})
	if err := f.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "pod network: no vxlan") {
		t.Errorf("error %v", err)
	}
}

func TestCommandLine(t *testing.T) {
	for args, want := range map[string]string{
		"-nonsense":      "nonsense",
		"extra":          "extra",
		"-cert-file=x":   "-cert-key",
		"-drop-dns=what": "drop-dns",
	} {
		if _, err := parseCommand([]string{args}, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v does not name %q", args, err, want)
		}
	}
}

func TestConfigurationErrorsNameTheKey(t *testing.T) {
	b, err := podtls.NewBundle("vm", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*apf.Config){
		"tls-server-key":    func(c *apf.Config) { c.TLSServerKey = "" },
		"tls-client-ca":     func(c *apf.Config) { c.TLSClientCA = "" },
		"tls-min-version":   func(c *apf.Config) { c.TLSMinVersion = "1.2" },
		"tls-cipher-suites": func(c *apf.Config) { c.TLSCipherSuites = []string{"nonsense"} },
		"has no pod yet":    func(c *apf.Config) { c.AwaitPod = true },
		"goes without":      func(c *apf.Config) { c.TLSServerIdentity = "kbs:///default/vm/1" },
		"does not attest": func(c *apf.Config) {
			c.TLSServerKey, c.TLSServerCert, c.TLSServerIdentity = "", "", "kbs:///default/vm/1"
		},
	} {
		config := &apf.Config{TLSServerKey: string(b.ServerKeyPEM), TLSServerCert: string(b.ServerCertPEM), TLSClientCA: string(b.CAPEM)}
		change(config)
		data, err := config.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "apf.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := parseCommand([]string{"-config", path}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.readFiles(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		} else if strings.Contains(err.Error(), "PRIVATE") {
			t.Error("the error shows a key")
		}
	}
}

// TestIdentityOfTheBroker: key and certificate are those of the key broker, which is asked once; what is not a key there is not shown, and who has it is
// not a node.
func TestIdentityOfTheBroker(t *testing.T) {
	b, err := podtls.NewBundle("podvm-server", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ServerIdentity = nil })
	for text, want := range map[string]string{
		string(b.ServerCertPEM) + string(b.ServerKeyPEM): "",
		string(b.ServerCertPEM) + "hunter2":              "found a certificate rather than a key",
		"":                                               "want a certificate and its key",
		string(b.ClientCertPEM) + string(b.ClientKeyPEM): "could be a node to other VMs",
	} {
		asked, dir := 0, t.TempDir()
		ServerIdentity = func(_ context.Context, provisioned, uri string, _ *slog.Logger) ([]byte, error) {
			if asked++; provisioned != dir || uri != "kbs:///default/vm/1" {
				t.Errorf("asked for %s with the initdata in %s", uri, provisioned)
			}
			return []byte(text), nil
		}
		for again := range 2 {
			c := &command{config: filepath.Join(dir, "apf.json")}
			made, err := c.tlsConfig(t.Context(), &apf.Config{TLSServerIdentity: "kbs:///default/vm/1", TLSClientCA: string(b.CAPEM)})
			switch {
			case want == "" && (err != nil || len(made.Certificates) != 1 || asked != 1):
				t.Errorf("asked %d times: %v", asked, err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter2") || asked != again+1):
				t.Errorf("asked %d times: error %v, want %q", asked, err, want)
			}
		}
	}
}
