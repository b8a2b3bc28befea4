// SPDX-License-Identifier: Apache-2.0

//go:build integration

package contract

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outrigger/outrigger/internal/protocol/agent"
	"github.com/outrigger/outrigger/internal/protocol/hypervisor"
)

// replay sends a recorded run, as the shim did: a new connection for each call
// of the hypervisor, one connection for all calls of the agent, long polls
// beside the others.
type replay struct {
	t          *testing.T
	socket     string // hypervisor
	substitute *strings.Replacer
	answers    []answer
	sandbox    string
	polling    bool // for the end of the pause container
	agent      *ttrpc.Client
	agentPath  string
	lastCopy   map[string]string // mount name -> path that CopyFile made

	polls   sync.WaitGroup
	mu      sync.Mutex
	streams map[string]*stream // exec id and stream -> what it delivered
	stats   []*agent.StatsContainerResponse
}

type stream struct {
	data []byte
	err  error
	done chan struct{}
}

func (r *replay) run(calls []call) {
	for _, c := range calls {
		body := r.substitute.Replace(c.body)
		request, response := messages(r.t, c)
		if err := protojson.Unmarshal([]byte(body), request); err != nil {
			r.t.Fatalf("call %d %s: %v", c.number, c.method, err)
		}
		r.send(c, request, response)
		if r.t.Failed() {
			return
		}
	}
	r.polls.Wait()
}

// messages makes the request and the response of a method from its name, by
// the descriptors that are linked.
func messages(t *testing.T, c call) (request, response proto.Message) {
	t.Helper()
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(c.service))
	if err != nil {
		t.Fatalf("call %d: %v", c.number, err)
	}
	method := d.(protoreflect.ServiceDescriptor).Methods().ByName(protoreflect.Name(c.method))
	if method == nil {
		t.Fatalf("call %d: %s has no method %s", c.number, c.service, c.method)
	}
	make := func(d protoreflect.MessageDescriptor) proto.Message {
		m, err := protoregistry.GlobalTypes.FindMessageByName(d.FullName())
		if err != nil {
			t.Fatal(err)
		}
		return m.New().Interface()
	}
	return make(method.Input()), make(method.Output())
}

func (r *replay) send(c call, request, response proto.Message) {
	r.t.Logf("%03d %s", c.number, c.method)
	switch req := request.(type) {
	case *agent.ReadStreamRequest:
		r.read(c, req)
		return
	case *agent.WaitProcessRequest:
		r.wait(c, req)
		return
	case *agent.GetOOMEventRequest:
		r.polls.Go(func() { r.call(c, request, response) })
		return
	case *agent.CopyFileRequest:
		r.noteCopy(req)
	case *agent.CreateContainerRequest:
		r.completeSpec(req)
	case *agent.TtyWinResizeRequest, *agent.WriteStreamRequest:
	}
	if err := r.call(c, request, response); err != nil {
		r.t.Errorf("call %d %s: %v", c.number, c.method, err)
		return
	}
	r.check(c, response)
}

func (r *replay) call(c call, request, response proto.Message) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Minute)
	defer cancel()
	if c.deadline > 0 {
		// The recording's machine was idle and had no VM: ten times the time.
		ctx, cancel = context.WithTimeout(ctx, 10*c.deadline)
		defer cancel()
	}
	if !strings.HasPrefix(c.service, "hypervisor.") {
		return r.agentClient().Call(ctx, c.service, c.method, request, response)
	}
	conn, err := net.Dial("unix", r.socket)
	if err != nil {
		return err
	}
	client := ttrpc.NewClient(conn)
	defer client.Close()
	return client.Call(ctx, c.service, c.method, request, response)
}

// agentClient is the one connection that the shim opens after StartVM.
func (r *replay) agentClient() *ttrpc.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agent == nil {
		conn, err := net.Dial("unix", r.agentPath)
		if err != nil {
			r.t.Errorf("agent socket: %v", err)
			return ttrpc.NewClient(nil)
		}
		r.agent = ttrpc.NewClient(conn)
		r.t.Cleanup(func() { r.agent.Close() })
	}
	return r.agent
}

// read follows a stream to its end at the first recorded read of it; how many
// reads that takes depends on timing and is not part of the contract.
func (r *replay) read(c call, req *agent.ReadStreamRequest) {
	key := req.ExecId + " " + c.method
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.streams[key] != nil {
		return
	}
	s := &stream{done: make(chan struct{})}
	r.streams[key] = s
	r.polls.Go(func() {
		defer close(s.done)
		for {
			var res agent.ReadStreamResponse
			if s.err = r.call(c, req, &res); s.err != nil {
				return
			}
			if len(res.Data) == 0 || len(res.Data) > int(req.Len) {
				r.t.Errorf("%s answered %d bytes for a read of %d", c.method, len(res.Data), req.Len)
			}
			s.data = append(s.data, res.Data...)
		}
	})
}

