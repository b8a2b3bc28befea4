// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/outrigger/outrigger/internal/cli/demoimage"
	"github.com/outrigger/outrigger/test/stand"
)

// Images that every node has. Nothing answers at that registry, so pods that
// use them have imagePullPolicy Never or IfNotPresent.
const (
	// PauseImage holds a pod's namespaces.
	PauseImage = "outrigger.test/pause:1"
	// ToolsImage has busybox, and podtool of this package.
	ToolsImage = "outrigger.test/tools:1"
)

// Image is one that a node has without pulling it.
type Image struct {
	// Ref is its full name, as pods use it.
	Ref   string
	Image v1.Image
}

// importImages gives containerd its images as one archive.
func (n *Node) importImages(t testing.TB) {
	t.Helper()
	images := map[name.Tag]v1.Image{}
	for _, i := range append([]Image{pause(t), Tools(t)}, n.options.Images...) {
		tag, err := name.NewTag(i.Ref)
		must(t, err, "name of an image")
		images[tag] = i.Image
	}
	archive := n.path("images.tar")
	must(t, tarball.MultiWriteToFile(archive, images), "write images")
	n.Ctr(t, "images", "import", archive)
}

// Tools makes the image of busybox and podtool.
func Tools(t testing.TB) Image {
	t.Helper()
	return Image{ToolsImage, busybox(t, map[string]string{"podtool": stand.Build(t, "./test/cluster/podtool")})}
}

// Relay makes an image for `kubectl outrigger connectivity test`: agent-relay runs outside of pods here.
func Relay(t testing.TB) v1.Image {
	t.Helper()
	return busybox(t, map[string]string{"agent-relay": stand.Binary(t, "agent-relay")})
}

// Busybox makes the image of busybox alone, which a VM without KVM pulls in half the
// time of Tools.
func Busybox(t testing.TB) v1.Image { return busybox(t, nil) }

func busybox(t testing.TB, extra map[string]string) v1.Image {
	t.Helper()
	image, err := demoimage.Image(demoimage.Options{Extra: extra})
	must(t, err, "make an image of busybox")
	return image
}

func pause(t testing.TB) Image {
	t.Helper()
	image := busybox(t, map[string]string{"pause": stand.Build(t, "./test/cluster/pause")})
	config, err := image.ConfigFile()
	must(t, err, "make the image of pods")
	config = config.DeepCopy()
	config.Config.Cmd = []string{"/bin/pause"}
	image, err = mutate.ConfigFile(image, config)
	must(t, err, "make the image of pods")
	return Image{PauseImage, image}
}
