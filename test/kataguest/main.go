// SPDX-License-Identifier: Apache-2.0

// Command kataguest stands in for kata-agent, attestation-agent, confidential-data-hub and api-server-rest in a pod
// VM, as the name by which it is started says. They speak the published protocols as far as the test needs them, and
// write what they see to the console, after "PROBE".
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/ttrpc"
	"github.com/pelletier/go-toml/v2"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outrigger/outrigger/internal/localnet"
	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/guest"
	"github.com/outrigger/outrigger/test/fakeagent"
)

// Defaults of guest-components.
const (
	attesterSocket = "/run/confidential-containers/attestation-agent/attestation-agent.sock"
	hubSocket      = "/run/confidential-containers/cdh.sock"
	restAddress    = "127.0.0.1:8006"
)

func main() {
	name := filepath.Base(os.Args[0])
	run := map[string]func() error{
		"kata-agent": kataAgent, "attestation-agent": attestationAgent, "confidential-data-hub": dataHub, "api-server-rest": apiServer,
	}[name]
	switch {
	case len(os.Args) == 4 && os.Args[1] == "get":
		run = get // in a container
	case run == nil:
		run = func() error { return errors.New("unknown name") }
	default:
		fmt.Println("PROBE", name, os.Args[1:])
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, name, err)
		os.Exit(1)
	}
}

// The messages of guest-components that are used here have one field, of number 1: the well-known types have the same form.
func attestationAgent() error {
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	server.Register("attestation_agent.AttestationAgentService", map[string]ttrpc.Method{
		"GetToken": func(_ context.Context, unmarshal func(any) error) (any, error) {
			var kind wrapperspb.StringValue
			err := unmarshal(&kind)
			return wrapperspb.Bytes([]byte(kind.Value + "-token")), err
		},
	})
	return serve(server, attesterSocket)
}

func dataHub() error {
	// It needs the attestation agent from its start.
	token, err := call(attesterSocket, "attestation_agent.AttestationAgentService", "GetToken", "kbs")
	if err != nil {
		return err
	}
	fmt.Println("PROBE hub has", string(token), os.Getenv("CDH_DEFAULT_IMAGE_AUTHENTICATED_REGISTRY_CREDENTIALS"))
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	server.Register("api.GetResourceService", map[string]ttrpc.Method{
		"GetResource": func(_ context.Context, unmarshal func(any) error) (any, error) {
			var path wrapperspb.StringValue
			if err := unmarshal(&path); err != nil {
				return nil, err
			}
			token, err := call(attesterSocket, "attestation_agent.AttestationAgentService", "GetToken", "kbs")
			return wrapperspb.Bytes([]byte(path.Value + " with " + string(token))), err
		},
	})
	return serve(server, hubSocket)
}

func apiServer() error {
	fmt.Println("PROBE rest serves")
	return http.ListenAndServe(restAddress, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource, err := call(hubSocket, "api.GetResourceService", "GetResource", strings.TrimPrefix(r.URL.Path, "/cdh/resource/"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Write(resource)
	}))
}

// get prints the resource of its last argument as a container gets it that is in the network namespace before that.
func get() error {
	ns, err := netns.GetFromPath(os.Args[2])
	if err != nil {
		return err
	}
	var conn net.Conn
	err = localnet.InNetns(ns, func() (err error) {
		conn, err = net.Dial("tcp", restAddress)
		return err
	})
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	resp, err := client.Get("http://" + restAddress + "/cdh/resource/" + os.Args[3])
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}

// kata is the agent; its containers are plain processes.
type kata struct {
	*fakeagent.Agent
	features []string
}

func kataAgent() error {
	var config struct {
		Address string `toml:"server_addr"`
		Procs   string `toml:"guest_components_procs"`
	}
	if len(os.Args) != 3 || os.Args[1] != "--config" {
		return fmt.Errorf("arguments %q, want --config FILE", os.Args[1:])
	}
	settings, err := os.ReadFile(os.Args[2])
	if err == nil {
		err = toml.Unmarshal(settings, &config)
	}
	if err != nil {
		return err
	}
	policy, err := os.ReadFile("/etc/kata-opa/default-policy.rego")
	fmt.Printf("PROBE policy %q %v, components by the agent: %s\n", policy, err, config.Procs)
	k := &kata{Agent: fakeagent.NewAgent()}
	// The first agent was built without policies, later ones with them.
	if os.Mkdir("/run/started-before", 0o700) != nil {
		k.features = []string{"agent-policy"}
	}
	server, err := ttrpc.NewServer()
	if err != nil {
		return err
	}
	agent.RegisterAgentServiceService(server, k)
	agent.RegisterHealthService(server, health{})
	guest.RegisterGuestService(server, noService{})
	return serve(server, strings.TrimPrefix(config.Address, "unix://"))
}

func (k *kata) CreateSandbox(ctx context.Context, req *agent.CreateSandboxRequest) (*emptypb.Empty, error) {
	fmt.Println("PROBE sandbox", req.SandboxId, "dns", req.Dns)
	return k.Agent.CreateSandbox(ctx, req)
}

// GetGuestDetails has the names of Kata's build features.
func (k *kata) GetGuestDetails(context.Context, *agent.GuestDetailsRequest) (*agent.GuestDetailsResponse, error) {
	return &agent.GuestDetailsResponse{AgentDetails: &agent.AgentDetails{Version: "stand-in", ExtraFeatures: k.features}}, nil
}

// SignalProcess of the container "program:NAME" kills a program of the VM.
func (k *kata) SignalProcess(ctx context.Context, req *agent.SignalProcessRequest) (*emptypb.Empty, error) {
	name, ok := strings.CutPrefix(req.ContainerId, "program:")
	if !ok {
		return k.Agent.SignalProcess(ctx, req)
	}
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		argv, _ := os.ReadFile(file)
		if program, _, _ := strings.Cut(string(argv), "\x00"); filepath.Base(program) == name {
			var pid int
			fmt.Sscan(strings.Split(file, "/")[2], &pid)
			return &emptypb.Empty{}, unix.Kill(pid, unix.SIGKILL)
		}
	}
	return nil, status.Errorf(codes.NotFound, "no program %s", name)
}

type health struct{ agent.HealthService }

func (health) Check(context.Context, *agent.CheckRequest) (*agent.HealthCheckResponse, error) {
	return &agent.HealthCheckResponse{Status: agent.HealthCheckResponse_SERVING}, nil
}

// noService answers as ttrpc-rust does for a service that a server lacks.
type noService struct{ guest.GuestService }

func (noService) CopyFiles(context.Context, *guest.CopyFilesRequest) (*guest.CopyFilesResponse, error) {
	return nil, status.Error(codes.InvalidArgument, "outrigger.guest.v1.Guest service does not exist")
}

// serve fails like kata-agent if the socket is there.
func serve(server *ttrpc.Server, socket string) error {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	fmt.Println("PROBE", filepath.Base(os.Args[0]), "serves")
	return server.Serve(context.Background(), listener)
}

func call(socket, service, method, argument string) ([]byte, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	var answer wrapperspb.BytesValue
	err = client.Call(context.Background(), service, method, wrapperspb.String(argument), &answer)
	return answer.Value, err
}
