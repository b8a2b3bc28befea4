// SPDX-License-Identifier: Apache-2.0

//go:build integration

package deploy

import (
	"archive/tar"
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	sim "github.com/outrigger/outrigger/test/cloudsim/alibabacloud"
	"github.com/outrigger/outrigger/test/tier"
)

// TestAlibabaPageStarts makes the adaptor's image with the page's own line and starts its
// program with the settings that the page leads to, at the simulated cloud. The compiler
// takes minutes for the cloud's library.
func TestAlibabaPageStarts(t *testing.T) {
	tier.OnlyAll(t)
	program := adaptorOf(t, pagesImage(t))
	if out, err := exec.Command(program, "help").CombinedOutput(); err != nil || !strings.Contains(string(out), "alibabacloud") {
		t.Errorf("the image's providers: %v\n%s", err, out)
	}
	cloud := sim.New(t, sim.Options{})
	w := follow(t, "alibabacloud", alibabaSite)
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(sim.Token(sim.ServiceAccount())), 0o600); err != nil {
		t.Fatal(err)
	}
	there := map[string]string{ // what the page's names are in this cloud
		"VSWITCH_ID": sim.VSwitch, "SECURITY_GROUP_IDS": sim.Group, "IMAGEID": sim.Image, "REGION": sim.Region,
		"ALIBABA_CLOUD_ROLE_ARN": sim.Role, "ALIBABA_CLOUD_OIDC_PROVIDER_ARN": sim.OIDCProvider, "ALIBABA_CLOUD_OIDC_TOKEN_FILE": token,
	}
	cmd := exec.Command(program, "-cloud-config-verify", "-socket", dir+"/hypervisor.sock", "-pods-dir", dir+"/pods")
	cmd.Env = []string{"RELAY_EXTERNAL=true", "PROBE_PORT=0", "ALIBABACLOUD_CA_FILE=" + cloud.CAFile}
	for _, name := range []string{"ECS", "VPC", "STS"} {
		cmd.Env = append(cmd.Env, "ALIBABACLOUD_"+name+"_ENDPOINT="+cloud.Endpoint)
	}
	for _, pairs := range []map[string]string{w.open, w.secret} {
		for name, value := range pairs {
			if there[name] != "" {
				value = there[name]
			}
			cmd.Env = append(cmd.Env, name+"="+value)
		}
	}
	wantVerified(t, cmd)
}

// wantVerified starts a daemon and waits until it has asked the cloud for everything.
func wantVerified(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	log, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := ""
	for lines := bufio.NewScanner(log); lines.Scan(); {
		said += lines.Text() + "\n"
		if strings.Contains(lines.Text(), "the provider's configuration is right") {
			cmd.Process.Signal(syscall.SIGTERM)
			io.Copy(io.Discard, log)
			cmd.Wait()
			return
		}
	}
	t.Errorf("the adaptor ended: %v\n%s", cmd.Wait(), said)
}

// pagesImage runs the page's line that makes images, for the adaptor's alone.
func pagesImage(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, line := range makeLines(page(t, "providers/alibabacloud.md")) {
		command, pushes := strings.CutSuffix(line.command, " push")
		if !pushes || !strings.HasSuffix(command, "make image") {
			continue
		}
		cmd := exec.Command("bash", "-euc", line.exported+command+" IMAGES=cloud-api-adaptor")
		cmd.Dir, cmd.Env = root, append(os.Environ(), "OUT="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line.command, err, out)
		}
		return filepath.Join(dir, "cloud-api-adaptor")
	}
	t.Fatal("the page has no line `make image push`")
	return ""
}

// adaptorOf takes the program out of an image.
func adaptorOf(t *testing.T, dir string) string {
	t.Helper()
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	image, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	files := mutate.Extract(image)
	defer files.Close()
	for archive := tar.NewReader(files); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			t.Fatalf("no adaptor in %s", dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != "usr/local/bin/cloud-api-adaptor" {
			continue
		}
		data, err := io.ReadAll(archive)
		path := filepath.Join(t.TempDir(), "cloud-api-adaptor")
		if err := errors.Join(err, os.WriteFile(path, data, 0o755)); err != nil {
			t.Fatal(err)
		}
		return path
	}
}
