// SPDX-License-Identifier: Apache-2.0

//go:build integration

package metadata

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outrigger/outrigger/internal/guest/userdata"
	"github.com/outrigger/outrigger/provider/cloudinit"
	"github.com/outrigger/outrigger/test/testns"
)

// The tests run in a network namespace of their own, whose loopback interface
// has the real addresses of the clouds' metadata services.
func TestMain(m *testing.M) { testns.MetadataMain(m) }

const (
	awsAddress     = "169.254.169.254:80"
	alibabaAddress = "100.100.100.200:80"
)

var document = func() string {
	text, err := cloudinit.CloudConfig{WriteFiles: []cloudinit.WriteFile{{Path: "/run/peerpod/apf.json", Content: `{"pod-name":"p"}`}}}.Generate()
	if err != nil {
		panic(err)
	}
	return text
}()

// serve returns at an address of the namespace until the test ends.
func serve(t *testing.T, address string, handler http.HandlerFunc) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}
	go server.Serve(listener)
	t.Cleanup(func() { server.Close() })
}

func tokens(request, header string) http.HandlerFunc {
	return func(out http.ResponseWriter, r *http.Request) {
		switch r.Method + " " + r.URL.Path {
		case "PUT /latest/api/token":
			want(out, r.Header.Get(request) != "" && r.Header.Get("X-Forwarded-For") == "", "the-token")
		case "GET /latest/user-data":
			if r.Header.Get(header) != "the-token" {
				http.Error(out, "no token", http.StatusUnauthorized)
				return
			}
			io.WriteString(out, document)
		default:
			http.NotFound(out, r)
		}
	}
}

func azure(out http.ResponseWriter, r *http.Request) {
	ok := r.URL.RequestURI() == "/metadata/instance/compute/userData?api-version=2021-01-01&format=text" && r.Header.Get("Metadata") == "true"
	want(out, ok, base64.StdEncoding.EncodeToString([]byte(document)))
}

func google(encoding string) http.HandlerFunc {
	return func(out http.ResponseWriter, r *http.Request) {
		out.Header().Set("Metadata-Flavor", "Google")
		ok := r.Header.Get("Metadata-Flavor") == "Google" && r.Host == "metadata.google.internal"
		text := document
		if encoding == "base64" {
			text = base64.StdEncoding.EncodeToString([]byte(document))
		}
		switch {
		case r.URL.Path == "/computeMetadata/v1/instance/attributes/user-data":
			want(out, ok, text)
		case r.URL.Path == "/computeMetadata/v1/instance/attributes/user-data-encoding" && encoding != "":
			want(out, ok, encoding)
		default:
			http.NotFound(out, r)
		}
	}
}

func ibm(out http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Query().Get("version") == "":
		http.Error(out, "no version", http.StatusBadRequest)
	case r.Method+" "+r.URL.Path == "PUT /instance_identity/v1/token":
		body, _ := io.ReadAll(r.Body)
		want(out, r.Header.Get("Metadata-Flavor") == "ibm" && strings.Contains(string(body), "expires_in"), `{"access_token":"the-token"}`)
	case r.Method+" "+r.URL.Path == "GET /metadata/v1/instance/initialization":
		want(out, r.Header.Get("Authorization") == "Bearer the-token", fmt.Sprintf(`{"user_data":%q}`, document))
	default:
		http.NotFound(out, r)
	}
}

func openstack(out http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/openstack/latest/user_data" {
		http.NotFound(out, r)
		return
	}
	io.WriteString(out, document)
}