// wait polls for the exit; the pause container's is open for the pod's life.
// The shim waits for other processes only when their streams have ended.
func (r *replay) wait(c call, req *agent.WaitProcessRequest) {
	want := r.recordedStatus(c)
	if req.ContainerId == r.sandbox {
		// The reply to the first poll comes at the end, like those to the others.
		want = r.recordedStatus(call{number: lastBefore(r.answers)})
	}
	check := func() {
		var res agent.WaitProcessResponse
		if err := r.call(c, req, &res); err != nil {
			r.t.Errorf("call %d WaitProcess: %v", c.number, err)
		} else if res.Status != want {
			r.t.Errorf("call %d WaitProcess answered status %d, recorded was %d", c.number, res.Status, want)
		}
	}
	if req.ContainerId == r.sandbox {
		if !r.polling {
			r.polling = true
			r.polls.Go(check)
			return
		}
		check()
		return
	}
	for _, method := range []string{"ReadStdout", "ReadStderr"} {
		r.mu.Lock()
		s := r.streams[req.ExecId+" "+method]
		r.mu.Unlock()
		if s == nil {
			continue
		}
		<-s.done
		if status.Code(s.err) != codes.InvalidArgument || !strings.Contains(s.err.Error(), "eof") {
			r.t.Errorf("%s of %s ended with %v, recorded was InvalidArgument eof", method, req.ExecId, s.err)
		}
	}
	check()
}

// recordedStatus is that of the first WaitProcess reply after the call.
func (r *replay) recordedStatus(c call) int32 {
	for _, a := range r.answers {
		if a.after > c.number && a.method == "WaitProcess" {
			var code int32
			fmt.Sscanf(a.text, "status:%d", &code)
			return code
		}
	}
	r.t.Errorf("call %d: the recording has no reply", c.number)
	return 0
}

// lastBefore is the number before the last reply of WaitProcess.
func lastBefore(answers []answer) int {
	last := 0
	for _, a := range answers {
		if a.method == "WaitProcess" {
			last = a.after - 1
		}
	}
	return last
}

func (r *replay) noteCopy(req *agent.CopyFileRequest) {
	// <container>-<16 hex>-<base name of the mount source>
	m := regexp.MustCompile(`-[0-9a-f]{16}-([^/]+)$`).FindStringSubmatch(req.Path)
	if m != nil {
		r.lastCopy[m[1]] = req.Path
	}
}

// completeSpec puts back what the recorder cut from the OCI spec, from the
// whole one recorded for another run of the same pod.
func (r *replay) completeSpec(req *agent.CreateContainerRequest) {
	data, err := os.ReadFile("testdata/createcontainer-example.json")
	if err != nil {
		r.t.Fatal(err)
	}
	var whole agent.CreateContainerRequest
	var ids struct{ ContainerId string }
	json.Unmarshal(data, &ids)
	text := strings.ReplaceAll(string(data), ids.ContainerId, req.ContainerId)
	text = strings.ReplaceAll(text, "3f3e5880399e98c91b725ae746f00c77491ba9cb26c2a15caefd51dab878055f", r.sandbox)
	if err := protojson.Unmarshal([]byte(text), &whole); err != nil {
		r.t.Fatal(err)
	}
	args := req.OCI.Process.Args
	req.OCI = whole.OCI
	req.OCI.Process.Args = args
	if req.ContainerId == r.sandbox {
		req.OCI.Annotations["io.kubernetes.cri.container-type"] = "sandbox"
		req.OCI.Annotations["io.katacontainers.pkg.oci.container_type"] = "pod_sandbox"
	}
	var mounts []*agent.Mount
	for _, m := range req.OCI.Mounts {
		if m.Type == "bind" && strings.Contains(m.Source, "/shared/containers/") {
			name := m.Source[strings.LastIndex(m.Source, "-")+1:]
			if m.Source = r.lastCopy[name]; m.Source == "" || req.ContainerId == r.sandbox && name != "resolv.conf" {
				continue
			}
		}
		if req.ContainerId == r.sandbox && m.Type == "local" {
			continue
		}
		mounts = append(mounts, m)
	}
	req.OCI.Mounts = mounts
}

func (r *replay) check(c call, response proto.Message) {
	switch res := response.(type) {
	case *hypervisor.CreateVMResponse:
		if r.agentPath = res.AgentSocketPath; r.agentPath == "" || len(r.agentPath) > 107 || r.agentPath[0] != '/' || strings.Contains(r.agentPath, ":") {
			r.t.Errorf("agentSocketPath %q is not one a shim can dial", r.agentPath)
		}
	case *agent.HealthCheckResponse:
		if res.Status != agent.HealthCheckResponse_SERVING {
			r.t.Errorf("call %d: health is %v", c.number, res.Status)
		}
	case *agent.GuestDetailsResponse:
		if res.MemBlockSizeBytes != 128<<20 || res.AgentDetails.GetVersion() == "" {
			r.t.Errorf("guest details: %v", res)
		}
	case *agent.WriteStreamResponse:
		if res.Len == 0 {
			r.t.Errorf("call %d: WriteStdin took no byte", c.number)
		}
	case *agent.StatsContainerResponse:
		r.stats = append(r.stats, res)
	}
}
