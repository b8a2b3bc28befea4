// SPDX-License-Identifier: Apache-2.0

package adaptor_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/outrigger/outrigger/internal/peerpods/adaptor"
	hypervisorpb "github.com/outrigger/outrigger/internal/protocol/hypervisor"
	"github.com/outrigger/outrigger/test/adaptortest"
)

const hypervisorAnnotation = "io.katacontainers.config.hypervisor."

func TestBadRequests(t *testing.T) {
	annotate := func(key, value string) func(*hypervisorpb.CreateVMRequest) {
		return func(r *hypervisorpb.CreateVMRequest) { r.Annotations[key] = value }
	}
	name := func(id string) func(*hypervisorpb.CreateVMRequest) {
		return func(r *hypervisorpb.CreateVMRequest) { r.Id = id }
	}
	for what, c := range map[string]struct {
		spoil func(*hypervisorpb.CreateVMRequest)
		says  string
	}{
		"no id":               {name(""), "id is empty"},
		"id with slash":       {name("../../etc"), "letters, digits"},
		"id of dots":          {name(".."), "letters, digits"},
		"id with colon":       {name("a:b"), "letters, digits"},
		"id with NUL":         {name("a\x00b"), "letters, digits"},
		"id too long":         {name(strings.Repeat("a", 200)), "at most 107"},
		"id far too long":     {name(strings.Repeat("a", 5000)), "253"},
		"id of no cloud":      {name(strings.Repeat("a", 65)), "1 to 64"},
		"no annotations":      {func(r *hypervisorpb.CreateVMRequest) { r.Annotations = nil }, "sandbox-name is missing"},
		"no namespace":        {annotate("io.kubernetes.cri.sandbox-namespace", ""), "sandbox-namespace is missing"},
		"pod with newline":    {annotate("io.kubernetes.cri.sandbox-name", "a\nb"), "sandbox-name"},
		"vcpus in words":      {annotate(hypervisorAnnotation+"default_vcpus", "two"), hypervisorAnnotation + "default_vcpus"},
		"vcpus negative":      {annotate(hypervisorAnnotation+"default_vcpus", "-1"), "default_vcpus"},
		"vcpus NaN":           {annotate(hypervisorAnnotation+"default_vcpus", "NaN"), "default_vcpus"},
		"memory with unit":    {annotate(hypervisorAnnotation+"default_memory", "1Gi"), "default_memory"},
		"memory too large":    {annotate(hypervisorAnnotation+"default_memory", "999999999999"), "too large"},
		"memory in hex":       {annotate(hypervisorAnnotation+"default_memory", "0x10"), "default_memory"},
		"gpus exponent":       {annotate(hypervisorAnnotation+"default_gpus", "1e9"), "default_gpus"},
		"initdata garbage":    {annotate(hypervisorAnnotation+"cc_init_data", "{"), "cc_init_data"},
		"initdata torn gzip":  {annotate(hypervisorAnnotation+"cc_init_data", "H4sIAAAA"), "cc_init_data"},
		"initdata algorithm":  {annotate(hypervisorAnnotation+"cc_init_data", "algorithm='md5'\nversion='1'"), "md5"},
		"image not allowed":   {annotate(hypervisorAnnotation+"image", "mine"), "-pod-images (POD_IMAGES)"},
		"namespace not there": {func(r *hypervisorpb.CreateVMRequest) { r.NetworkNamespacePath = "/run/netns/missing" }, "/run/netns/missing"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newStand(t, nil)
			req := s.request("x1")
			c.spoil(req)
			_, err := s.CreateVM(t.Context(), req)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("error lacks %q: %v", c.says, err)
			}
			if what != "namespace not there" {
				wantCode(t, err, codes.InvalidArgument)
			}
			if len(err.Error()) > 600 {
				t.Errorf("error of %d bytes", len(err.Error()))
			}
			s.wantNothing()
		})
	}
}

