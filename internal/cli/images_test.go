// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	upstream "github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/outrigger/outrigger/internal/cli/registry"
)

// pushed serves the stand's image by a registry until stop is called, and returns its name there and its digest.
func (s *stand) pushed(path string) (ref, digest string, stop func()) {
	s.t.Helper()
	server := httptest.NewServer(upstream.New(upstream.Logger(log.New(io.Discard, "", 0))))
	s.t.Cleanup(server.Close)
	ref = strings.TrimPrefix(server.URL, "http://") + "/" + path
	index, err := layout.ImageIndexFromPath(strings.TrimPrefix(s.image, "oci:"))
	if err != nil {
		s.t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		s.t.Fatal(err)
	}
	hash := manifest.Manifests[0].Digest
	img, err := index.Image(hash)
	if err != nil {
		s.t.Fatal(err)
	}
	tag, err := name.NewTag(ref)
	if err == nil {
		err = remote.Write(tag, img)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return ref, hash.String(), server.Close
}

// TestImagesAsWithDocker: what people type who type docker.
func TestImagesAsWithDocker(t *testing.T) {
	s := newStand(t)
	ref, digest, stop := s.pushed("team/app:v1")
	repository := strings.TrimSuffix(ref, ":v1")
	host, _, _ := strings.Cut(ref, "/")
	id := digest[7:19]
	for _, row := range []struct {
		line, stdout, stderr string // stdout is the whole, or begins with ~ and is a part
		code                 int
	}{
		{line: "images", stdout: "REPOSITORY   TAG   IMAGE ID   CREATED   SIZE\n"},
		{line: "images -q"},
		{line: "run -q --pull never " + ref, stderr: "it was not pulled to this host", code: 125},
		{line: "run -q --pull sometimes " + ref, stderr: `--pull "sometimes": want missing, always or never`, code: 125},
		{line: "pull", stderr: "accepts 1 arg", code: 125},
		{line: "pull " + s.image, stderr: "it is on this host already", code: 125},
		{line: "pull --platform linux/s390x " + ref, stderr: "it is for linux/", code: 125},
		{line: "pull --platform windows/amd64 " + ref, stderr: "want linux/ARCH", code: 125},
		{line: "pull " + ref + "x", stderr: "registry " + host + " has no such image or tag", code: 125},
		{line: "run -q --network none " + ref, stdout: "default\n"},
		{line: "images -q"}, // a run alone keeps nothing
		{line: "pull " + ref, stdout: ref + "\n", stderr: digest + ", pulled"},
		{line: "pull " + ref, stdout: ref + "\n", stderr: "has it already"},
		{line: "pull -q " + ref, stdout: ref + "\n"},
		{line: "images -q", stdout: id + "\n"},
		{line: "images", stdout: "~" + repository + "   v1    " + id},
		{line: "images --format {{.Repository}}:{{.Tag}}@{{.Digest}}", stdout: ref + "@" + digest + "\n"},
		{line: "images --format json", stdout: `~"ID":"` + id},
		{line: "images -q " + repository, stdout: id + "\n"},
		{line: "images -q " + ref, stdout: id + "\n"},
		{line: "images -q other"},
		{line: "images -q " + host + "/*/a*", stdout: id + "\n"},
		{line: "images -o yaml", stderr: "want table or json", code: 125},
		{line: "run -q --network none --pull always " + ref, stdout: "default\n"},
	} {
		code, stdout, stderr := s.run(strings.Fields(row.line)...)
		part, within := strings.CutPrefix(row.stdout, "~")
		if code != row.code || stdout != row.stdout && !(within && strings.Contains(stdout, part)) || !strings.Contains(stderr, row.stderr) {
			t.Errorf("outrigger %s: exit code %d, want %d with %q and %q:\n%s%s", row.line, code, row.code, row.stdout, row.stderr, stdout, stderr)
		}
	}
	var images []registry.Stored
	if _, stdout, _ := s.run("images", "-o", "json"); json.Unmarshal([]byte(stdout), &images) != nil || len(images) != 1 || images[0].Name != ref {
		t.Errorf("images -o json: %s", stdout)
	}
	stop() // from now on there is no registry
	if code, stdout, stderr := s.run("run", "-q", "--network", "none", ref); code != 0 || stdout != "default\n" {
		t.Errorf("run without the registry: %d, %q, %s", code, stdout, stderr)
	}
	if code, _, stderr := s.run("run", "-q", "--network", "none", "--pull", "always", ref); code != 125 || !strings.Contains(stderr, "cannot be reached from this host") {
		t.Errorf("--pull always without the registry: %d, %s", code, stderr)
	}
	for _, row := range []struct {
		line, stdout, stderr string
		code                 int
	}{
		{line: "rmi other", stderr: "outrigger images lists", code: 125},
		{line: "rmi", stderr: "requires at least 1 arg", code: 125},
		{line: "rmi other " + id, stdout: "Untagged: " + ref + "@" + digest + "\n", stderr: "image other: it was not pulled", code: 125},
		{line: "rmi " + ref, stderr: "it was not pulled", code: 125},
		{line: "rmi -f " + ref},
		{line: "images -q"},
		{line: "run -q " + ref, stderr: "cannot be reached from this host", code: 125},
	} {
		if code, stdout, stderr := s.run(strings.Fields(row.line)...); code != row.code || stdout != row.stdout || !strings.Contains(stderr, row.stderr) {
			t.Errorf("outrigger %s: exit code %d, want %d with %q and %q:\n%s%s", row.line, code, row.code, row.stdout, row.stderr, stdout, stderr)
		}
	}
}

// TestDetachedPodFromThisHost: a monitor, and a pod that is started again, find the folder of images. The guest gets
// the digest from this host, and from the registry when the image was removed.
func TestDetachedPodFromThisHost(t *testing.T) {
	s := newStand(t)
	ref, digest, _ := s.pushed("app:v1")
	if code, _, stderr := s.run("pull", ref); code != 0 {
		t.Fatal(stderr)
	}
	image := s.image
	s.image = ref
	source := func() string { // of the one pod that is there
		for _, req := range s.node.Agents()[len(s.node.Agents())-1].Created() {
			return req.Storages[0].Source
		}
		return ""
	}
	s.detached("p1", "exec sleep 1000", "--rm=false")
	if got := source(); !strings.HasSuffix(got, "/outrigger/image@"+digest) {
		t.Errorf("the guest is to pull %s", got)
	}
	s.run("kill", "p1")
	s.run("wait", "p1")
	s.node.NodeAddress = ""
	if code, _, stderr := s.run("start", "p1"); code != 0 {
		t.Fatal(stderr)
	}
	if got := source(); got != strings.TrimSuffix(ref, ":v1")+"@"+digest {
		t.Errorf("VMs do not see this host, and the guest is to pull %s", got)
	}
	s.node.NodeAddress = "127.0.0.1"
	s.run("kill", "p1")
	s.run("wait", "p1")
	if code, _, stderr := s.run("rmi", ref); code != 0 {
		t.Fatal(stderr)
	}
	if code, _, stderr := s.run("start", "p1"); code != 0 {
		t.Fatal(stderr)
	}
	if got := source(); !strings.HasSuffix(got, "/outrigger/image@"+digest) { // its registry is on the loopback interface
		t.Errorf("once it was removed the guest is to pull %s", got)
	}
	s.run("kill", "p1")
	s.run("wait", "p1")
	s.image = image
}

// TestPlayHonoursPullPolicy: IfNotPresent, which is the default, takes what was pulled, Always lets the guest ask, and
// Never does not ask a registry.
func TestPlayHonoursPullPolicy(t *testing.T) {
	s := newStand(t)
	ref, digest, stop := s.pushed("app:v1")
	play := func(policy string, flags ...string) (code int, stderr string) {
		pod := "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  restartPolicy: Never\n  containers:\n  - {name: c, image: '" + ref + "', imagePullPolicy: " + policy + "}\n"
		code, _, stderr = s.runIn(pod, append([]string{"play", "-q", "--network", "none", "-"}, flags...)...)
		return code, stderr
	}
	if code, stderr := play("Never"); code != 125 || !strings.Contains(stderr, "it was not pulled to this host") {
		t.Errorf("Never: %d, %s", code, stderr)
	}
	if code, stderr := play("", "--pull", "always"); code != 0 { // it is on this host now
		t.Fatal(stderr)
	}
	stop()
	if code, stderr := play("IfNotPresent", "--pull", "always"); code != 0 {
		t.Errorf("the manifest does not win over --pull: %d, %s", code, stderr)
	}
	for policy, want := range map[string]int{"Never": 0, "IfNotPresent": 0, "Always": 125, "": 0} {
		if code, stderr := play(policy); code != want {
			t.Errorf("%s of %s without the registry: %d, %s", policy, digest, code, stderr)
		}
	}
}
