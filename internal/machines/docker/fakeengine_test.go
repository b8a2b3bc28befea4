// SPDX-License-Identifier: Apache-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"path"
	"strings"
	"sync"
	"testing"

	"github.com/moby/moby/client"
)

// fakeEngine is as much of an engine as there is about what it has made: nothing
// runs. A test has it refuse calls, in the words of a real one.
type fakeEngine struct {
	mu         sync.Mutex
	containers map[string]*fakeContainer // by id
	networks   map[string]*fakeNetwork   // by id
	volumes    map[string]map[string]string
	serial     int
	// pools are the subnets that it gives networks that ask for none.
	pools []netip.Prefix
	// refuse, if any, returns an error of a call.
	refuse func(verb, path string) (status int, message string)
}

type fakeContainer struct {
	ID, Name, Created string
	Config            json.RawMessage
	HostConfig        json.RawMessage
	Labels            map[string]string
	Status            string
	files             map[string][]byte
}

type fakeNetwork struct {
	ID     string `json:"Id"`
	Name   string
	Labels map[string]string
	// EnableIPv6 is as it was asked for.
	EnableIPv6 bool
	IPAM       struct {
		Config []fakeSubnet
	}
}

type fakeSubnet struct{ Subnet, Gateway string }

// newFakeEngine returns one, and a backend that speaks to it.
func newFakeEngine(t testing.TB, cfg Config) (*fakeEngine, *Backend) {
	t.Helper()
	e := &fakeEngine{containers: map[string]*fakeContainer{}, networks: map[string]*fakeNetwork{}, volumes: map[string]map[string]string{}}
	for i := range 16 {
		e.pools = append(e.pools, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(17 + i), 0, 0}), 16))
	}
	engine, err := client.New(client.WithHost("tcp://engine:2375"), client.WithHTTPClient(&http.Client{Transport: e}), client.WithAPIVersion("1.41"))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Host == "" {
		cfg.Host = defaults.Host
	}
	cfg.NodeImage, cfg.LoadBalancerImage = "node:v1", "balancer:v1"
	b := &Backend{cfg: cfg, engine: engine, tasks: newTasks()}
	t.Cleanup(func() { b.Close() })
	return e, b
}

// RoundTrip implements http.RoundTripper.
func (e *fakeEngine) RoundTrip(r *http.Request) (*http.Response, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	at := strings.TrimPrefix(r.URL.Path, "/v1.41")
	status, answer := http.StatusOK, any(nil)
	if e.refuse != nil {
		if code, message := e.refuse(r.Method, at); code != 0 {
			status, answer = code, map[string]string{"message": message}
		}
	}
	if answer == nil {
		status, answer = e.serve(r, at, body)
	}
	text, raw := answer.([]byte)
	header := http.Header{"Content-Type": {"application/json"}}
	var err error
	if raw {
		header = http.Header{"Content-Type": {"application/x-tar"}, "X-Docker-Container-Path-Stat": {base64.StdEncoding.EncodeToString([]byte("{}"))}}
	} else {
		text, err = json.Marshal(answer)
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(bytes.NewReader(text)), Request: r}, err
}

func (e *fakeEngine) serve(r *http.Request, at string, body []byte) (int, any) {
	part := strings.Split(strings.Trim(at, "/"), "/")
	switch {
	case part[0] == "images":
		return http.StatusOK, map[string]string{"Id": "image"}
	case part[0] == "volumes":
		return e.volume(r.Method, part, body)
	case part[0] == "networks":
		return e.network(r.Method, part, body)
	case part[0] == "containers":
		return e.container(r, part, body)
	}
	return http.StatusNotFound, map[string]string{"message": "page not found: " + at}
}

func (e *fakeEngine) id() string {
	e.serial++
	return fmt.Sprintf("%064x", e.serial)
}

func (e *fakeEngine) volume(verb string, part []string, body []byte) (int, any) {
	switch {
	case verb == http.MethodDelete:
		delete(e.volumes, part[1])
		return http.StatusNoContent, struct{}{}
	case verb == http.MethodPost:
		var v struct {
			Name   string
			Labels map[string]string
		}
		_ = json.Unmarshal(body, &v)
		e.volumes[v.Name] = v.Labels
		return http.StatusCreated, v
	}
	list := []any{}
	for name, labels := range e.volumes {
		list = append(list, map[string]any{"Name": name, "Labels": labels})
	}
	return http.StatusOK, map[string]any{"Volumes": list}
}

func (e *fakeEngine) network(verb string, part []string, body []byte) (int, any) {
	switch {
	case verb == http.MethodDelete:
		delete(e.networks, part[1])
		return http.StatusNoContent, struct{}{}
	case verb == http.MethodPost:
		return e.createNetwork(body)
	case len(part) > 1:
		if n := e.networks[part[1]]; n != nil {
			return http.StatusOK, n
		}
		return http.StatusNotFound, map[string]string{"message": "network " + part[1] + " not found"}
	}
	list := []any{}
	for _, n := range e.networks {
		list = append(list, n)
	}
	return http.StatusOK, list
}

