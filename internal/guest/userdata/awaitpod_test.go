// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outrigger/outrigger/internal/peerpods/apf"
	"github.com/outrigger/outrigger/internal/peerpods/handover"
	"github.com/outrigger/outrigger/internal/peerpods/podtls"
	"github.com/outrigger/outrigger/internal/timeline/marks"
	"github.com/outrigger/outrigger/provider/cloudinit"
)

// poolVM waits for a pod in the place of a VM.
type poolVM struct {
	bundle    *podtls.Bundle
	dir, addr string
	done      chan error
	marks     marks.Marks
}

// firstLine passes the first log line on.
type firstLine chan string

func (f firstLine) Write(p []byte) (int, error) {
	select {
	case f <- string(p):
	default:
	}
	return len(p), nil
}

func forwarderConfig(t *testing.T, bundle *podtls.Bundle, await bool) cloudinit.WriteFile {
	t.Helper()
	text, err := (&apf.Config{
		TLSServerKey: string(bundle.ServerKeyPEM), TLSServerCert: string(bundle.ServerCertPEM), TLSClientCA: string(bundle.CAPEM), AwaitPod: await, PrefetchImages: []string{"web:1"},
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return cloudinit.WriteFile{Path: apf.DefaultPath, Content: string(text)}
}

func newBundle(t *testing.T) *podtls.Bundle {
	t.Helper()
	bundle, err := podtls.NewBundle("vm", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return bundle
}

// startPoolVM provisions more files than a pool has.
func startPoolVM(t *testing.T, ctx context.Context, more ...cloudinit.WriteFile) *poolVM {
	t.Helper()
	v := &poolVM{bundle: newBundle(t), done: make(chan error, 1)}
	dir, err := provision(t, text(document(t, append(more, forwarderConfig(t, v.bundle, true))...)))
	if err != nil {
		t.Fatal(err)
	}
	v.dir = dir
	line := make(firstLine, 1)
	v.marks = marks.Marks{Path: filepath.Join(t.TempDir(), "marks")}
	rehearsed := false
	o := Options{Dir: dir, Logger: slog.New(slog.NewTextHandler(line, nil)), Marks: v.marks, Rehearse: func(_ context.Context, images []string) error {
		rehearsed = slices.Equal(images, []string{"web:1"})
		return nil
	}}
	go func() { v.done <- AwaitPod(ctx, o, "127.0.0.1:0") }()
	select {
	case text := <-line:
		_, address, _ := strings.Cut(strings.TrimSpace(text), "address=")
		if v.addr = address; !strings.Contains(text, "waiting for a pod") {
			t.Fatalf("the first line is %q", text)
		}
		if !rehearsed {
			t.Error("it waits for a pod before it has rehearsed one")
		}
	case err := <-v.done:
		t.Fatalf("it does not wait: %v", err)
	}
	return v
}

func (v *poolVM) send(t *testing.T, document string) error {
	t.Helper()
	config, err := podtls.ClientConfig(podtls.ClientOptions{
		ServerName: "vm", CAPEM: v.bundle.CAPEM, CertPEM: v.bundle.ClientCertPEM, KeyPEM: v.bundle.ClientKeyPEM,
	})
	if err != nil {
		t.Fatal(err)
	}
	return handover.Send(t.Context(), v.addr, config, []byte(document))
}

// files returns what is in a folder, by name, and fails where a mode is not that of the list.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(data)
		if info, err := e.Info(); err != nil || allowed[e.Name()] != 0 && info.Mode() != allowed[e.Name()] {
			t.Errorf("%s has mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
	return all
}

// TestHandedOverVMIsThatOfThePod: a VM of a pool ends with the files of a VM that was
// made for the pod, whatever the pool's user-data brought and whatever was refused before.
func TestHandedOverVMIsThatOfThePod(t *testing.T) {
	t.Parallel()
	pods := newBundle(t)
	for name, more := range map[string][]cloudinit.WriteFile{
		"identity alone": nil,
		"with a secret": {
			{Path: "/run/peerpod/auth.json", Content: `{"auths":{}}`}, {Path: "/run/peerpod/aa.toml", Content: "pod"}, {Path: "/etc/shadow", Content: "root::"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := document(t, append(more, forwarderConfig(t, pods, false))...)
			alone, err := provision(t, text(pod))
			if err != nil {
				t.Fatal(err)
			}
			initdata, err := cloudinit.NewInitData("sha384", "0.1.0", map[string]string{"policy.rego": "pool", "cdh.toml": "pool", "aa.toml": "pool"})
			if err != nil {
				t.Fatal(err)
			}
			encoded, err := initdata.Encode()
			if err != nil {
				t.Fatal(err)
			}
			v := startPoolVM(t, t.Context(), cloudinit.WriteFile{Path: "/run/peerpod/initdata", Content: encoded},
				cloudinit.WriteFile{Path: "/run/peerpod/auth.json", Content: "pool"}, cloudinit.WriteFile{Path: "/run/peerpod/scratch-space.marker"})
			broken := []cloudinit.WriteFile{forwarderConfig(t, newBundle(t), false), {Path: "/run/peerpod/insecure-registries", Content: "other"}, {Path: "/run/peerpod/initdata", Content: "%%%"}}
			for want, doc := range map[string]string{
				"#cloud-config":  "garbage",
				"no apf.json":    document(t, cloudinit.WriteFile{Path: "/run/peerpod/auth.json", Content: "{}"}),
				"says await-pod": document(t, forwarderConfig(t, pods, false), forwarderConfig(t, pods, true)),
				"apf.json: ":     document(t, cloudinit.WriteFile{Path: apf.DefaultPath, Content: "{"}),
				"initdata":       document(t, broken...), // after it was written in part
			} {
				if err := v.send(t, doc); !errors.Is(err, handover.ErrRefused) || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want ErrRefused with %q", err, want)
				}
			}
			if err := v.send(t, pod); err != nil {
				t.Fatal(err)
			}
			if err := <-v.done; err != nil {
				t.Fatal(err)
			}
			if steps := v.marks.Read(); len(steps) != 1 || steps[0].Name != marks.Handover {
				t.Errorf("its steps are %v", steps)
			}
			if diff := cmp.Diff(files(t, alone), files(t, v.dir)); diff != "" {
				t.Errorf("files of a VM of its own (-) and of one of the pool (+):\n%s", diff)
			}
		})
	}
}

// TestVMOfAPodDoesNotWait, and one whose pool gave it no identity says so.
func TestVMOfAPodDoesNotWait(t *testing.T) {
	t.Parallel()
	o := Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, c := range []struct{ config, want string }{
		{"", ""},
		{"{}", ""},
		{"{", "apf.json"},
		{`{"await-pod":true}`, "server certificate"},
		{`{"await-pod":true,"tls-min-version":"1"}`, "tls-min-version"},
		{forwarderConfig(t, newBundle(t), true).Content, "address already in use"},
	} {
		if c.config != "" {
			if err := os.WriteFile(filepath.Join(o.Dir, "apf.json"), []byte(c.config), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := AwaitPod(t.Context(), o, taken.Addr().String())
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.40s: error %v, want %q", c.config, err, c.want)
		}
	}
}

func TestAwaitPodEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	v := startPoolVM(t, ctx)
	cancel()
	if err := <-v.done; !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
