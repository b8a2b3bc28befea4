// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/outrigger/outrigger/test/cluster"
)

// images are the names of those that cases use.
type images struct {
	// busybox has that alone, tools podtool as well. configured has busybox and a user,
	// a folder, variables and a command, large busybox and a layer of many bytes.
	busybox, tools, configured, large string
	// private is one that asks for credentials; not every run has it.
	private private
}

// forScript returns the smallest image that has what a script runs.
func (i images) forScript(script string) string {
	if strings.Contains(script, "podtool") {
		return i.tools
	}
	return i.busybox
}

type private struct{ ref, server, user, password string }

// largeSize is that of the layer, which does not compress.
const largeSize = 96 << 20

// configure returns an image that says how it wants to be run.
func configure(t *testing.T, image v1.Image) v1.Image {
	t.Helper()
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	file = file.DeepCopy()
	file.Config.User, file.Config.WorkingDir = "app", "/home/app"
	file.Config.Env = append(file.Config.Env, "ISPRODUCTION=false")
	file.Config.Cmd = []string{"sh", "-c", `echo "user $(id -un) in $(pwd), ISPRODUCTION=$ISPRODUCTION"`}
	image, err = mutate.ConfigFile(image, file)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// enlarge adds a layer of random bytes in one file, /large.
func enlarge(t *testing.T, image v1.Image, bytesMore int64) v1.Image {
	t.Helper()
	var layer bytes.Buffer
	if err := writeTar(&layer, "large", io.LimitReader(rand.Reader, bytesMore), bytesMore); err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(image, static.NewLayer(layer.Bytes(), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func writeTar(to io.Writer, name string, content io.Reader, size int64) error {
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: size}); err != nil {
		return err
	}
	if _, err := io.Copy(w, content); err != nil {
		return err
	}
	return w.Close()
}

// pushAll stores the images below a name that this machine, nodes and VMs
// understand alike.
func pushAll(t *testing.T, at string) images {
	t.Helper()
	busybox := cluster.Busybox(t)
	return images{
		busybox:    push(t, at+"/busybox:1", busybox),
		tools:      push(t, at+"/tools:1", cluster.Tools(t).Image),
		configured: push(t, at+"/configured:1", configure(t, busybox)),
		large:      push(t, at+"/large:1", enlarge(t, busybox, largeSize)),
	}
}

func push(t *testing.T, ref string, image v1.Image) string {
	t.Helper()
	tag, err := name.NewTag(ref, name.WeakValidation)
	if err == nil {
		err = remote.Write(tag, image, remote.WithAuthFromKeychain(authn.DefaultKeychain))
	}
	if err != nil {
		t.Fatalf("push %s: %v", ref, err)
	}
	return tag.Name()
}

// privateImage is that of AUTHENTICATED_REGISTRY_IMAGE, which has busybox, with
// the user:password, in base64, of REGISTRY_CREDENTIAL_ENCODED.
func privateImage() private {
	p := private{ref: os.Getenv("AUTHENTICATED_REGISTRY_IMAGE")}
	plain, _ := base64.StdEncoding.DecodeString(os.Getenv("REGISTRY_CREDENTIAL_ENCODED"))
	p.user, p.password, _ = strings.Cut(strings.TrimSpace(string(plain)), ":")
	if ref, err := name.ParseReference(p.ref); err == nil {
		p.server = ref.Context().RegistryStr()
	}
	return p
}

// needPrivate skips a case for which there is no registry.
func (s *suite) needPrivate(t *testing.T) private {
	t.Helper()
	if p := s.images.private; p.ref != "" && p.user != "" {
		return p
	}
	t.Skip("no private registry: set AUTHENTICATED_REGISTRY_IMAGE to an image with busybox, and REGISTRY_CREDENTIAL_ENCODED to user:password in base64")
	return private{}
}