// createNetwork has the words of engines that have no subnet, or not that one.
func (e *fakeEngine) createNetwork(body []byte) (int, any) {
	n := &fakeNetwork{}
	_ = json.Unmarshal(body, n)
	taken := func(p netip.Prefix) bool {
		for _, other := range e.networks {
			if netip.MustParsePrefix(other.IPAM.Config[0].Subnet).Overlaps(p) {
				return true
			}
		}
		return false
	}
	if len(n.IPAM.Config) == 0 {
		for _, p := range e.pools {
			if !taken(p) {
				n.IPAM.Config = []fakeSubnet{{p.String(), p.Addr().Next().String()}}
				break
			}
		}
	} else if taken(netip.MustParsePrefix(n.IPAM.Config[0].Subnet)) {
		return http.StatusForbidden, map[string]string{"message": "Pool overlaps with other one on this address space"}
	}
	if len(n.IPAM.Config) == 0 {
		return http.StatusNotFound, map[string]string{"message": "could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network"}
	}
	n.ID = e.id()
	e.networks[n.ID] = n
	return http.StatusCreated, map[string]string{"Id": n.ID}
}

func (e *fakeEngine) container(r *http.Request, part []string, body []byte) (int, any) {
	switch {
	case part[1] == "json":
		list := []any{}
		for _, c := range e.containers {
			list = append(list, map[string]any{"Id": c.ID, "Names": []string{"/" + c.Name}, "Labels": c.Labels, "State": c.Status})
		}
		return http.StatusOK, list
	case part[1] == "create":
		c := &fakeContainer{files: map[string][]byte{}, ID: e.id(), Name: r.URL.Query().Get("name"), Config: body, Status: "created"}
		var labels struct {
			Labels     map[string]string
			HostConfig json.RawMessage
		}
		_ = json.Unmarshal(body, &labels)
		c.Labels, c.HostConfig = labels.Labels, labels.HostConfig
		e.containers[c.ID] = c
		return http.StatusCreated, map[string]string{"Id": c.ID}
	}
	c := e.containers[part[1]]
	for _, other := range e.containers {
		if other.Name == part[1] {
			c = other
		}
	}
	if c == nil {
		return http.StatusNotFound, map[string]string{"message": "No such container: " + part[1]}
	}
	if len(part) == 3 && part[2] == "archive" && r.Method == http.MethodPut {
		return c.extract(body)
	}
	if len(part) == 3 && part[2] == "archive" {
		return c.archive(r.URL.Query().Get("path"))
	}
	return e.of(c, r.Method, part)
}

func (e *fakeEngine) of(c *fakeContainer, verb string, part []string) (int, any) {
	switch {
	case verb == http.MethodDelete:
		delete(e.containers, c.ID)
		return http.StatusNoContent, struct{}{}
	case part[2] == "start":
		c.Status = "running"
		return http.StatusNoContent, struct{}{}
	case part[2] == "json":
		return http.StatusOK, map[string]any{"Id": c.ID, "Name": "/" + c.Name, "Config": c.Config, "HostConfig": c.HostConfig,
			"State": map[string]any{"Status": c.Status, "Running": c.Status == "running"}, "NetworkSettings": map[string]any{"Ports": c.ports()}}
	}
	return http.StatusOK, struct{}{}
}

// extract keeps the files of an archive.
func (c *fakeContainer) extract(body []byte) (int, any) {
	for r := tar.NewReader(bytes.NewReader(body)); ; {
		h, err := r.Next()
		if err != nil {
			return http.StatusOK, struct{}{}
		}
		c.files["/"+h.Name], _ = io.ReadAll(r)
	}
}

// archive returns a tar archive with one file.
func (c *fakeContainer) archive(name string) (int, any) {
	data, ok := c.files[name]
	if !ok {
		return http.StatusNotFound, map[string]string{"message": "no such file"}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	_ = w.WriteHeader(&tar.Header{Name: path.Base(name), Mode: 0o644, Size: int64(len(data))})
	_, _ = w.Write(data)
	_ = w.Close()
	return http.StatusOK, out.Bytes()
}

// ports are those that are published, each at a port of its own.
func (c *fakeContainer) ports() map[string][]map[string]string {
	var host struct {
		PortBindings map[string][]map[string]string
	}
	_ = json.Unmarshal(c.HostConfig, &host)
	for _, bindings := range host.PortBindings {
		for _, b := range bindings {
			if b["HostPort"] == "" {
				b["HostPort"] = "32768"
			}
		}
	}
	return host.PortBindings
}
