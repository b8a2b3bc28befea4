// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/crane"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/random"
)

// TestPrefetch: an image is where the agent looks for it, and one that cannot be had does not keep the others away.
func TestPrefetch(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	image, err := random.Image(64, 2)
	if err == nil {
		image, err = mutate.ConfigFile(image, &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH})
	}
	if err == nil {
		err = crane.Push(image, host+"/web:1")
	}
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	o, err := parse([]string{"-rehearse", "-root", root, "-insecure-registries", host, "-prefetch", host + "/none:1," + host + "/web:1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.prefetchImages(t.Context()); err == nil || !strings.Contains(err.Error(), "/none:1") || strings.Contains(err.Error(), "web:1") {
		t.Errorf("%v", err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "pull/images", digest.Hex)); err != nil {
		t.Error(err)
	}
}