func TestSecondCreateForTheSameID(t *testing.T) {
	s := newStand(t, nil)
	s.run("y1")
	_, err := s.CreateVM(t.Context(), s.request("y1"))
	wantCode(t, err, codes.AlreadyExists)
	if len(s.sandboxes()) != 1 || s.sandboxes()[0].State != "ready" {
		t.Errorf("the first sandbox suffered: %v", s.sandboxes())
	}
	wantCode(t, s.start("y2"), codes.NotFound)
}

func TestBadOptions(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for what, c := range map[string]struct {
		spoil func(*adaptor.Options)
		says  string
	}{
		"relative folder":   {func(o *adaptor.Options) { o.PodsDir = "pods" }, "-pods-dir"},
		"colon in folder":   {func(o *adaptor.Options) { o.PodsDir = "/tmp/a:b" }, "':'"},
		"registry as a URL": {func(o *adaptor.Options) { o.InsecureRegistries = []string{"http://r:5000"} }, "-insecure-registries (INSECURE_REGISTRIES)"},
		"port of registry":  {func(o *adaptor.Options) { o.InsecureRegistries = []string{"r:70000"} }, "r:70000"},
		"many registries":   {func(o *adaptor.Options) { o.InsecureRegistries = slices.Repeat([]string{"registry.example.com"}, 60) }, "at most 1024"},
		"star in a name":    {func(o *adaptor.Options) { o.PodImages = []string{"pod*vm"} }, "-pod-images (POD_IMAGES)"},
		"port too high":     {func(o *adaptor.Options) { o.ForwarderPort = 70000 }, "-forwarder-port"},
		"no such auth file": {func(o *adaptor.Options) { o.AuthFile = "/does/not/exist" }, "-auth-file"},
		"auth file no JSON": {func(o *adaptor.Options) { o.AuthFile = write("a", "user:password") }, `{"auths"`},
		"auth file too big": {func(o *adaptor.Options) { o.AuthFile = write("b", strings.Repeat(" ", 12289)) }, "12288"},
		"own CA not there":  {func(o *adaptor.Options) { o.TLS.OwnCA = &adaptor.OwnCA{CAFile: "/does/not/exist"} }, "own CA"},
		"own CA no PEM": {func(o *adaptor.Options) {
			p := write("c", "x")
			o.TLS.OwnCA = &adaptor.OwnCA{CAFile: p, CertFile: p, KeyFile: p}
		}, "no PEM"},
		"secrets in user-data": {func(o *adaptor.Options) {
			o.AuthFile, o.TLS.OwnCA = write("e", `{"auths":{}}`), &adaptor.OwnCA{ServerIdentity: "kbs:///default/vm/1"}
		}, "-server-identity (SERVER_IDENTITY) goes without -auth-file"},
		"identity of nobody": {func(o *adaptor.Options) {
			o.TLS.Disabled, o.TLS.OwnCA = true, &adaptor.OwnCA{ServerIdentity: "kbs:///default/vm/1"}
		}, "-server-identity (SERVER_IDENTITY) goes without -disable-tls"},
		"nobody issues":      {func(o *adaptor.Options) { o.TLS.Issue = nil }, "issuer"},
		"folder not makable": {func(o *adaptor.Options) { o.PodsDir = write("d", "") + "/pods" }, "pods folder"},
	} {
		t.Run(what, func(t *testing.T) {
			opts := newStand(t, nil).opts
			opts.PodsDir = filepath.Join(t.TempDir(), "pods")
			opts.TLS.Issue = adaptortest.Issue
			c.spoil(&opts)
			if _, err := adaptor.New(opts); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("error lacks %q: %v", c.says, err)
			}
		})
	}
}

func TestFolderOfAnotherAdaptorIsRefused(t *testing.T) {
	s := newStand(t, nil)
	if _, err := adaptor.New(s.opts); err == nil || !strings.Contains(err.Error(), "another adaptor") {
		t.Errorf("error %v", err)
	}
}