func provision(t *testing.T, p Platform, o Options, timeout time.Duration) error {
	t.Helper()
	dir := t.TempDir()
	o.SeedDir, o.ConfigDriveDir = filepath.Join(dir, "no-seed"), filepath.Join(dir, "no-drive")
	out := filepath.Join(dir, "out")
	err := userdata.Provision(t.Context(), userdata.Options{Sources: Sources(p, o), Dir: out, Timeout: timeout, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	got, err := os.ReadFile(filepath.Join(out, "apf.json"))
	if err != nil || string(got) != `{"pod-name":"p"}` {
		t.Errorf("apf.json is %q, %v", got, err)
	}
	return nil
}

// attempt asks every source once and returns why each has nothing.
func attempt(t *testing.T, p Platform, o Options) error {
	t.Helper()
	var errs []error
	for _, s := range Sources(p, o) {
		data, err := s.Fetch(t.Context())
		if err == nil {
			_, err = cloudinit.Parse(data)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func TestServices(t *testing.T) {
	testns.RequireRoot(t)
	for name, c := range map[string]struct {
		platform Platform
		address  string
		handler  http.HandlerFunc
	}{
		"aws":        {AWS, awsAddress, tokens("X-aws-ec2-metadata-token-ttl-seconds", "X-aws-ec2-metadata-token")},
		"alibaba":    {Alibaba, alibabaAddress, tokens("X-aliyun-ecs-metadata-token-ttl-seconds", "X-aliyun-ecs-metadata-token")},
		"azure":      {Azure, awsAddress, azure},
		"gcp":        {GCP, awsAddress, google("")},
		"gcp base64": {GCP, awsAddress, google("base64")},
		"openstack":  {OpenStack, awsAddress, openstack},
		"ibm":        {Unknown, awsAddress, ibm},
		"any nova":   {Unknown, awsAddress, openstack},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, c.address, c.handler)
			if err := provision(t, c.platform, Options{}, time.Minute); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWaitsForTheService: the network of a VM is up before its metadata is.
func TestWaitsForTheService(t *testing.T) {
	testns.RequireRoot(t)
	asked := 0
	serve(t, awsAddress, func(out http.ResponseWriter, r *http.Request) {
		if asked++; asked < 3 {
			http.Error(out, "not yet", http.StatusServiceUnavailable)
			return
		}
		azure(out, r)
	})
	if err := provision(t, Azure, Options{}, time.Minute); err != nil || asked != 3 {
		t.Errorf("%d requests: %v", asked, err)
	}
}

func TestWithoutToken(t *testing.T) {
	testns.RequireRoot(t)
	serve(t, awsAddress, func(out http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			http.NotFound(out, r)
			return
		}
		io.WriteString(out, document)
	})
	if err := attempt(t, AWS, Options{}); err == nil || !strings.Contains(err.Error(), "/latest/api/token answered 404") {
		t.Errorf("without a token, which is not allowed: %v", err)
	}
	if err := provision(t, AWS, Options{AllowV1: true}, time.Minute); err != nil {
		t.Errorf("without a token, which is allowed: %v", err)
	}
}

func TestBadAnswers(t *testing.T) {
	testns.RequireRoot(t)
	stolen := false
	serve(t, "127.0.0.1:8080", func(http.ResponseWriter, *http.Request) { stolen = true })
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:8080")
	for name, c := range map[string]struct {
		platform Platform
		want     string
		handler  http.HandlerFunc
	}{
		"redirect": {Azure, "must not redirect", func(out http.ResponseWriter, r *http.Request) {
			http.Redirect(out, r, "http://127.0.0.1:8080/", http.StatusFound)
		}},
		"not base64":   {Azure, "not base64", func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, "%%%") }},
		"empty":        {Azure, "made without user-data", func(http.ResponseWriter, *http.Request) {}},
		"too large":    {OpenStack, "answered more than", func(out http.ResponseWriter, _ *http.Request) { io.Copy(out, io.LimitReader(zeros{}, maxBody+1)) }},
		"no document":  {OpenStack, "#cloud-config", func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, "#!/bin/sh\n") }},
		"not google":   {GCP, "no header Metadata-Flavor", func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, document) }},
		"gcp encoding": {GCP, "user-data-encoding", google("rot13")},
		"ibm no token": {Unknown, "no access_token", func(out http.ResponseWriter, _ *http.Request) { io.WriteString(out, "{}") }},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, awsAddress, c.handler)
			err := attempt(t, c.platform, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v does not say %q", err, c.want)
			}
		})
	}
	if stolen {
		t.Error("a redirect or a proxy was followed")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestConfigDrive(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "openstack", "latest", "user_data")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, s := range Sources(Unknown, Options{SeedDir: t.TempDir(), ConfigDriveDir: dir}) {
		data, err := s.Fetch(t.Context())
		if err == nil && string(data) == document {
			return
		}
		if strings.HasPrefix(s.Name(), "config drive") {
			t.Errorf("%s: %v", s.Name(), err)
		}
	}
	t.Error("no source reads the config drive")
}
